//! The rules that named tests guard: the simulator reaches them too rarely, or their absence
//! breaks nothing that it can observe.

use super::guarded::{Guarded, NoticedBy, Test};
use super::mutation::Mutation;

const fn guard(test: Test, mutation: Mutation) -> Guarded {
    Guarded { mutation, noticed_by: NoticedBy::Test(test) }
}

/// The rules of claims, limits and requests.
pub(super) const ROWS: &[Guarded] = &[
    guard(
        Test::of_core("command::claim::tests::tasks_with_unmet_capabilities_do_not_block_others"),
        Mutation {
            rule: "a claim takes only tasks that match its capabilities",
            file: "crates/core/src/command/claim.rs",
            from: ".filter(|route| self.capabilities.meets(route)).collect())",
            to: ".collect())",
        },
    ),
    guard(
        Test::of_engine("claims::a_lease_starts_with_its_batch"),
        Mutation {
            rule: "a lease without a payload starts with its batch, too",
            file: "crates/engine/src/reply.rs",
            from: "ClaimedTask { task, input, leased_from: batch_began }\n                };",
            to: "ClaimedTask { task, input, leased_from: Instant::now() }\n                };",
        },
    ),
    guard(
        Test::of_core(
            "command::set_quota::tests::an_admitted_task_does_not_start_above_a_lowered_limit",
        ),
        Mutation {
            rule: "an admitted task does not start above a lowered limit",
            file: "crates/core/src/concurrency_limit.rs",
            from: "self.limit.is_none_or(|limit| running <= limit)",
            to: "true",
        },
    ),
    guard(
        Test::of_core("command::set_quota::tests::a_raised_concurrency_limit_admits_page_by_page"),
        Mutation {
            rule: "a limit with free slots and blocked tasks is due",
            file: "crates/core/src/concurrency_limit.rs",
            from: "true if self.available(now) > 0 => Some(now),",
            to: "true if false => Some(now),",
        },
    ),
    guard(
        Test::of_core("command::admit::tests::reusing_a_key_deletes_its_unswept_response"),
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
        Test::of_core(
            "command::drop_activity::tests::the_workflow_of_a_dropped_step_gets_no_report",
        ),
        Mutation {
            rule: "a dropped activity is not reported to its workflow",
            file: "crates/core/src/command/drop_activity.rs",
            from: "            task.step = None;\n",
            to: "",
        },
    ),
    guard(
        Test::of_core("command::renew_sessions::tests::an_expired_lock_is_not_renewed"),
        Mutation {
            rule: "an expired affinity lock is not renewed",
            file: "crates/core/src/primitive/concurrency_limit.rs",
            from: "let Some(owner) = stored.owner(now).filter(active) else",
            to: "let Some(owner) = stored.owner.as_ref().filter(active) else",
        },
    ),
    guard(
        Test::of_core("command::release_session::tests::a_live_affinity_lock_is_not_released"),
        Mutation {
            rule: "a live affinity lock is not released",
            file: "crates/core/src/command/release_session.rs",
            from: "if self.affinity && limit.owner(world.now()).is_some() {",
            to: "if false {",
        },
    ),
];
