use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::demo::error::{DemoError, system_error};

/// Prints the demo: lines on stdout, a progress bar on stderr. With --json only the final object.
#[derive(Debug)]
pub(crate) struct Printer {
    bar: ProgressBar,
    quiet: bool,
}

impl Printer {
    pub(crate) fn new(tasks: usize, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(tasks as u64) };
        let style = ProgressStyle::with_template("  [{bar:40}] {pos}/{len} tasks have ended");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, quiet }
    }

    pub(crate) fn print(&self, line: &str) -> Result<(), DemoError> {
        if self.quiet { Ok(()) } else { self.print_always(line) }
    }

    /// Not by [`crate::output::say`]: after a closed pipe the demo must still clean up.
    pub(crate) fn print_always(&self, line: &str) -> Result<(), DemoError> {
        let written = self.bar.suspend(|| writeln!(std::io::stdout(), "{line}"));
        written.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => DemoError::Unread,
            _ => system_error("writing to standard output")(error),
        })
    }

    /// Names on the left, numbers on the right.
    pub(crate) fn table(&self, title: &str, rows: &[(String, usize)]) -> Result<(), DemoError> {
        let names = rows.iter().map(|(name, _)| name.chars().count());
        let widest = names.chain([title.chars().count()]).max().unwrap_or_default();
        self.print(title)?;
        self.print(&"-".repeat(widest + 8))?;
        for (name, count) in rows {
            self.print(&format!("{name:widest$}{count:>8}"))?;
        }
        Ok(())
    }

    pub(crate) fn progress(&self, ended: usize) {
        self.bar.set_position(ended as u64);
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
