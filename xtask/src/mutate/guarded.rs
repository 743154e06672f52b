use std::fmt;

use super::mutation::Mutation;

/// A mutation, and what must notice it.
#[derive(Clone, Copy)]
pub(super) struct Guarded {
    pub(super) mutation: Mutation,
    pub(super) noticed_by: NoticedBy,
}

#[derive(Clone, Copy)]
pub(super) enum NoticedBy {
    /// A seed of the simulator.
    Simulator,
    /// The test that guards the rule.
    Test(Test),
}

/// A test of one package.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) package: &'static str,
    pub(super) target: TestTarget,
    /// With its modules.
    pub(super) name: &'static str,
}

/// The test binary of a package.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TestTarget {
    Unit,
    Integration,
}

impl Guarded {
    pub(super) fn by_simulator(mutation: &Mutation) -> Self {
        Self { mutation: *mutation, noticed_by: NoticedBy::Simulator }
    }
}

impl Test {
    /// A unit test of core.
    pub(super) const fn of_core(name: &'static str) -> Self {
        Self { package: "windlass-core", target: TestTarget::Unit, name }
    }

    /// An integration test of the engine.
    pub(super) const fn of_engine(name: &'static str) -> Self {
        Self { package: "windlass-engine", target: TestTarget::Integration, name }
    }

    /// A test that runs a Postgres server.
    pub(super) const fn on_postgres(name: &'static str) -> Self {
        Self { package: "windlass-store-postgres", target: TestTarget::Integration, name }
    }

    /// The arguments of `cargo test` that select its binary.
    pub(super) fn binary(&self) -> Vec<&'static str> {
        let target: &[&str] = match self.target {
            TestTarget::Unit => &["--lib"],
            TestTarget::Integration => &["--test", "it"],
        };
        [&["--package", self.package], target].concat()
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.package, self.name)
    }
}
