use crate::command::{Command, Decided, Outcome, decide};
use crate::concurrency_limit::ConcurrencyLimit;
use crate::name::Tenant;
use crate::record::{StoredRecord, read_row};
use crate::reference_tables::{ReferenceTables, VersionConflict};
use crate::rejection::Rejection;
use crate::row::{Row, RowKey};
use crate::task::Task;
use crate::testing::fixtures::START;
use crate::testing::{key, lane};
use crate::time::Timestamp;
use crate::world::{Hints, LoadRequest, Loaded, World};

/// Reference tables with a clock.
pub(crate) struct Stage {
    pub(crate) tables: ReferenceTables,
    pub(crate) now: Timestamp,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { tables: ReferenceTables::default(), now: START }
    }

    pub(crate) fn run(&mut self, command: impl Into<Command>) -> Result<Outcome, Rejection> {
        self.tables.execute(self.now, &command.into())
    }

    pub(crate) fn must(&mut self, command: impl Into<Command>) -> Outcome {
        self.run(command).expect("a fixture is accepted")
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    pub(crate) fn record<R: StoredRecord>(&self, key: &RowKey) -> Option<R> {
        let row = self.tables.row(key)?;
        let record = read_row::<R>(row.schema, &row.body).expect("it was written by this version");
        Some((*record).clone())
    }

    pub(crate) fn task(&self, id: &str) -> Option<Task> {
        self.record(&key(id).row_key())
    }

    pub(crate) fn lane(&self) -> Option<crate::lane::Lane> {
        self.record(&crate::lane::Lane::key_of(&Tenant::default(), &lane()))
    }

    pub(crate) fn limits(&self) -> Vec<ConcurrencyLimit> {
        let rows = self.tables.rows().filter(|row| row.key.table == ConcurrencyLimit::TABLE);
        let read = |row: &Row| {
            read_row::<ConcurrencyLimit>(row.schema, &row.body).expect("it can be read")
        };
        rows.map(|row| (*read(row)).clone()).collect()
    }

    /// Decides in a batch that loaded a record before it existed, and everything else afterwards,
    /// as a batch may that loads in several rounds beside others.
    pub(crate) fn decide_with_stale_absence(
        &self,
        record: RowKey,
        command: impl Into<Command>,
    ) -> Result<(), VersionConflict> {
        let command = command.into();
        let mut world = World::new(self.now, Hints::default());
        let request = LoadRequest { rows: vec![record], ..LoadRequest::default() };
        world.absorb(&request, Loaded::default());
        while let Decided::Parked = decide(&mut world, &command) {
            let wanted = world.take_load_request().expect("it lacks something");
            let loaded = self.tables.load(&wanted);
            world.absorb(&wanted, loaded);
        }
        self.tables.clone().commit(&world.finish().0)
    }

    /// Makes a record unreadable for this version.
    pub(crate) fn garble(&mut self, key: &RowKey) {
        let row = self.tables.row(key).expect("the record exists").clone();
        self.tables.plant(Row { schema: 99, body: "{\"unheard\":\"of\"}".into(), ..row });
    }
}
