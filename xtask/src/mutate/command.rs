use super::guarded::Guarded;
use super::jobs::run_jobs;
use super::simulator::Seeds;
use super::{
    rows_core, rows_external_runtime, rows_postgres, rows_requests, rows_tests, rows_workflows,
};
use crate::Failure;
use crate::options::Options;
use crate::proof::Request;

/// A row counts as noticed after this many seeds have noticed it.
const STOP_AFTER: u64 = 3;

/// Runs `cargo xtask mutate` with these arguments.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let (rows, args) = match args.split_first() {
        Some((word, args)) if word == "workflows" => (workflows(), args),
        Some((word, args)) if word == "external-runtime" => (external_runtime(), args),
        _ => (all(), args),
    };
    let values = [&Request::VALUES[..], &["--rule", "--seeds", "--stop-after"]].concat();
    let flags = [&Request::FLAGS[..], &["--every-seed", "--postgres"]].concat();
    let options = Options::parse_with_flags(args, &values, &flags)?;
    let stop_after = options.number("--stop-after", STOP_AFTER)?;
    let seeds = Seeds {
        most: options.number("--seeds", 1_000)?,
        stop_after: if options.has("--every-seed") { None } else { Some(stop_after) },
    };
    let mut rows = if options.has("--postgres") { rows_postgres::ROWS.to_vec() } else { rows };
    if let Some(text) = options.text("--rule") {
        rows.retain(|row| row.mutation.rule.contains(text));
        if rows.is_empty() {
            return Err(Failure::Usage(format!("no rule contains {text:?}")));
        }
    }
    Ok(run_jobs(&rows, seeds, &Request::read(&options)?)?)
}

/// The rows that need no server.
fn all() -> Vec<Guarded> {
    let tasks = rows_core::ROWS.iter().chain(rows_requests::ROWS).map(Guarded::by_simulator);
    tasks
        .chain(rows_tests::ROWS.iter().copied())
        .chain(workflows())
        .chain(external_runtime())
        .collect()
}

fn workflows() -> Vec<Guarded> {
    rows_workflows::ROWS.iter().map(Guarded::by_simulator).collect()
}

fn external_runtime() -> Vec<Guarded> {
    let simulated = rows_external_runtime::ROWS.iter().map(Guarded::by_simulator);
    simulated.chain(rows_tests::EXTERNAL_RUNTIME.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mutate::guarded::{NoticedBy, Test, TestTarget};
    use crate::tree;

    #[test]
    fn every_patch_fits_and_every_row_has_its_key() {
        let (mut keys, mut unfit) = (BTreeSet::new(), Vec::new());
        for Guarded { mutation, noticed_by } in
            all().into_iter().chain(rows_postgres::ROWS.to_vec())
        {
            let text = tree::read(mutation.file).unwrap();
            match mutation.patch(&text) {
                Ok(patched) => assert_ne!(patched, text, "{}", mutation.rule),
                Err(why) => unfit.push(why),
            }
            let how = match noticed_by {
                NoticedBy::Simulator => String::new(),
                NoticedBy::Test(test) => test.to_string(),
            };
            assert!(keys.insert(mutation.key(how)), "{}", mutation.rule);
        }
        assert!(unfit.is_empty(), "{unfit:#?}");
    }

    #[test]
    fn every_guarding_test_exists() {
        let mut count = 0;
        for row in all().into_iter().chain(rows_postgres::ROWS.to_vec()) {
            if let NoticedBy::Test(test) = row.noticed_by {
                assert!(tree::read(&file(&test)).unwrap().contains(&header(&test)), "{test}");
                count += 1;
            }
        }
        assert!(count > 6);
    }

    /// The file of a test, by the names of its modules.
    fn file(test: &Test) -> String {
        let folder = format!("crates/{}", test.package.strip_prefix("windlass-").unwrap());
        let (modules, _) = test.name.rsplit_once("::").unwrap();
        match test.target {
            TestTarget::Unit => {
                let module = modules.strip_suffix("::tests").unwrap();
                format!("{folder}/src/{}.rs", module.replace("::", "/"))
            }
            TestTarget::Integration => {
                format!("{folder}/tests/it/{}.rs", modules.replace("::", "/"))
            }
        }
    }

    fn header(test: &Test) -> String {
        format!("fn {}()", test.name.rsplit("::").next().unwrap())
    }
}
