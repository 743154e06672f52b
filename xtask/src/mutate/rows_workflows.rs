//! The rules of workflows.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a turn is rejected under a stale fence",
        file: "crates/core/src/command/commit_turn.rs",
        from: "let (mut task, lease) = require_lease(world, &self.fence)?;",
        to: "let epoch = require_task(world, &self.fence.task)?.epoch;
        let (mut task, lease) = require_lease(world, &Fence { epoch, ..self.fence.clone() })?;",
    },
    Mutation {
        rule: "a turn is rejected unless it is the next one",
        file: "crates/core/src/command/commit_turn.rs",
        from: "if workflow.turns != self.turn || self.next_step < workflow.next_step {",
        to: "if false {",
    },
    Mutation {
        rule: "a turn deletes the messages it consumed",
        file: "crates/core/src/command/commit_turn.rs",
        from: "        self.delete_consumed(world, &task)?;\n",
        to: "",
    },
    Mutation {
        rule: "a cancelled timer is deleted",
        file: "crates/core/src/command/commit_turn.rs",
        from: "delete_message(world, workflow, Message::of_step(*step))",
        to: "Ok(*step).map(drop)",
    },
    Mutation {
        rule: "a turn ends the task of a cancelled step",
        file: "crates/core/src/primitive/step.rs",
        from: "if !is_step || current.lifecycle.ended_at().is_some() {",
        to: "if true {",
    },
    Mutation {
        rule: "continue-as-new carries unread messages over",
        file: "crates/core/src/command/commit_turn.rs",
        from: "workflow.has_carried_messages = carried.is_some();",
        to: "workflow.has_carried_messages = false;",
    },
    Mutation {
        rule: "step numbers continue in the next execution",
        file: "crates/core/src/command/commit_turn.rs",
        from: "workflow.first_step = workflow.next_step;",
        to: "(workflow.first_step, workflow.next_step) = (0, 0);",
    },
    Mutation {
        rule: "the end of a step sends a completion message",
        file: "crates/core/src/primitive/step_completion.rs",
        from: "    send_internal(world, &parent, message)?;\n",
        to: "    drop(message);\n",
    },
    Mutation {
        rule: "the end of a step sends one completion message",
        file: "crates/core/src/primitive/step_completion.rs",
        from: "    send_internal(world, &parent, message)?;\n",
        to: "    send_internal(world, &parent, message.clone())?;
    send_internal(world, &parent, Message { seq: seq + 1, ..message })?;\n",
    },
    Mutation {
        rule: "the end of a step resumes its workflow",
        file: "crates/core/src/primitive/step_completion.rs",
        from: "    resume_if_met(world, &parent)?;\n",
        to: "",
    },
    Mutation {
        rule: "a fired timer is counted as visible",
        file: "crates/core/src/command/sweep/message.rs",
        from: "let hidden = mailbox.hidden.saturating_sub(1);",
        to: "let hidden = mailbox.hidden;",
    },
    Mutation {
        rule: "a timer is delivered only after it has fired",
        file: "crates/engine/src/history.rs",
        from: "messages.retain(|message| message.due_at.is_none());",
        to: "messages.retain(|_| true);",
    },
    Mutation {
        rule: "a workflow gets one cancel request",
        file: "crates/core/src/primitive/step.rs",
        from: "if workflow.cancel_reason.is_some() {",
        to: "if false {",
    },
    Mutation {
        rule: "a prune retains the present execution",
        file: "crates/core/src/command/prune_executions.rs",
        from: "let end = task.execution.saturating_sub(self.keep_last);",
        to: "let end = task.execution.saturating_sub(self.keep_last);
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        world.drop_payloads((0..turns).map(|turn| task.turn_key(turn)));",
    },
    Mutation {
        rule: "a deleted workflow deletes its children",
        file: "crates/engine/src/delete_workflow.rs",
        from: "            self.add_children(&key, &mut tree).await?;\n",
        to: "",
    },
    Mutation {
        rule: "a deleted workflow deletes its properties",
        file: "crates/core/src/primitive/purge.rs",
        from: "world.remove(&WorkflowProperty::row_key(property.key()));",
        to: "let _ = property;",
    },
];
