use crate::bookmark::Bookmark;
use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::Tenant;
use crate::world::World;

/// Forgets how far a named subscriber has come. One that is not known has nothing to forget.
#[derive(Clone, Debug)]
pub struct DropBookmark {
    pub tenant: Tenant,
    pub name: String,
}

impl DropBookmark {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::BOOKMARK.check(&self.name)?;
        let key = Bookmark::key_of(&self.tenant, &self.name);
        let known = world.get::<Bookmark>(&key)?.is_some();
        if known {
            world.remove(&key);
        }
        Ok(Outcome::BookmarkDropped { known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::MoveBookmark;
    use crate::log::Cursor;
    use crate::testing::Stage;

    #[test]
    fn it_is_forgotten_once() {
        let mut stage = Stage::new();
        let drop = |name: &str| DropBookmark { tenant: Tenant::default(), name: name.into() };
        let cursor = Cursor { incarnation: "a".into(), seq: 5 };
        let (tenant, name) = (Tenant::default(), "mailer".to_owned());
        stage.must(MoveBookmark { tenant, name, cursor });
        assert_eq!(stage.must(drop("other")), Outcome::BookmarkDropped { known: false });
        assert_eq!(stage.must(drop("mailer")), Outcome::BookmarkDropped { known: true });
        assert_eq!(stage.must(drop("mailer")), Outcome::BookmarkDropped { known: false });
        assert_eq!(stage.shelf.rows().count(), 0);
        assert_eq!(stage.run(drop("")).unwrap_err().code(), "invalid");
    }
}
