//! The simulated external service: it executes every call it receives, records each one, and does
//! not always answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_engine::{EffectCall, EffectError, ExternalCall, ExternalService, Lookup};
use windlass_store_test::Random;

use crate::coverage::CoverageEvent;
use crate::model::{CallName, Invocation, Right};
use crate::watch::Watch;

/// The executed calls of the service, by request id.
#[derive(Debug)]
pub(crate) struct Bank {
    random: Random,
    records: BTreeMap<String, String>,
    calls: u64,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Fine,
    /// It is executed, and the answer is lost.
    Lost,
    /// It is not executed.
    Rejected,
}

impl Bank {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed.rotate_left(17)), records: BTreeMap::new(), calls: 0 }
    }

    fn outcome(&mut self) -> (Duration, CallOutcome) {
        let ms = *self.random.pick(&[0, 0, 10, 300, 1_200, 2_500]);
        let outcome = *self.random.pick(&[
            CallOutcome::Fine,
            CallOutcome::Fine,
            CallOutcome::Lost,
            CallOutcome::Rejected,
        ]);
        (Duration::from_millis(ms), outcome)
    }
}

/// A caller of the service: one call, on behalf of a task or a request.
#[derive(Debug)]
pub(crate) struct BankClient {
    watch: Watch,
    call: CallName,
    right: Right,
    idempotent_provider: bool,
    /// The service reported that it has no record.
    looked: AtomicBool,
}

impl BankClient {
    pub(crate) fn new(
        watch: &Watch,
        call: CallName,
        right: Right,
        idempotent_provider: bool,
    ) -> Self {
        Self {
            watch: watch.clone(),
            call,
            right,
            idempotent_provider,
            looked: AtomicBool::new(false),
        }
    }

    /// Makes the call, and returns a short reason if there is no answer.
    pub(crate) async fn run(&self, effect: EffectCall) -> Result<(), String> {
        match effect.run(self, &self.call.1).await {
            Ok(_) => Ok(()),
            Err(EffectError::Engine(error)) => Err(error.code().to_owned()),
            Err(EffectError::Ambiguous { .. }) => Err("outcome unknown".to_owned()),
            Err(EffectError::Failed { .. }) => Err("the bank failed".to_owned()),
        }
    }

    fn does(&self, id: &str) -> String {
        let mut seen = self.watch.see();
        let looked = self.looked.load(Ordering::Relaxed);
        let Self { call, right, idempotent_provider, .. } = self;
        seen.note(format_args!("the bank does {call:?} for {right:?}"));
        let made = Invocation {
            call,
            id,
            right: *right,
            looked,
            idempotent_provider: *idempotent_provider,
        };
        let judged = seen.model.makes_call(&made);
        seen.judge(judged);
        seen.count_met();
        seen.bank.calls += 1;
        let text = format!("done {}", seen.bank.calls);
        seen.bank.records.entry(id.to_owned()).or_insert_with(|| text.clone());
        text
    }
}

impl ExternalService for BankClient {
    type Request = String;
    type Response = String;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, _: &String) -> Result<String, String> {
        let (pause, outcome) = {
            let mut seen = self.watch.see();
            let outcome = seen.bank.outcome();
            if seen.recovered { (Duration::ZERO, CallOutcome::Fine) } else { outcome }
        };
        tokio::time::sleep(pause).await;
        if outcome == CallOutcome::Rejected {
            return Err("service closed".to_owned());
        }
        let answer = self.does(&call.request_id);
        tokio::time::sleep(pause / 2).await;
        if outcome == CallOutcome::Lost { Err("connection lost".to_owned()) } else { Ok(answer) }
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<String> {
        tokio::task::yield_now().await;
        let mut seen = self.watch.see();
        seen.model.looks_up(&self.call, &call.request_id);
        if seen.bank.random.percent(25) && !seen.recovered {
            seen.count(CoverageEvent::LookupAmbiguous);
            return Lookup::Ambiguous("503".to_owned());
        }
        match seen.bank.records.get(&call.request_id).cloned() {
            Some(answer) => {
                seen.count(CoverageEvent::LookupFound);
                Lookup::Found(answer)
            }
            None => {
                seen.count(CoverageEvent::LookupNoRecord);
                self.looked.store(true, Ordering::Relaxed);
                Lookup::NotFound
            }
        }
    }
}
