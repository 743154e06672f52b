//! The rules that unit tests of core guard: the simulator reaches them too rarely, or their absence
//! breaks nothing that it can observe.

use super::guarded::{Guarded, NoticedBy, Test};
use super::mutation::Mutation;

const fn guard(test: &'static str, mutation: Mutation) -> Guarded {
    Guarded { mutation, noticed_by: NoticedBy::Test(Test::of_core(test)) }
}

/// The rules of limits and requests.
pub(super) const ROWS: &[Guarded] = &[
    guard(
        "command::set_quota::tests::an_admitted_task_does_not_start_above_a_lowered_limit",
        Mutation {
            rule: "an admitted task does not start above a lowered limit",
            file: "crates/core/src/concurrency_limit.rs",
            from: "self.limit.is_none_or(|limit| running <= limit)",
            to: "true",
        },
    ),
    guard(
        "command::set_quota::tests::a_raised_concurrency_limit_admits_page_by_page",
        Mutation {
            rule: "a limit with free slots and blocked tasks is due",
            file: "crates/core/src/concurrency_limit.rs",
            from: "true if self.available(now) > 0 => Some(now),",
            to: "true if false => Some(now),",
        },
    ),
    guard(
        "command::admit::tests::reusing_a_key_deletes_its_unswept_response",
        Mutation {
            rule: "an admission deletes the unswept response of the same key",
            file: "crates/core/src/command/admit.rs",
            from: "        world.drop_payloads(before.and_then(Admission::stored_response_key));\n",
            to: "",
        },
    ),
];

/// The rules of workflows of an external runtime.
pub(super) const EXTERNAL_RUNTIME: &[Guarded] = &[
    guard(
        "command::drop_activity::tests::the_workflow_of_a_dropped_step_gets_no_report",
        Mutation {
            rule: "a dropped activity is not reported to its workflow",
            file: "crates/core/src/command/drop_activity.rs",
            from: "            task.step = None;\n",
            to: "",
        },
    ),
    guard(
        "command::renew_sessions::tests::an_expired_lock_is_not_renewed",
        Mutation {
            rule: "an expired affinity lock is not renewed",
            file: "crates/core/src/primitive/concurrency_limit.rs",
            from: "let Some(owner) = stored.owner(now).filter(active) else",
            to: "let Some(owner) = stored.owner.as_ref().filter(active) else",
        },
    ),
    guard(
        "command::release_session::tests::a_live_affinity_lock_is_not_released",
        Mutation {
            rule: "a live affinity lock is not released",
            file: "crates/core/src/command/release_session.rs",
            from: "if self.affinity && limit.owner(world.now()).is_some() {",
            to: "if false {",
        },
    ),
];
