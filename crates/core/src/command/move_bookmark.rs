use crate::bookmark::Bookmark;
use crate::command::{Outcome, Transition};
use crate::limits;
use crate::log::Cursor;
use crate::name::Tenant;
use crate::world::World;

/// Says how far a named subscriber has come in the log.
///
/// Within one life of the log it moves only forward: a late word changes nothing. The answer says
/// where it stands. No event tells of it, or whoever reads the log would write it as well.
#[derive(Clone, Debug)]
pub struct MoveBookmark {
    pub tenant: Tenant,
    pub name: String,
    pub cursor: Cursor,
}

impl MoveBookmark {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::BOOKMARK.check(&self.name)?;
        limits::INCARNATION.check(&self.cursor.incarnation)?;
        limits::SEQ.check(self.cursor.seq)?;
        let known = world.get::<Bookmark>(&Bookmark::key_of(&self.tenant, &self.name))?;
        let ahead = known.filter(|known| {
            known.cursor.incarnation == self.cursor.incarnation
                && known.cursor.seq >= self.cursor.seq
        });
        if let Some(known) = ahead {
            return Ok(Outcome::BookmarkAt(known.cursor.clone()));
        }
        world.put::<Bookmark>(Bookmark {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            cursor: self.cursor.clone(),
            moved_at: world.now(),
        });
        Ok(Outcome::BookmarkAt(self.cursor.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::Rejection;
    use crate::testing::Stage;

    fn at(incarnation: &str, seq: u64) -> Cursor {
        Cursor { incarnation: incarnation.into(), seq }
    }

    #[test]
    fn it_moves_forward_within_a_life_of_the_log() {
        let mut stage = Stage::new();
        for (asked, stands) in [
            (at("a", 5), at("a", 5)),
            (at("a", 5), at("a", 5)),
            (at("a", 3), at("a", 5)),
            (at("a", 9), at("a", 9)),
            (at("b", 2), at("b", 2)),
            (at("b", 1), at("b", 2)),
        ] {
            let (tenant, name) = (Tenant::default(), "mailer".to_owned());
            let before = stage.shelf.clone();
            let moved = MoveBookmark { tenant: tenant.clone(), name, cursor: asked.clone() };
            assert_eq!(stage.must(moved), Outcome::BookmarkAt(stands.clone()), "{asked:?}");
            let kept = stage.record::<Bookmark>(&Bookmark::key_of(&tenant, "mailer"));
            assert_eq!(kept.map(|kept| kept.cursor), Some(stands.clone()));
            let same = before == stage.shelf;
            assert!(same || asked == stands, "what does not move is not written");
        }
        assert_eq!(stage.shelf.events_after(0).count(), 0);
    }

    #[test]
    fn bad_input_is_refused_by_name() {
        let rows: [(&str, &str, &str, Cursor); 5] = [
            ("tenant", "", "n", at("a", 1)),
            ("name", "default", "", at("a", 1)),
            ("name", "default", &"x".repeat(256), at("a", 1)),
            ("incarnation", "default", "n", at("", 1)),
            ("seq", "default", "n", at("a", u64::MAX)),
        ];
        for (named, tenant, name, cursor) in rows {
            let mut stage = Stage::new();
            let moved = MoveBookmark { tenant: tenant.into(), name: name.into(), cursor };
            match stage.run(moved) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
            assert_eq!(stage.shelf, crate::shelf::Shelf::default());
        }
    }
}
