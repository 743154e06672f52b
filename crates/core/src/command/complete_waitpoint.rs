use crate::command::send_messages::sent_before;
use crate::command::{IdempotencyWindow, Outcome, Transition};
use crate::keyring::Keyring;
use crate::limits;
use crate::name::{TaskId, Tenant};
use crate::new_message::NewMessage;
use crate::payload::Payload;
use crate::primitive::{deliver, require_task};
use crate::rejection::Rejection;
use crate::task::TaskKey;
use crate::token::Token;
use crate::waitpoint::{Waitpoint, WaitpointState};
use crate::world::{Halt, World};

/// Completes a waitpoint by its token: sends its one message.
///
/// Every invalid token gets the same rejection, whatever is wrong with it.
#[derive(Clone, Debug)]
pub struct CompleteWaitpoint {
    pub tenant: Tenant,
    pub token: Token,
    pub name: String,
    pub source: String,
    pub idempotency: Option<IdempotencyWindow>,
    pub payload: Option<Payload>,
}

impl CompleteWaitpoint {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        self.message_to(&TaskId::new("")).check_content(world.now())?;
        let waitpoint = self.verify(world)?;
        let task = require_task(world, &TaskKey::new(&self.tenant, &waitpoint.task))?;
        let message = self.message_to(&task.id);
        let (key, through) = (task.task_key(), Some(&waitpoint.id));
        if let Some(first) = sent_before(world, &key, Some(&task), &message, through)? {
            return Ok(Outcome::Sent(vec![first]));
        }
        if matches!(waitpoint.state, WaitpointState::Completed { .. }) {
            return Err(Rejection::WaitpointCompleted.into());
        }
        if waitpoint.expires_at <= world.now() {
            return Err(Rejection::TokenExpired.into());
        }
        let sent = deliver(world, &task, &message, through)?;
        let state = WaitpointState::Completed { seq: sent.seq };
        world.put::<Waitpoint>(Waitpoint { state, ..waitpoint });
        Ok(Outcome::Sent(vec![sent]))
    }

    fn message_to(&self, task: &TaskId) -> NewMessage {
        NewMessage {
            idempotency: self.idempotency.clone(),
            payload: self.payload.clone(),
            ..NewMessage::new(task.clone(), &self.name, &self.source)
        }
    }

    /// The waitpoint that the token was signed for.
    fn verify(&self, world: &mut World) -> Result<Waitpoint, Halt> {
        let parts = self.token.parts().ok_or(Rejection::TokenInvalid)?;
        limits::WAITPOINT_ID
            .check(parts.waitpoint.as_str())
            .map_err(|_| Rejection::TokenInvalid)?;
        let waitpoint = Waitpoint::key_of(&self.tenant, &parts.waitpoint);
        world.prefetch(waitpoint.clone());
        let ring = world.get::<Keyring>(&Keyring::key_of(&self.tenant))?;
        let waitpoint = world.get::<Waitpoint>(&waitpoint)?;
        let (ring, waitpoint) = ring.zip(waitpoint).ok_or(Rejection::TokenInvalid)?;
        let key = ring.verifying_key(&parts.key_id, world.now()).ok_or(Rejection::TokenInvalid)?;
        if !parts.is_proved_by(key, &waitpoint) {
            return Err(Rejection::TokenInvalid.into());
        }
        Ok((*waitpoint).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, CreateWaitpoint, CreatedWaitpoint, DeleteTask, NewWaitpoint, Suspend,
    };
    use crate::task::{Condition, PublicState};
    use crate::testing::{Stage, check_task, claim, fence, key, rotation, token};

    fn complete(token: &Token) -> CompleteWaitpoint {
        CompleteWaitpoint {
            tenant: Tenant::default(),
            token: token.clone(),
            name: "approve".into(),
            source: "ada".into(),
            idempotency: None,
            payload: None,
        }
    }

    /// A leased task with a waitpoint that is open for a minute.
    fn stage() -> (Stage, Token) {
        let mut stage = Stage::with_task("active");
        stage.seed();
        let made = make(&mut stage, "p1");
        (stage, made.token)
    }

    fn make(stage: &mut Stage, id: &str) -> CreatedWaitpoint {
        let waitpoint = NewWaitpoint { id: id.into(), ttl_ms: 60_000 };
        let create = CreateWaitpoint { task: key("t"), epoch: None, waitpoint };
        let Outcome::WaitpointCreated(made) = stage.must(create) else { panic!() };
        made
    }

    fn code(
        stage: &mut Stage,
        command: CompleteWaitpoint,
    ) -> Result<(u64, bool, bool), &'static str> {
        let before = stage.tables.clone();
        match stage.run(command) {
            Ok(Outcome::Sent(sent)) => Ok((sent[0].seq, sent[0].duplicate, sent[0].resumed)),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => {
                assert_eq!(before, stage.tables, "a rejection changed something");
                Err(rejection.code())
            }
        }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    | waitpoint | absent          | ! token_invalid |
            waiting   | waitpoint | waiting e0 a0   | sent 1        | signalled
            waiting   |           | waiting e0 a0   | ! token_invalid |
            waiting   | waitpoint name= | waiting e0 a0 | ! invalid   |
            delayed   | waitpoint | delayed e0 a0   | sent 1        | signalled
            claimed   | waitpoint | claimed e1 a0   | sent 1        | signalled
            active    | waitpoint | active e1 a1    | sent 1        | signalled
            lease_expired    | waitpoint | active e1 a1    | ! token_expired |
            completed | waitpoint | completed e1 a1 | ! already_terminal |
            failed    | waitpoint | failed e1 a1    | ! already_terminal |
            cancelled | waitpoint | cancelled e1 a1 | ! already_terminal |
            expired   | waitpoint | expired e1 a1   | ! already_terminal |
            suspended | waitpoint | suspended e1 a1 | sent 1        | signalled
            suspended | waitpoint name=go | resumable e1 a1 | resumed 1 | signalled resumed
            resumable | waitpoint | resumable e1 a1 | sent 2        | signalled
            waiting_children | waitpoint | waiting_children e1 a1 | sent 1 | signalled
            blocked   | waitpoint | blocked e0 a0   | sent 1        | signalled
            owned     | waitpoint | owned e0 a0     | sent 1        | signalled
            granted   | waitpoint | granted e0 a0   | sent 1        | signalled
            ",
            |args| CompleteWaitpoint { name: args.text("name", "yes"), ..complete(&token()) },
        );
    }

    #[test]
    fn a_signal_is_stored_until_the_task_waits_for_it() {
        let (mut stage, token) = stage();
        assert_eq!(code(&mut stage, complete(&token)), Ok((1, false, false)));
        let outcome = stage.must(Suspend::new(fence(1), Condition::waitpoint("p1")));
        assert!(
            matches!(outcome, Outcome::AlreadySatisfied(resumption) if resumption.messages == [1])
        );
    }

    #[test]
    fn a_signal_resumes_the_task() {
        let (mut stage, token) = stage();
        stage.must(Suspend::new(fence(1), Condition::waitpoint("p1")));
        assert_eq!(code(&mut stage, complete(&token)), Ok((1, false, true)));
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Resumable);
        let message = stage.message(1).unwrap();
        assert_eq!(message.waitpoint, Some("p1".into()));
        let waitpoint = Waitpoint::key_of(&Tenant::default(), &"p1".into());
        let waitpoint = stage.record::<Waitpoint>(&waitpoint).unwrap();
        assert_eq!(waitpoint.state, WaitpointState::Completed { seq: 1 });
    }

    #[test]
    fn a_waitpoint_accepts_one_message() {
        let (mut stage, token) = stage();
        let idempotency =
            |key: &str| Some(super::IdempotencyWindow { key: key.into(), window_ms: 60_000 });
        let keyed =
            |key: &str| CompleteWaitpoint { idempotency: idempotency(key), ..complete(&token) };
        assert_eq!(code(&mut stage, keyed("k")), Ok((1, false, false)));
        assert_eq!(code(&mut stage, keyed("k")), Ok((1, true, false)), "a repeat of the first");
        assert_eq!(code(&mut stage, keyed("other")), Err("waitpoint_completed"));
        assert_eq!(
            code(&mut stage, complete(&token)),
            Err("waitpoint_completed"),
            "a replayed token"
        );
        let otherwise = CompleteWaitpoint { name: "reject".into(), ..keyed("k") };
        assert_eq!(code(&mut stage, otherwise), Err("conflict"));
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        assert_eq!(code(&mut stage, keyed("k")), Ok((1, true, false)), "also after its end");
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn every_invalid_token_gets_the_same_rejection() {
        let (mut stage, token) = stage();
        let text = token.expose_secret().to_owned();
        let mut tampered: Vec<String> = Vec::new();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            tampered.push(String::from_utf8(bytes).unwrap());
        }
        let other = make(&mut stage, "p2").token;
        let crossed = text.replacen(".p1.", ".p2.", 1);
        let stretched = text.replacen("1060000", "9060000", 1);
        assert_ne!(stretched, text);
        tampered.extend([String::new(), "wl1".into(), text[..text.len() - 2].into(), crossed]);
        tampered.extend([format!("{text}00"), format!(" {text}"), text.to_uppercase(), stretched]);
        tampered.push("x".repeat(100_000));
        for text in tampered.into_iter().filter(|changed| *changed != text) {
            let found = code(&mut stage, complete(&Token::new(&text)));
            assert_eq!(found, Err("token_invalid"), "{text}");
        }
        assert_eq!(code(&mut stage, complete(&other)), Ok((1, false, false)));
        assert_eq!(code(&mut stage, complete(&token)), Ok((2, false, false)));
    }

    #[test]
    fn a_token_is_invalid_for_another_tenant() {
        let (mut stage, token) = stage();
        let of_other_tenant = CompleteWaitpoint { tenant: "other".into(), ..complete(&token) };
        assert_eq!(code(&mut stage, of_other_tenant.clone()), Err("token_invalid"));
        stage.must(super::super::RotateSigningKey {
            tenant: "other".into(),
            ..rotation("k1", "07")
        });
        assert_eq!(
            code(&mut stage, of_other_tenant.clone()),
            Err("token_invalid"),
            "the same key there"
        );
        let waitpoint = NewWaitpoint { id: "p1".into(), ttl_ms: 60_000 };
        let new = crate::testing::new_task("t");
        stage.must(crate::command::Create { tenant: "other".into(), tasks: vec![new] });
        let task = TaskKey::new(&"other".into(), &"t".into());
        stage.must(CreateWaitpoint { task, epoch: None, waitpoint });
        assert_eq!(
            code(&mut stage, of_other_tenant),
            Err("token_invalid"),
            "also with the same waitpoint"
        );
    }

    #[test]
    fn a_token_expires() {
        let (mut stage, token) = stage();
        stage.later(59_999);
        let other = make(&mut stage, "p2");
        stage.later(1);
        assert_eq!(code(&mut stage, complete(&token)), Err("token_expired"));
        assert_eq!(code(&mut stage, complete(&other.token)), Ok((1, false, false)));
    }

    #[test]
    fn a_rotated_key_verifies_tokens_until_its_grace_ends() {
        let (mut stage, first) = stage();
        let later = make(&mut stage, "p2").token;
        stage.must(rotation("k2", "08"));
        let second = make(&mut stage, "p3").token;
        assert!(second.expose_secret().starts_with("wl1.k2."));
        stage.later(30_000);
        let third = make(&mut stage, "p4").token;
        assert_eq!(code(&mut stage, complete(&first)), Ok((1, false, false)));
        stage.later(30_000 - 1);
        assert_eq!(code(&mut stage, complete(&second)), Ok((2, false, false)));
        stage.later(1);
        assert_eq!(code(&mut stage, complete(&later)), Err("token_invalid"), "its grace is over");
        stage.must(crate::command::Sweep::default());
        assert_eq!(code(&mut stage, complete(&later)), Err("token_invalid"), "it is deleted");
        assert_eq!(code(&mut stage, complete(&third)), Ok((3, false, false)));
    }

    #[test]
    fn ended_tasks_reject_signals_and_deleted_tasks_their_tokens() {
        let (mut stage, token) = stage();
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        assert_eq!(code(&mut stage, complete(&token)), Err("already_terminal"));
        stage.must(DeleteTask { task: key("t") });
        assert_eq!(code(&mut stage, complete(&token)), Err("token_invalid"));
    }

    #[test]
    fn tokens_and_secrets_are_in_no_record_event_or_output() {
        let (mut stage, token) = stage();
        stage.must(claim_of_nothing());
        let made = stage.must(Suspend {
            waitpoints: vec![NewWaitpoint { id: "p5".into(), ttl_ms: 60_000 }],
            ..Suspend::new(fence(1), Condition::waitpoint("p1"))
        });
        let rejected = stage.run(complete(&Token::new("wl1.k1.p1.1.00")));
        let outcome = stage.run(complete(&token));
        let mac = token.expose_secret().rsplit('.').next().unwrap().to_owned();
        let printed = format!(
            "{made:?} {rejected:?} {outcome:?} {:?} {:?}",
            complete(&token),
            rotation("k1", "07")
        );
        let stored: String = stage.tables.rows().map(|row| format!("{row:?}")).collect();
        let events: String =
            stage.tables.events_after(0).map(|logged| format!("{logged:?}")).collect();
        for text in [&printed, &stored, &events] {
            assert!(!text.contains(&mac) && !text.contains("wl1."), "{text}");
        }
        let secret = "07".repeat(32);
        assert!(!printed.contains(&secret) && !events.contains(&secret));
    }

    fn claim_of_nothing() -> crate::command::Claim {
        claim()
    }
}
