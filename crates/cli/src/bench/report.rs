use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use windlass_engine::Stats;

use crate::bench::fleet::Reading;
use crate::bench::process::{Memory, memory_mib};
use crate::output::say;

/// The results of a benchmark: names and values, for people or for programs.
#[derive(Debug, Default)]
pub(crate) struct Report(Map<String, Value>);

impl Report {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// A number, rounded to three decimal places.
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        let rounded = (value * 1_000.0).round() / 1_000.0;
        self.set(name, json!(rounded));
    }

    pub(crate) fn maybe(&mut self, name: &str, value: Option<f64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.set(name, Value::Null),
        }
    }

    /// A number that was set; zero if it was not.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or_default()
    }

    /// Nests another report under a name.
    pub(crate) fn within(&mut self, name: &str, other: Report) {
        self.set(name, other.0);
    }

    /// Adds all values of another report.
    pub(crate) fn merge(&mut self, other: Report) {
        self.0.extend(other.0);
    }

    /// The work of a fleet between two readings: commits, batches, and round trips to a server.
    pub(crate) fn work(&mut self, before: &Reading, after: &Reading) {
        self.batches(before.stats, after.stats);
        self.set("commits", after.commits - before.commits);
        if let (Some(before_it), Some(now)) = (before.round_trips, after.round_trips) {
            let batches = (after.stats.batches - before.stats.batches).max(1) as f64;
            let each = |count: u64| count as f64 / batches;
            self.number("statements_per_batch", each(now.statements - before_it.statements));
            self.number("round_trips_per_batch", each(now.round_trips - before_it.round_trips));
        }
    }

    /// The work of the batcher between two readings.
    pub(crate) fn batches(&mut self, before: Stats, after: Stats) {
        let batches = (after.batches - before.batches).max(1) as f64;
        self.number("mean_batch", (after.commands - before.commands) as f64 / batches);
        self.number("rounds_per_batch", (after.rounds - before.rounds) as f64 / batches);
        self.set("conflicts", after.conflicts - before.conflicts);
    }

    pub(crate) fn latencies(&mut self, latencies: &mut [Duration]) {
        self.number("p50_ms", percentile(latencies, 50).as_secs_f64() * 1_000.0);
        self.number("p99_ms", percentile(latencies, 99).as_secs_f64() * 1_000.0);
    }

    /// Resident memory at the start, the peak and the end of an interval.
    pub(crate) fn memory(&mut self, memory: &Memory) {
        let (after, peak) = (memory_mib(), memory.peak());
        self.maybe("memory_mib_before", memory.before);
        // The last sample counts for the peak, too.
        self.maybe("memory_mib_peak", if after > peak { after } else { peak });
        self.maybe("memory_mib_after", after);
    }

    pub(crate) fn print(&self, json: bool) {
        if json {
            say(&Value::Object(self.0.clone()).to_string());
            return;
        }
        let mut lines = Vec::new();
        flatten("", &self.0, &mut lines);
        let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in lines {
            say(&format!("{name:widest$}  {value}"));
        }
    }
}

/// One line per value; nested values are named with their path.
fn flatten(within: &str, fields: &Map<String, Value>, lines: &mut Vec<(String, String)>) {
    for (name, value) in fields {
        let name = format!("{within}{name}");
        match value {
            Value::String(text) => lines.push((name, text.clone())),
            Value::Object(inner) => flatten(&format!("{name}."), inner, lines),
            other => lines.push((name, other.to_string())),
        }
    }
}

pub(crate) fn percentile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    let at = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
    latencies.get(at).copied().unwrap_or_default()
}

/// A progress bar on stderr; hidden for programs.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(what: &'static str, total: u64, json: bool) -> Self {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(total) };
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {per_sec} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self(bar)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut latencies: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut latencies, 50), Duration::from_millis(51));
        assert_eq!(percentile(&mut latencies, 99), Duration::from_millis(100));
        assert_eq!(percentile(&mut [], 50), Duration::ZERO);
    }
}
