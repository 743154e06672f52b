use super::simulator::{self, Seeds};
use super::{postgres, rows_core, rows_external_runtime, rows_requests, rows_workflows};
use crate::Failure;
use crate::options::Options;
use crate::proof::Request;

/// A row counts as noticed after this many seeds have noticed it.
const STOP_AFTER: u64 = 3;

/// Runs `cargo xtask mutate` with these arguments.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    if args.iter().any(|arg| arg == "--postgres") {
        let flags = [&Request::FLAGS[..], &["--postgres"]].concat();
        let options = Options::parse_with_flags(args, &Request::VALUES, &flags)?;
        return Ok(postgres::run(&Request::read(&options)?)?);
    }
    let workflows = || rows_workflows::ROWS.iter();
    let (rows, args) = match args.split_first() {
        Some((word, args)) if word == "workflows" => (workflows().collect(), args),
        Some((word, args)) if word == "external-runtime" => {
            (rows_external_runtime::ROWS.iter().collect(), args)
        }
        _ => {
            let tasks = rows_core::ROWS.iter().chain(rows_requests::ROWS);
            (tasks.chain(workflows()).chain(rows_external_runtime::ROWS).collect(), args)
        }
    };
    let values = [&Request::VALUES[..], &["--rule", "--seeds", "--stop-after"]].concat();
    let flags = [&Request::FLAGS[..], &["--every-seed"]].concat();
    let options = Options::parse_with_flags(args, &values, &flags)?;
    let stop_after = options.number("--stop-after", STOP_AFTER)?;
    let seeds = Seeds {
        most: options.number("--seeds", 1_000)?,
        stop_after: if options.has("--every-seed") { None } else { Some(stop_after) },
    };
    let mut rows: Vec<&super::mutation::Mutation> = rows;
    if let Some(text) = options.text("--rule") {
        rows.retain(|row| row.rule.contains(text));
        if rows.is_empty() {
            return Err(Failure::Usage(format!("no rule contains {text:?}")));
        }
    }
    Ok(simulator::run(&rows, seeds, &Request::read(&options)?)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tree;

    #[test]
    fn every_patch_fits_and_every_row_has_its_key() {
        let tasks = rows_core::ROWS.iter().chain(rows_requests::ROWS);
        let rows = tasks.chain(rows_workflows::ROWS).chain(rows_external_runtime::ROWS);
        let mut keys = BTreeSet::new();
        for row in rows {
            let text = tree::read(row.file).unwrap();
            assert_ne!(row.patch(&text).unwrap(), text);
            assert!(keys.insert(row.key("")), "{}", row.rule);
        }
    }
}
