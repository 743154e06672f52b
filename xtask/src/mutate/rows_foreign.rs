//! The rules of workflows of an external runtime.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a lost lease redelivers its messages and raises their delivery count",
        file: "crates/core/src/primitive/transition.rs",
        from: "    redeliver(world, task, &lease.in_flight, None, true)?;\n",
        to: "",
    },
    Mutation {
        rule: "an abandoned turn counts deliveries only if it asks for that",
        file: "crates/core/src/command/abandon_turn.rs",
        from: "let mut task = without_in_flight(&known);",
        to: "let mut task = (*known).clone();",
    },
    Mutation {
        rule: "a lease receives all visible messages",
        file: "crates/core/src/primitive/receive.rs",
        from: ".filter(|message| message.is_visible(now)).take(most)",
        to: ".filter(|message| message.is_visible(now)).take(1)",
    },
];
