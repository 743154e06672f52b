use windlass_core::{ChangeSet, Payload, PayloadKey, Slot, limits};

use super::case::Verdict;
use super::context::{Context, ensure, same};
use crate::fixture::payload_key;

fn attach(payloads: Vec<(PayloadKey, Payload)>) -> ChangeSet {
    ChangeSet { payloads, ..ChangeSet::default() }
}

pub(super) async fn payloads_come_in_the_order_of_their_keys(context: &Context<'_>) -> Verdict {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let payloads = vec![
        (payload_key("t", 0, Slot::INPUT), Payload::json(r#"{"a":1}"#)),
        (payload_key("t", 0, Slot::RESULT), Payload::new("application/octet-stream", every_byte)),
        (payload_key("t", u32::MAX, Slot::RESULT), Payload::new("text/plain", Vec::new())),
        (payload_key("t\u{1f600}'\"", 1, Slot::INPUT), Payload::new("x/\u{fc}", *b"\0\0")),
    ];
    context.commit(attach(payloads.clone())).await?;
    let missing = [
        payload_key("t", 1, Slot::INPUT),
        payload_key("u", 0, Slot::INPUT),
        PayloadKey { tenant: "acme".into(), ..payload_key("t", 0, Slot::INPUT) },
    ];
    let known = |at: usize| payloads[at].0.clone();
    let asked = [
        known(3),
        missing[0].clone(),
        known(0),
        known(2),
        missing[1].clone(),
        missing[2].clone(),
        known(1),
        known(0),
    ];
    let expected = asked.iter().map(|key| {
        payloads.iter().find(|(known, _)| known == key).map(|(_, payload)| payload.clone())
    });
    same("payloads", &context.store.payloads(&asked).await?, &expected.collect())?;
    same("none", &context.store.payloads(&[]).await?, &Vec::new())
}

pub(super) async fn dropped_payloads_are_gone(context: &Context<'_>) -> Verdict {
    let (deleted, remaining) =
        (payload_key("t", 0, Slot::INPUT), payload_key("t", 0, Slot::RESULT));
    let payloads = [&deleted, &remaining].map(|key| (key.clone(), Payload::json("1")));
    context.commit(attach(payloads.to_vec())).await?;
    let dropped_payloads = vec![deleted.clone(), payload_key("missing", 0, Slot::INPUT)];
    context.commit(ChangeSet { dropped_payloads, ..ChangeSet::default() }).await?;
    let found = context.store.payloads(&[deleted.clone(), remaining]).await?;
    same("payloads", &found, &vec![None, Some(Payload::json("1"))])?;
    context.commit(attach(vec![(deleted.clone(), Payload::json("2"))])).await?;
    let found = context.store.payloads(&[deleted]).await?;
    same("written again", &found, &vec![Some(Payload::json("2"))])
}

/// A task can be deleted and recreated in one batch, while its earlier payload still exists.
pub(super) async fn a_payload_is_overwritten(context: &Context<'_>) -> Verdict {
    let (key, beside) = (payload_key("t", 0, Slot::INPUT), payload_key("t", 1, Slot::INPUT));
    let earlier = [&key, &beside].map(|key| (key.clone(), Payload::json("\"earlier\"")));
    context.commit(attach(earlier.to_vec())).await?;
    let fresh = Payload::new("text/plain", *b"fresh");
    context.commit(attach(vec![(key.clone(), fresh.clone())])).await?;
    let found = context.store.payloads(&[key, beside]).await?;
    same("payloads", &found, &vec![Some(fresh), Some(Payload::json("\"earlier\""))])
}

pub(super) async fn a_large_payload_survives(context: &Context<'_>) -> Verdict {
    let size = usize::try_from(limits::PAYLOAD_BYTES.max).expect("a payload fits into memory");
    let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let (key, payload) = (payload_key("t", 0, Slot::INPUT), Payload::new("x/y", bytes));
    context.commit(attach(vec![(key.clone(), payload.clone())])).await?;
    let found = context.store.payloads(&[key]).await?;
    ensure(found == vec![Some(payload)], || format!("the payload was read as {found:?}"))
}
