use std::time::Duration;

use clap::Args;
use windlass::StoreUrl;

use crate::doctor::finding::{Finding, Level};
use crate::doctor::{postgres, sqlite};
use crate::duration::parse;
use crate::error::CliError;
use crate::output::{counted, say, say_json, say_table};
use crate::target::Target;

/// Check a store and its database server or file, change nothing, and give advice.
#[derive(Debug, Args)]
#[command(
    after_help = "Every finding is ok, a warning or a problem, with what was found and what \
    to do. The exit code is 1 if there is a problem."
)]
pub(crate) struct Doctor {
    /// How long a transaction in Postgres may be open before it is reported.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse)]
    long: Duration,
    #[command(flatten)]
    target: Target,
}

impl Doctor {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let findings = match &self.target.store {
            StoreUrl::Postgres(url) => postgres::examine(url.expose_secret(), self.long).await,
            StoreUrl::Sqlite(path) => sqlite::examine(path),
            StoreUrl::Memory => Vec::new(),
        };
        let count = |level| findings.iter().filter(|finding| finding.level == level).count() as u64;
        let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
        if self.target.json {
            findings.iter().for_each(|finding| say_json(&finding.json()));
        } else {
            say_table(["check", "level", "found, and what to do"], rows(&findings));
            let (problems, warnings) = (counted(problems, "problem"), counted(warnings, "warning"));
            say(&format!("{problems}, {warnings}."));
        }
        match problems {
            0 => Ok(()),
            problems => Err(CliError::Unhealthy(problems)),
        }
    }
}

fn rows(findings: &[Finding]) -> Vec<[String; 3]> {
    let text = |finding: &Finding| match finding.advice.as_str() {
        "" => finding.found.clone(),
        advice => format!("{}\n-> {advice}", finding.found),
    };
    let row = |it: &Finding| [it.check.to_owned(), it.level.as_str().to_owned(), text(it)];
    findings.iter().map(row).collect()
}
