//! The rules of workflows whose runtime is another.

use crate::bite::Bite;

pub(crate) const BITES: &[Bite] = &[
    Bite {
        rule: "what a lost lease had in hand was received in vain",
        file: "crates/core/src/primitive/place.rs",
        from: "    put_back(world, task, &lease.received, None, true)?;\n",
        to: "",
    },
    Bite {
        rule: "what is declined counts as it was asked",
        file: "crates/core/src/command/decline.rs",
        from: "let mut task = empty_handed(&known);",
        to: "let mut task = (*known).clone();",
    },
    Bite {
        rule: "a lease receives all that is to be seen",
        file: "crates/core/src/primitive/receive.rs",
        from: ".filter(|message| message.is_visible(now)).take(most)",
        to: ".filter(|message| message.is_visible(now)).take(1)",
    },
    Bite {
        rule: "nobody is told of a step that is discarded",
        file: "crates/core/src/command/discard.rs",
        from: "            task.step = None;\n",
        to: "",
    },
    Bite {
        rule: "a lock that has run out is not renewed",
        file: "crates/core/src/primitive/gate.rs",
        from: "let Some(owner) = known.owner(now).filter(active) else",
        to: "let Some(owner) = known.owner.as_ref().filter(active) else",
    },
    Bite {
        rule: "nobody takes a lock that lasts",
        file: "crates/core/src/command/release_session.rs",
        from: "if self.affinity && gate.owner(world.now()).is_some() {",
        to: "if false {",
    },
];
