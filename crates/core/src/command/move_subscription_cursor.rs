use crate::command::{Outcome, Transition};
use crate::limits;
use crate::log::Cursor;
use crate::name::Tenant;
use crate::subscription_cursor::SubscriptionCursor;
use crate::world::World;

/// Moves the cursor of a durable subscription.
///
/// Within one incarnation of the log it moves only forward: a late request changes nothing. The
/// response has its position. No event is logged, or every reader of the log would write to it.
#[derive(Clone, Debug)]
pub struct MoveSubscriptionCursor {
    pub tenant: Tenant,
    pub name: String,
    pub cursor: Cursor,
}

impl MoveSubscriptionCursor {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::SUBSCRIPTION.check(&self.name)?;
        limits::INCARNATION.check(&self.cursor.incarnation)?;
        limits::SEQ.check(self.cursor.seq)?;
        let stored = world
            .get::<SubscriptionCursor>(&SubscriptionCursor::key_of(&self.tenant, &self.name))?;
        let ahead = stored.filter(|stored| {
            stored.cursor.incarnation == self.cursor.incarnation
                && stored.cursor.seq >= self.cursor.seq
        });
        if let Some(stored) = ahead {
            return Ok(Outcome::SubscriptionCursorAt(stored.cursor.clone()));
        }
        world.put::<SubscriptionCursor>(SubscriptionCursor {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            cursor: self.cursor.clone(),
            moved_at: world.now(),
        });
        Ok(Outcome::SubscriptionCursorAt(self.cursor.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::Rejection;
    use crate::testing::{Stage, check_cursor};

    fn at(incarnation: &str, seq: u64) -> Cursor {
        Cursor { incarnation: incarnation.into(), seq }
    }

    #[test]
    fn table() {
        check_cursor(
            "
            absent  |         | a 7    | at 7      |
            absent  | name=   | absent | ! invalid |
            there   |         | a 7    | at 7      |
            there   | to=6    | a 6    | at 6      |
            there   | to=5    | a 5    | at 5      |
            there   | to=3    | a 5    | at 5      |
            there   | life=   | a 5    | ! invalid |
            there   | life=b to=3 | b 3 | at 3     |
            another |         | a 7    | at 7      |
            another | life=b to=3 | b 5 | at 5     |
            ",
            |args| MoveSubscriptionCursor {
                tenant: Tenant::default(),
                name: args.text("name", "mailer"),
                cursor: at(&args.text("life", "a"), args.number("to", 7)),
            },
        );
    }

    #[test]
    fn a_cursor_that_does_not_move_is_not_written() {
        let mut stage = Stage::with_cursor("there");
        let before = stage.tables.clone();
        for seq in [5, 3] {
            let (tenant, name) = (Tenant::default(), "mailer".to_owned());
            stage.must(MoveSubscriptionCursor { tenant, name, cursor: at("a", seq) });
            assert_eq!(before, stage.tables);
        }
    }

    #[test]
    fn bad_input_is_rejected_by_name() {
        let rows: [(&str, &str, &str, Cursor); 5] = [
            ("tenant", "", "n", at("a", 1)),
            ("name", "default", "", at("a", 1)),
            ("name", "default", &"x".repeat(256), at("a", 1)),
            ("incarnation", "default", "n", at("", 1)),
            ("seq", "default", "n", at("a", u64::MAX)),
        ];
        for (named, tenant, name, cursor) in rows {
            let mut stage = Stage::new();
            let moved = MoveSubscriptionCursor { tenant: tenant.into(), name: name.into(), cursor };
            match stage.run(moved) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
            assert_eq!(stage.tables, crate::reference_tables::ReferenceTables::default());
        }
    }
}
