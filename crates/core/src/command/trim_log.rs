use crate::command::{Outcome, Transition};
use crate::limits;
use crate::log::Log;
use crate::world::World;

/// Deletes a page of log events that are older than the retention. Readers with a cursor before the
/// floor detect the gap.
#[derive(Clone, Debug)]
pub struct TrimLog {
    pub retention_ms: u64,
    pub page: u32,
}

impl TrimLog {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::PAGE.check(self.page)?;
        let page = self.page as usize;
        let before = world.now().minus_ms(self.retention_ms);
        world.prefetch(Log::key_of());
        let head = world.log_head(page)?;
        let old: Vec<u64> =
            head.iter().take_while(|entry| entry.at <= before).map(|entry| entry.seq).collect();
        world.get::<Log>(&Log::key_of())?;
        if let Some(&floor) = old.last() {
            world.trim_log(floor);
            world.put::<Log>(Log { floor });
        }
        Ok(Outcome::Trimmed { trimmed: old.len(), more: old.len() == page })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Create;
    use crate::testing::{Stage, new_task};

    #[test]
    fn two_trims_in_one_batch_run_in_sequence() {
        let mut stage = Stage::new();
        for n in 0..10 {
            stage.must(Create::one(new_task(&n.to_string())));
        }
        let mut world = World::new(stage.now, crate::world::Hints::default());
        let mut trimmed = Vec::new();
        for page in [6, 3] {
            let trim = TrimLog { retention_ms: 0, page }.into();
            loop {
                match crate::command::decide(&mut world, &trim) {
                    crate::Decided::Ready(outcome) => break trimmed.push(outcome.unwrap()),
                    crate::Decided::Parked => {
                        let wanted = world.take_load_request().unwrap();
                        let loaded = stage.tables.load(&wanted);
                        world.absorb(&wanted, loaded);
                    }
                }
            }
        }
        stage.tables.commit(&world.finish().0).unwrap();
        // The second trim sees only the events that the first had loaded.
        let none = Outcome::Trimmed { trimmed: 0, more: false };
        assert_eq!(trimmed, [Outcome::Trimmed { trimmed: 6, more: true }, none]);
        assert_eq!(stage.tables.events_after(0).count(), 4);
    }

    #[test]
    fn old_events_are_deleted_in_pages_and_the_floor_records_it() {
        let mut stage = Stage::new();
        for n in 0..5 {
            stage.must(Create::one(new_task(&n.to_string())));
            stage.later(1_000);
        }
        let trim = |retention_ms| TrimLog { retention_ms, page: 2 };
        let seqs = |stage: &Stage| -> Vec<u64> {
            stage.tables.events_after(0).map(|logged| logged.seq).collect()
        };
        let floor = |stage: &Stage| stage.record::<Log>(&Log::key_of()).map(|log| log.floor);
        assert_eq!(stage.must(trim(60_000)), Outcome::Trimmed { trimmed: 0, more: false });
        assert_eq!((seqs(&stage), floor(&stage)), (vec![1, 2, 3, 4, 5], None));
        assert_eq!(stage.must(trim(3_000)), Outcome::Trimmed { trimmed: 2, more: true });
        assert_eq!((seqs(&stage), floor(&stage)), (vec![3, 4, 5], Some(2)));
        assert_eq!(stage.must(trim(3_000)), Outcome::Trimmed { trimmed: 1, more: false });
        assert_eq!((seqs(&stage), floor(&stage)), (vec![4, 5], Some(3)));
        stage.must(trim(0));
        stage.must(Create::one(new_task("more")));
        assert_eq!((seqs(&stage), floor(&stage)), (vec![6], Some(5)));
        let bad = stage.run(TrimLog { retention_ms: 0, page: 0 });
        assert_eq!(bad.unwrap_err().code(), "invalid");
    }
}
