//! Runs seeds of the simulation and reports the results.

#![allow(clippy::print_stdout, reason = "a program for a terminal: printing is what it does")]

use std::process::ExitCode;
use std::time::Instant;

use windlass_sim::{Simulation, Until, run_seeds};

const HELP: &str = "\
Runs seeds of the simulation.

usage: windlass-sim [options]

options:
  --seeds N       how many seeds (200)
  --start N       the first of them (0)
  --count         continue after violations, and count them
  --stop-after N  with --count: stop after N violations
  --seed N        run only this one: print a trace, and shrink the script of a violation
  --coverage      print how often each event happened
";

#[derive(Debug, Default)]
struct Options {
    seeds: Option<u64>,
    start: u64,
    stop_after: Option<u64>,
    seed: Option<u64>,
    count: bool,
    coverage: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("windlass-sim: {problem} (see --help)");
            return ExitCode::from(2);
        }
    };
    let passed = match options.seed {
        Some(seed) => tell(seed),
        None => run(&options),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or(format!("{arg} needs a number"))?;
            value.parse().map_err(|_| format!("{arg} needs a number: {value}"))
        };
        match arg.as_str() {
            "--seeds" => options.seeds = Some(number()?),
            "--start" => options.start = number()?,
            "--stop-after" => options.stop_after = Some(number()?),
            "--seed" => options.seed = Some(number()?),
            "--count" => options.count = true,
            "--coverage" => options.coverage = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option: {arg}")),
        }
    }
    Ok(Some(options))
}

fn tell(seed: u64) -> bool {
    let simulation = Simulation::from_seed(seed);
    match simulation.run_and_shrink() {
        Ok(report) => {
            simulation.trace().iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: {} events, digest {:016x}", report.events, report.digest);
            true
        }
        Err(violation) => {
            let short = Simulation::from_seed(seed).script(violation.script.clone());
            short.trace().iter().for_each(|line| println!("{line}"));
            println!("{violation}");
            false
        }
    }
}

fn run(options: &Options) -> bool {
    let until = match options.stop_after {
        _ if !options.count => Until::Violations(1),
        Some(violations) => Until::Violations(violations),
        None => Until::End,
    };
    let begun = Instant::now();
    let end = options.start.saturating_add(options.seeds.unwrap_or(200));
    let tally = run_seeds(options.start..end, until);
    if options.coverage {
        print!("{}", tally.coverage);
    }
    print!("{tally}");
    println!("seconds {:.1}", begun.elapsed().as_secs_f64());
    if let Some(&seed) = tally.broken.keys().next().filter(|_| !options.count)
        && let Err(violation) = Simulation::from_seed(seed).run_and_shrink()
    {
        println!("{violation}");
    }
    tally.broken.is_empty() || options.count
}
