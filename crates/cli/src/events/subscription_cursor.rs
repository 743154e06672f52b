use windlass::command::MoveSubscriptionCursor;
use windlass::{Cursor, Engine, Error, Tenant, limits};

/// The durable cursor stored under a name, if one was given.
#[derive(Debug)]
pub(super) struct SubscriptionCursor<'e> {
    engine: &'e Engine,
    tenant: &'e Tenant,
    name: Option<&'e str>,
}

impl<'e> SubscriptionCursor<'e> {
    pub(super) fn new(engine: &'e Engine, tenant: &'e Tenant, name: Option<&'e str>) -> Self {
        Self { engine, tenant, name }
    }

    /// The cursor to start from; none without a name.
    pub(super) async fn start(&self) -> Result<Option<Cursor>, Error> {
        let Some(name) = self.name else { return Ok(None) };
        limits::SUBSCRIPTION.check(name)?;
        match self.engine.subscription_cursor(self.tenant, name).await? {
            Some(stored) => Ok(Some(stored.cursor.clone())),
            None => Ok(Some(self.engine.subscribe(None).await?.cursor().clone())),
        }
    }

    /// Stores the cursor up to which events were shown.
    pub(super) async fn move_to(&self, cursor: &Cursor) -> Result<(), Error> {
        let Some(name) = self.name else { return Ok(()) };
        let (tenant, name) = (self.tenant.clone(), name.to_owned());
        let moved = MoveSubscriptionCursor { tenant, name, cursor: cursor.clone() };
        self.engine.submit(moved).await.map(drop)
    }
}
