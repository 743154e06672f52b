//! Real crashes: processes that are killed with signal 9 on one SQLite file, at every step from
//! an accepted command to its answer, at any time, in parallel, and while they open or close the
//! file. After each kill the file must agree with everything acknowledged.
//!
//! The kernel survives its processes: writes torn by a power loss cannot be tested this way.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod history;
mod life;
#[path = "../../src/bin/kill-task/line.rs"]
mod line;
mod output;
mod rules;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::{Change, FailureClass};
use windlass_store_test::Random;
use windlass_store_test::differential::seeds;

use life::{Life, Orders};
use output::ProcessOutput;
use rules::{Moment, broken};
use view::View;

/// The steps at which a process is killed, each at one of its first occurrences.
const STEPS: &[(&str, u64)] = &[
    ("create.asked", 12),
    ("create.answered", 12),
    ("settle.asked", 12),
    ("settle.answered", 12),
    ("claim.answered", 6),
    ("begin.answered", 6),
    ("engine.accepted", 40),
    ("sqlite.begin", 40),
    ("engine.begun", 40),
    ("sqlite.load", 40),
    ("engine.loaded", 40),
    ("engine.decided", 30),
    ("sqlite.commit.before", 30),
    ("sqlite.commit.after", 30),
    ("engine.committed", 30),
    ("engine.claimed", 6),
    ("worker.claimed", 6),
    ("handler.called", 6),
    ("handler.began", 6),
    ("handler.done", 6),
    ("worker.settled", 6),
    ("sqlite.open", 1),
    ("sqlite.reopen", 20),
    ("sqlite.reopened.lost", 20),
    ("sqlite.reopened.kept", 20),
];

/// The steps of a file that is created, in order.
const OPENING: &[&str] = &["sqlite.open", "sqlite.migrate.before", "sqlite.migrate.after"];

/// The steps of a process that is asked to close.
const CLOSING: &[&str] = &["engine.closing", "engine.closed"];

/// Events that must have happened, or the kills have proved little.
const OBSERVATIONS: &[&str] =
    &["asked again", "answered again", "lease expired", "last attempt lost"];

/// The number of kills at no particular step, and of pairs of processes, in each run.
const ANY_ANSWER: usize = 4;
const ANY_MOMENT: usize = 4;
const PAIRS: usize = 3;

const CREATORS: u32 = 3;
const NO_STEP: &str = "-";

/// How a process ends.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// At a step.
    At(&'static str, u64),
    /// At a step while it closes, which it is asked to after this many answers.
    Closing(&'static str, u64),
    /// After this many answers, wherever it is.
    AfterAnswers(u64),
    /// This long after its start: while it opens the file, repeats commands, or works.
    AfterMs(u64),
    /// At a step beside a second process, which continues and is killed after more answers.
    Beside(&'static str, u64, u64),
}

/// One file, from the process that creates it to the last one, which finds all tasks ended.
struct Story {
    seed: u64,
    random: Random,
    file: PathBuf,
    output: ProcessOutput,
    kills: usize,
    hits: BTreeMap<&'static str, usize>,
}

#[test]
fn kills_lose_nothing() {
    let mut hits = BTreeMap::<&str, usize>::new();
    let mut kills = 0;
    let seeds = seeds(0..3, 200);
    for seed in seeds.clone() {
        let story = Story::play(seed);
        kills += story.kills;
        for (step, count) in story.hits {
            *hits.entry(step).or_default() += count;
        }
    }
    let stories = seeds.count();
    eprintln!("{kills} kills in {stories} files: {hits:#?}");
    let steps = STEPS.iter().map(|(step, _)| step).chain(OPENING).chain(CLOSING);
    let missed: Vec<_> = steps.filter(|step| hits.get(*step) < Some(&stories)).collect();
    assert!(missed.is_empty(), "not killed in every file at {missed:?}");
    let missed: Vec<_> =
        OBSERVATIONS.iter().filter(|behavior| hits.get(*behavior) < Some(&1)).collect();
    assert!(missed.is_empty(), "these events never happened: {missed:?}");
}

impl Story {
    /// Panics with the failure, its place, and how to reproduce it.
    fn play(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("windlass.db");
        let (random, output) = (Random::new(seed), ProcessOutput::default());
        let mut story = Self { seed, random, file, output, kills: 0, hits: BTreeMap::new() };
        for kill in story.plan() {
            let said = story.kill(kill);
            story.must(&folder, &kill, said);
        }
        let ended = story.finish();
        story.must(&folder, &"the end", ended);
        story
    }

    fn must(&self, folder: &tempfile::TempDir, at: &dyn fmt::Debug, done: Result<(), String>) {
        let Err(what) = done else { return };
        let saved = folder.path().with_extension("kept");
        std::fs::rename(folder.path(), &saved).unwrap();
        panic!(
            "seed {}, kill {}, {at:?}: {what}\n\
            the files are in {}\n\
            reproduce: WINDLASS_SEED={} cargo test -p windlass-sim --test it kill",
            self.seed,
            self.kills,
            saved.display(),
            self.seed,
        );
    }

    /// The kills of this run: first those while the file is created, then the others in random
    /// order.
    fn plan(&mut self) -> Vec<Kill> {
        let mut later = Vec::new();
        for &(step, most) in STEPS {
            later.push(Kill::At(step, self.one_to(most)));
        }
        for step in CLOSING {
            later.push(Kill::Closing(step, self.one_to(20)));
        }
        for _ in 0..ANY_ANSWER {
            later.push(Kill::AfterAnswers(self.one_to(60)));
        }
        for _ in 0..ANY_MOMENT {
            later.push(Kill::AfterMs(self.one_to(50)));
        }
        for _ in 0..PAIRS {
            let &(step, most) = self.random.pick(STEPS);
            later.push(Kill::Beside(step, self.one_to(most), self.one_to(20)));
        }
        let mut plan: Vec<Kill> = OPENING.iter().map(|step| Kill::At(step, 1)).collect();
        while !later.is_empty() {
            let at = self.random.below(later.len() as u64);
            plan.push(later.swap_remove(usize::try_from(at).unwrap()));
        }
        plan
    }

    fn one_to(&mut self, most: u64) -> u64 {
        1 + self.random.below(most)
    }

    fn kill(&mut self, kill: Kill) -> Result<(), String> {
        match kill {
            Kill::At(step, nth) => {
                let mut life = self.start(step, nth);
                life.read_until_at(step)?;
                self.killed(life, Some(step))?;
            }
            Kill::Closing(step, answers) => {
                let mut life = self.start(step, 1);
                life.read_answers(answers)?;
                life.tell("close");
                life.read_until_at(step)?;
                self.killed(life, Some(step))?;
            }
            Kill::AfterAnswers(answers) => {
                let mut life = self.start(NO_STEP, 1);
                life.read_answers(answers)?;
                self.killed(life, None)?;
            }
            Kill::AfterMs(ms) => {
                let life = self.start(NO_STEP, 1);
                std::thread::sleep(Duration::from_millis(ms));
                self.killed(life, None)?;
            }
            Kill::Beside(step, nth, answers) => {
                let mut other = self.start(NO_STEP, 1);
                other.read_answers(1)?;
                let mut life = Life::start(&self.file, &self.orders("b", step, nth), &[]);
                life.read_until_at(step)?;
                self.killed(life, Some(step))?;
                self.output.lives.push(other.said.clone());
                self.check(&self.file, Moment::Work)?;
                self.output.lives.pop();
                // The killed process holds nothing that the other one waits for.
                other.read_answers(answers)?;
                self.killed(other, None)?;
            }
        }
        self.check_copy()
    }

    fn orders(&self, suffix: &str, step: &'static str, nth: u64) -> Orders {
        let name = format!("{}{suffix}", self.kills);
        let seed = self.seed.wrapping_mul(1_000) + self.kills as u64;
        Orders { name, seed, creators: CREATORS, step, nth }
    }

    /// Starts the next process. Some processes repeat the unanswered commands first.
    fn start(&mut self, step: &'static str, nth: u64) -> Life {
        let again = if self.random.percent(40) { self.output.again() } else { Vec::new() };
        Life::start(&self.file, &self.orders("a", step, nth), &again)
    }

    fn killed(&mut self, life: Life, step: Option<&'static str>) -> Result<(), String> {
        self.output.lives.push(life.kill()?);
        self.kills += 1;
        if let Some(step) = step {
            *self.hits.entry(step).or_default() += 1;
        }
        Ok(())
    }

    /// Checks a copy, so that the next process finds the state that the last one left.
    fn check_copy(&self) -> Result<(), String> {
        let copy = self.file.with_extension("copy");
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&copy, suffix));
        }
        for suffix in ["", "-wal"] {
            let from = beside(&self.file, suffix);
            if from.exists() {
                std::fs::copy(from, beside(&copy, suffix)).unwrap();
            }
        }
        self.check(&copy, Moment::Rest).map(drop)
    }

    fn check(&self, file: &Path, moment: Moment) -> Result<View, String> {
        let view = View::read(file).map_err(|error| format!("reading the file failed: {error}"))?;
        let broken = broken(&self.output, &view, moment);
        if broken.is_empty() { Ok(view) } else { Err(broken.join("\n")) }
    }

    /// A last process, which is not killed, ends all tasks.
    fn finish(&mut self) -> Result<(), String> {
        let orders = Orders { creators: 0, ..self.orders("z", NO_STEP, 1) };
        let life = Life::start(&self.file, &orders, &self.output.again());
        self.output.lives.push(life.end()?);
        let view = self.check(&self.file, Moment::End)?;
        let counts = [
            ("asked again", self.output.requested_again()),
            ("answered again", self.output.answered_again()),
            ("rejected", self.output.rejected()),
            ("lease expired", view.count(|it| matches!(it, Change::LeaseLost { .. }))),
            ("last attempt lost", view.count(is_last_attempt_lost)),
        ];
        self.hits.extend(counts);
        Ok(())
    }
}

fn is_last_attempt_lost(change: &Change) -> bool {
    matches!(change, Change::Failed { class: FailureClass::Crash, .. })
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
