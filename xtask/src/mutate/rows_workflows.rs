//! The rules of workflows.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a turn is committed under the lease of its worker",
        file: "crates/core/src/command/commit_turn.rs",
        from: "let (mut known, lease) = held(world, &self.fence)?;",
        to: "let epoch = task(world, &self.fence.task)?.epoch;
        let (mut known, lease) = held(world, &Fence { epoch, ..self.fence.clone() })?;",
    },
    Mutation {
        rule: "a turn is the one after the last",
        file: "crates/core/src/command/commit_turn.rs",
        from: "if workflow.turns != self.turn || self.next_step < workflow.next_step {",
        to: "if false {",
    },
    Mutation {
        rule: "what was told is taken",
        file: "crates/core/src/command/commit_turn.rs",
        from: "        self.take(world, &known)?;\n",
        to: "",
    },
    Mutation {
        rule: "a timer that is given up is called off",
        file: "crates/core/src/command/commit_turn.rs",
        from: "forget_message(world, known, Message::of_step(*step)),",
        to: "Ok(*step).map(drop),",
    },
    Mutation {
        rule: "a step that is given up is called off",
        file: "crates/core/src/primitive/step.rs",
        from: "if !is_it || known.lifecycle.ended_at().is_some() {",
        to: "if true {",
    },
    Mutation {
        rule: "unread messages go on into the next execution",
        file: "crates/core/src/command/commit_turn.rs",
        from: "workflow.carries = carried.is_some();",
        to: "workflow.carries = false;",
    },
    Mutation {
        rule: "steps count on in the next execution",
        file: "crates/core/src/command/commit_turn.rs",
        from: "workflow.first_step = workflow.next_step;",
        to: "(workflow.first_step, workflow.next_step) = (0, 0);",
    },
    Mutation {
        rule: "the end of a step is told",
        file: "crates/core/src/primitive/report.rs",
        from: "    post_internal(world, &parent, message)?;\n",
        to: "    drop(message);\n",
    },
    Mutation {
        rule: "the end of a step is told once",
        file: "crates/core/src/primitive/report.rs",
        from: "    post_internal(world, &parent, message)?;\n",
        to: "    post_internal(world, &parent, message.clone())?;
    post_internal(world, &parent, Message { seq: seq + 1, ..message })?;\n",
    },
    Mutation {
        rule: "the end of a step lets its workflow go on",
        file: "crates/core/src/primitive/report.rs",
        from: "    resume_if_met(world, &parent)?;\n",
        to: "",
    },
    Mutation {
        rule: "a timer that has fired is one to be seen",
        file: "crates/core/src/command/sweep/message.rs",
        from: "let hidden = mailbox.hidden.saturating_sub(1);",
        to: "let hidden = mailbox.hidden;",
    },
    Mutation {
        rule: "a timer is told when it has fired",
        file: "crates/engine/src/turns.rs",
        from: "messages.retain(|message| message.due_at.is_none());",
        to: "messages.retain(|_| true);",
    },
    Mutation {
        rule: "a workflow is asked to end once",
        file: "crates/core/src/primitive/step.rs",
        from: "if workflow.cancelling.is_some() {",
        to: "if false {",
    },
    Mutation {
        rule: "the present execution is not pruned",
        file: "crates/core/src/command/prune_executions.rs",
        from: "let end = known.generation.saturating_sub(self.keep_last);",
        to: "let end = known.generation.saturating_sub(self.keep_last);
        let turns = known.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        world.drop_payloads((0..turns).map(|turn| known.turn_key(turn)));",
    },
    Mutation {
        rule: "children are forgotten with their parent",
        file: "crates/engine/src/deletion.rs",
        from: "            self.add_children(&key, &mut tree).await?;\n",
        to: "",
    },
    Mutation {
        rule: "the notes of a workflow are forgotten with it",
        file: "crates/core/src/primitive/purge.rs",
        from: "notes.iter().for_each(|note| world.remove(&WorkflowProperty::row_key(note.key())));",
        to: "",
    },
];
