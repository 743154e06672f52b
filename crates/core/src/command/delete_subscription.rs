use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::Tenant;
use crate::subscription_cursor::SubscriptionCursor;
use crate::world::World;

/// Deletes a durable subscription. Does nothing if there is none.
#[derive(Clone, Debug)]
pub struct DeleteSubscription {
    pub tenant: Tenant,
    pub name: String,
}

impl DeleteSubscription {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::SUBSCRIPTION.check(&self.name)?;
        let key = SubscriptionCursor::key_of(&self.tenant, &self.name);
        let existed = world.get::<SubscriptionCursor>(&key)?.is_some();
        if existed {
            world.remove(&key);
        }
        Ok(Outcome::SubscriptionDeleted { existed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_cursor;

    #[test]
    fn table() {
        check_cursor(
            "
            absent  |              | absent | dropped false |
            there   |              | absent | dropped true  |
            there   | name=other   | a 5    | dropped false |
            there   | tenant=other | a 5    | dropped false |
            there   | name=        | a 5    | ! invalid     |
            there   | tenant=      | a 5    | ! invalid     |
            another |              | absent | dropped true  |
            ",
            |args| DeleteSubscription {
                tenant: args.text("tenant", "default").into(),
                name: args.text("name", "mailer"),
            },
        );
    }
}
