use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use windlass_core::command::Admit;
use windlass_core::{ChangeSet, Command, Fence, LogEvent, Outcome, RequestKey, Timestamp, Token};
use windlass_engine::Error;
use windlass_store::MemoryStore;

use crate::bank::Bank;
use crate::client::{brief, brief_result};
use crate::coverage::{Coverage, CoverageEvent};
use crate::external_runtime::is_external_runtime;
use crate::model::{Fenced, Model, Since, Submission};
use crate::script::Script;
use crate::trace::Trace;
use crate::violation::{Breach, Kind};
use crate::workflow::is_of_workflows;

/// Everything observed in a run, shared by all observers.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) model: Model,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    /// Leases that a client received, the latest last.
    pub(crate) leases: Vec<Fence>,
    /// Workflow workers that crashed.
    pub(crate) crashed: BTreeSet<String>,
    /// Tokens that a client received, the latest last.
    pub(crate) tokens: Vec<Token>,
    /// Admitted requests and their owners, the latest last.
    pub(crate) owned_requests: Vec<(RequestKey, String)>,
    /// The external service of handlers.
    pub(crate) bank: Bank,
    /// The log events that a reader has read.
    pub(crate) shown: Vec<LogEvent>,
    /// The log itself.
    pub(crate) log: Vec<LogEvent>,
    /// Nodes that were asked to drain, by number and boot.
    pub(crate) draining: BTreeSet<(usize, u64)>,
    /// Running handlers, by their leases.
    pub(crate) running: BTreeSet<Fenced>,
    /// Set when all faults end: handlers succeed from then on.
    pub(crate) recovered: bool,
    breach: Option<Breach>,
}

impl Watch {
    pub(crate) fn new(script: &Script, in_words: bool) -> Self {
        Self(Arc::new(Mutex::new(Seen {
            model: Model::new(script.tasks.clone(), script.workflows.clone()),
            trace: Trace::new(in_words),
            coverage: Coverage::default(),
            leases: Vec::new(),
            crashed: BTreeSet::new(),
            tokens: Vec::new(),
            owned_requests: Vec::new(),
            bank: Bank::new(script.seed),
            shown: Vec::new(),
            log: Vec::new(),
            draining: BTreeSet::new(),
            running: BTreeSet::new(),
            recovered: false,
            breach: None,
        })))
    }

    pub(crate) fn see(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(|broken| {
            let mut seen = broken.into_inner();
            let what = "the model panicked".to_owned();
            seen.judge(Err(Breach { kind: Kind::Engine, what }));
            seen
        })
    }
}

impl Seen {
    pub(crate) fn note(&mut self, line: fmt::Arguments<'_>) {
        self.trace.note(line);
    }

    pub(crate) fn count(&mut self, event: CoverageEvent) {
        self.coverage.count(event);
    }

    /// Stores the first broken rule.
    pub(crate) fn judge(&mut self, judged: Result<(), Breach>) {
        if let Err(breach) = judged
            && self.breach.is_none()
        {
            self.trace.note(format_args!("BROKEN {:?}: {}", breach.kind, breach.what));
            self.breach = Some(breach);
        }
    }

    pub(crate) fn breach(&self) -> Option<&Breach> {
        self.breach.as_ref()
    }

    pub(crate) fn committed(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
        view: (u64, Timestamp),
        worker: &str,
    ) {
        if self.breach.is_some() {
            return;
        }
        let before = self.model.full_lanes();
        let Self { model, trace, log, coverage, .. } = self;
        let mut tell = |entry: &LogEvent| {
            let task = entry.task.as_ref().map_or("-", |task| task.as_str());
            let LogEvent { seq, at, lane, body, .. } = entry;
            trace.note(format_args!("log {seq} {at} {lane} {task} {body}"));
            coverage.logged(entry);
            log.push(entry.clone());
        };
        let judged = model.observe(memory, changes, view, &mut tell);
        let judged = judged.and_then(|()| model.observe_workflows(memory, changes, view.1, worker));
        self.judge(judged);
        for _ in 0..self.model.take_deaths() {
            self.count(CoverageEvent::WorkerDied);
        }
        for _ in 0..self.model.take_unheld() {
            self.count(CoverageEvent::LeaseNotHeld);
        }
        self.count_met();
        if self.model.full_lanes() > before {
            self.count(CoverageEvent::LaneFull);
        }
    }

    /// Records that a workflow's code begins, perhaps replaying.
    pub(crate) fn workflow_begins(&mut self, id: &str, is_replaying: bool) {
        self.note(format_args!("workflow {id} begins, replaying {is_replaying}"));
        let others = self.model.workflows.comes_to_memory(id);
        if !is_replaying {
            return;
        }
        self.count(CoverageEvent::WorkflowReplayed);
        if others > 0 {
            self.count(CoverageEvent::InMemoryTwice);
        }
        let had = self.model.workflows.in_memory_of(&id.into());
        if had.is_some_and(|worker| self.crashed.contains(worker.as_str())) {
            self.count(CoverageEvent::ReplayedAfterCrash);
        }
    }

    pub(crate) fn count_met(&mut self) {
        for event in self.model.take_met() {
            self.count(event);
        }
    }

    pub(crate) fn submitted(&mut self, call: usize, node: usize, command: &Command) {
        self.note(format_args!("ask {call} of node {node}: {}", brief(command)));
        if is_external_runtime(command) {
            self.model.external_runtime.submitted(command);
        } else if !is_of_workflows(command) {
            self.model.submitted(command);
        }
    }

    pub(crate) fn answered(
        &mut self,
        call: usize,
        command: &Command,
        since: Since,
        answer: &Result<Outcome, Error>,
    ) {
        self.note(format_args!("answer {call}, {}: {}", command.name(), brief_result(answer)));
        if self.breach.is_some() {
            return;
        }
        self.coverage.answered(command, answer);
        let Since { seq, at, moment } = since;
        if is_of_workflows(command) {
            let judged = self.model.workflows.answered(command, moment, answer);
            self.judge(judged);
            return;
        }
        if is_external_runtime(command) {
            let judged = self.model.external_runtime.answered(command, answer);
            self.judge(judged);
            return;
        }
        let submission = Submission { command, seq, at, moment };
        if self.model.was_settled(&submission) && answer.is_ok() {
            self.coverage.count(CoverageEvent::SettleRepeated);
        }
        let judged = self.model.answered(&submission, answer);
        self.judge(judged);
        self.count_met();
        match answer {
            Ok(Outcome::Claimed(tasks)) => {
                self.leases.extend(tasks.iter().map(|task| task.fence()));
            }
            Ok(Outcome::Admitted { .. }) => {
                if let Command::Admit(Admit { request, owner, .. }) = command {
                    self.owned_requests.push((request.clone(), owner.clone()));
                }
            }
            Ok(Outcome::WaitpointCreated(made)) => self.tokens.push(made.token.clone()),
            Ok(Outcome::Suspended { waitpoints }) => {
                self.tokens.extend(waitpoints.iter().map(|made| made.token.clone()));
            }
            _ => {}
        }
    }

    /// Checks the log events that a reader has read.
    pub(crate) fn read(&mut self, entries: Vec<LogEvent>) {
        for entry in entries {
            let next = self.log.get(self.shown.len());
            if next != Some(&entry) {
                let what = format!("read {entry:?}, but {next:?} is next");
                self.judge(Err(Breach { kind: Kind::Reader, what }));
            }
            self.shown.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_an_observer_is_a_breach() {
        let watch = Watch::new(&crate::generate::script(0), false);
        assert_eq!(watch.see().breach(), None);
        let other = watch.clone();
        let seeing = std::thread::spawn(move || {
            let _seen = other.see();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(seeing.join().is_err());
        let kind = watch.see().breach().map(|breach| breach.kind);
        assert_eq!(kind, Some(Kind::Engine));
    }
}
