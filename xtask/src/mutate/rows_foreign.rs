//! The rules of workflows whose runtime is another.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "what a lost lease had in hand was received in vain",
        file: "crates/core/src/primitive/place.rs",
        from: "    redeliver(world, task, &lease.received, None, true)?;\n",
        to: "",
    },
    Mutation {
        rule: "what is declined counts as it was asked",
        file: "crates/core/src/command/decline.rs",
        from: "let mut task = without_in_flight(&known);",
        to: "let mut task = (*known).clone();",
    },
    Mutation {
        rule: "a lease receives all that is to be seen",
        file: "crates/core/src/primitive/receive.rs",
        from: ".filter(|message| message.is_visible(now)).take(most)",
        to: ".filter(|message| message.is_visible(now)).take(1)",
    },
];
