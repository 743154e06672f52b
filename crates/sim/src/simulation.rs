use crate::coverage::Coverage;
use crate::driver::Driver;
use crate::generate;
use crate::script::Script;
use crate::shrink::shrink;
use crate::violation::{Breach, Kind, Violation};

/// A seed and its script, ready to run.
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    script: Script,
    in_words: bool,
}

/// The result of a run without a violation.
#[derive(Clone, Debug)]
pub struct Report {
    pub coverage: Coverage,
    /// Deterministic: the same for the same script.
    pub digest: u64,
    pub events: usize,
    /// The trace, line by line, if requested.
    pub trace: Vec<String>,
}

impl Simulation {
    pub fn from_seed(seed: u64) -> Self {
        Self { seed, script: generate::script(seed), in_words: false }
    }

    /// Replaces the seed's own script.
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// Records a trace.
    #[must_use]
    pub fn in_words(mut self) -> Self {
        self.in_words = true;
        self
    }

    /// Plays the script once.
    pub fn run(&self) -> Result<Report, Box<Violation>> {
        self.play().1.map_err(|Breach { kind, what }| {
            let (script, steps) = (self.script.clone(), self.script.steps.len());
            Box::new(Violation { seed: self.seed, kind, what, script, steps })
        })
    }

    /// Plays the script; if it breaks a rule, finds a short script that breaks the same rule.
    pub fn run_and_shrink(&self) -> Result<Report, Box<Violation>> {
        self.run().map_err(|violation| {
            let steps = self.script.steps.len();
            let script = shrink(&self.script, violation.kind, |script| {
                let shorter = Self { script: script.clone(), ..self.clone() };
                shorter.broken()
            });
            let short = Self { script, ..self.clone() };
            match short.run() {
                Err(violation) => Box::new(Violation { steps, ..*violation }),
                Ok(_) => violation,
            }
        })
    }

    fn broken(&self) -> Option<Kind> {
        self.play().1.err().map(|breach| breach.kind)
    }

    /// The trace, line by line, whether or not a rule is broken.
    pub fn trace(&self) -> Vec<String> {
        let described = Self { in_words: true, ..self.clone() };
        described.play().0
    }

    fn play(&self) -> (Vec<String>, Result<Report, Breach>) {
        let mut driver = Driver::new(&self.script, self.in_words);
        driver.play();
        if !driver.is_broken() {
            driver.recover();
        }
        let watch = driver.context.watch.clone();
        drop(driver);
        let mut seen = watch.see();
        let trace = std::mem::replace(&mut seen.trace, crate::trace::Trace::new(false));
        let digest = trace.digest();
        let trace = trace.into_lines();
        let result = match seen.breach() {
            Some(breach) => Err(breach.clone()),
            None => Ok(Report {
                coverage: seen.coverage.clone(),
                digest,
                events: seen.log.len(),
                trace: trace.clone(),
            }),
        };
        (trace, result)
    }
}
