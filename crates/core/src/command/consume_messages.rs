use crate::command::{Outcome, Transition};
use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::primitive::{existing, require_lease};
use crate::task::Fence;
use crate::world::World;

/// Deletes messages from the mailbox that the lease holder has consumed. Missing ones are skipped.
#[derive(Clone, Debug)]
pub struct ConsumeMessages {
    pub fence: Fence,
    pub seqs: Vec<u64>,
}

impl ConsumeMessages {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::CONSUME_MESSAGES.check(self.seqs.len())?;
        let (task, _) = require_lease(world, &self.fence)?;
        if !task.has_mailbox {
            return Ok(Outcome::Consumed { consumed: 0 });
        }
        let key = |seq: u64| Message::key_of(&task.tenant, &task.id, seq);
        for &seq in &self.seqs {
            world.prefetch(key(seq));
        }
        let current = existing(world, &task.tenant, &task.id)?;
        let (mut mailbox, mut consumed) = ((*current).clone(), 0);
        for &seq in &self.seqs {
            let message = world.get::<Message>(&key(seq))?;
            let message = message.filter(|message| message.buffered_until.is_none());
            let Some(message) = message else { continue };
            mailbox.forget(&message);
            world.drop_payloads(message.own_payload_key());
            world.remove(&key(seq));
            consumed += 1;
        }
        if consumed > 0 {
            world.put::<Mailbox>(mailbox);
        }
        Ok(Outcome::Consumed { consumed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{NewMessage, SendMessages};
    use crate::payload::Payload;
    use crate::testing::{Stage, check_task, fence, message};

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found |
            waiting   |         | waiting e0 a0   | ! stale_fence    |
            delayed   |         | delayed e0 a0   | ! stale_fence    |
            claimed   |         | claimed e1 a0   | consumed 0          |
            active    |         | active e1 a1    | consumed 0          |
            active    | none    | active e1 a1    | ! invalid        |
            active    | epoch=2 | active e1 a1    | ! stale_fence    |
            lease_expired    |         | active e1 a1    | ! lease_expired  |
            completed |         | completed e1 a1 | ! already_terminal |
            failed    |         | failed e1 a1    | ! already_terminal |
            cancelled |         | cancelled e1 a1 | ! already_terminal |
            expired   |         | expired e1 a1   | ! already_terminal |
            suspended |         | suspended e1 a1 | ! not_leased     |
            resumable |         | resumable e1 a1 | ! not_leased     |
            waiting_children | | waiting_children e1 a1 | ! not_leased |
            blocked | | blocked e0 a0 | ! stale_fence |
            owned    | | owned e0 a0    | ! stale_fence |
            granted | | granted e0 a0 | ! stale_fence |
            ",
            |args| {
                let seqs = if args.has("none") { vec![] } else { vec![1] };
                ConsumeMessages { fence: args.fence(), seqs }
            },
        );
    }

    #[test]
    fn consumed_messages_are_deleted_and_not_counted() {
        let mut stage = Stage::with_task("active");
        let with = |text: &str| NewMessage { payload: Some(Payload::json(text)), ..message("a") };
        for text in ["1", "22", "333"] {
            stage.must(SendMessages::one(with(text)));
        }
        let take = |seqs: &[u64]| ConsumeMessages { fence: fence(1), seqs: seqs.to_vec() };
        assert_eq!(stage.must(take(&[1, 3, 9])), Outcome::Consumed { consumed: 2 });
        assert_eq!(
            stage.must(take(&[1, 3, 9])),
            Outcome::Consumed { consumed: 0 },
            "once is enough"
        );
        assert_eq!(stage.must(take(&[2, 2])), Outcome::Consumed { consumed: 1 });
        assert_eq!(stage.tables.payloads().count(), 0);
        let mailbox = stage.mailbox().unwrap();
        assert_eq!((mailbox.next_seq, mailbox.messages, mailbox.bytes), (4, 0, 0));
    }
}
