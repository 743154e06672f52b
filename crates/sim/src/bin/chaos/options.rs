use std::fmt;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Runs engine processes on one Postgres, injects faults, and judges the result.

usage: chaos [options]
       chaos stopped    stop a process in each phase of its batch while others run

options:
  --tasks N      number of tasks to create and complete (100000)
  --faults N     number of faults to inject (60)
  --seconds N    time in which tasks are created (the duration of the faults)
  --seed N       determines the faults, their times, and the tasks (1)
  --processes N  engine processes (3)
  --workers N    concurrent tasks, over all processes (16)
  --json         print the figures as JSON
";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) tasks: u64,
    pub(crate) faults: u64,
    pub(crate) seconds: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) processes: usize,
    pub(crate) workers: usize,
    pub(crate) json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tasks: 100_000,
            faults: 60,
            seconds: None,
            seed: 1,
            processes: 3,
            workers: 16,
            json: false,
        }
    }
}

impl Options {
    /// None when help is requested.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            let mut number = |least: u64| {
                let value = args.next().ok_or(format!("{arg} needs a number"))?;
                let number = value.parse().ok().filter(|number| *number >= least);
                number.ok_or(format!("{arg} needs a number from {least} on: {value}"))
            };
            match arg.as_str() {
                "--tasks" => options.tasks = number(10)?,
                "--faults" => options.faults = number(0)?,
                "--seconds" => options.seconds = Some(number(1)?),
                "--seed" => options.seed = number(0)?,
                "--processes" => options.processes = at_least_one(number(1)?),
                "--workers" => options.workers = at_least_one(number(1)?),
                "--json" => options.json = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option: {arg}")),
            }
        }
        Ok(Some(options))
    }

    /// The workers of one process.
    pub(crate) fn share(&self, process: usize) -> usize {
        let more = usize::from(process < self.workers % self.processes);
        self.workers / self.processes + more
    }

    /// The time in which tasks are created, given the duration of the faults.
    pub(crate) fn span(&self, faults: Duration) -> Duration {
        self.seconds.map_or(faults, Duration::from_secs)
    }
}

fn at_least_one(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).max(1)
}

/// The options that reproduce the run.
impl fmt::Display for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, faults, seconds, seed, processes, workers, json: _ } = self;
        write!(out, "--tasks {tasks} --faults {faults} --seed {seed} --processes {processes} ")?;
        write!(out, "--workers {workers}")?;
        seconds.map_or(Ok(()), |seconds| write!(out, " --seconds {seconds}"))
    }
}
