//! Output of commands: tables for people, JSON for programs, nothing to a closed pipe.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};
use windlass::Timestamp;

/// The fields that are timestamps in the JSON of the core.
const TIMESTAMP_FIELDS: &[&str] = &["at", "until", "retry_at", "expires_at"];

/// The minimum width of a prose column when a table is fitted to a terminal.
const PROSE: u16 = 40;
/// The space on both sides of a column.
const PADDING: u16 = 2;

/// Prints a line, or ends the program if stdout cannot be written.
pub(crate) fn say(line: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        std::process::exit(unwritten(&error));
    }
}

/// The exit code if stdout cannot be written. A closed pipe, as behind `head`, is not an error.
pub(crate) fn unwritten(error: &std::io::Error) -> i32 {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return 0;
    }
    let message = format!("standard output cannot be written: {error}");
    complain("output", &message, json_is_requested());
    1
}

pub(crate) fn say_json(value: &Value) {
    say(&value.to_string());
}

/// Prints a table, fitted to the terminal if its names and some prose fit; unwrapped elsewhere.
pub(crate) fn say_table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) {
    let widest = rows.iter().map(|row| row[N - 1].chars().count()).max().unwrap_or(0);
    let narrowest = u16::try_from(widest).unwrap_or(PROSE).min(PROSE) + PADDING;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    table.set_style(TableComponent::HeaderLines, '\u{2500}');
    table.set_style(TableComponent::MiddleHeaderIntersections, '\u{2500}');
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        // Names stay in one piece, so that they can be copied. The last column is prose.
        for column in table.column_iter_mut().take(N - 1) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if let Some(prose) = table.column_mut(N - 1) {
            prose.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest)));
        }
    }
    say(&table.to_string());
}

/// Prints names and values, one pair per line, with the values aligned.
pub(crate) fn say_pairs(pairs: &[(&str, String)]) {
    let widest = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        let indent = format!("\n{:widest$}  ", "");
        say(&format!("{name:widest$}  {}", value.replace('\n', &indent)));
    }
}

/// Makes untrusted text safe to print: it cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && !"\n\t".contains(c) { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}

/// Untrusted text on one line, shortened.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = printable(&words.join(" "));
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// A timestamp for programs.
pub(crate) fn time(at: impl Into<Option<Timestamp>>) -> Value {
    at.into().map_or(Value::Null, |at| json!(at.to_string()))
}

/// JSON of the core, with timestamps for programs.
pub(crate) fn with_times(fields: Map<String, Value>) -> Map<String, Value> {
    let fields = fields.into_iter().map(|(name, value)| {
        let moment = value.as_i64().filter(|_| TIMESTAMP_FIELDS.contains(&name.as_str()));
        let value = moment.map_or(value, |micros| time(Timestamp::from_micros(micros)));
        (name, value)
    });
    fields.collect()
}

/// `1 task`, `2 tasks`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Whether --json is given, before the arguments are parsed: errors about them are JSON too.
/// Arguments after `--` belong to another program.
pub(crate) fn json_is_requested() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Returns when the reader of stdout has closed it, if the system can detect that.
pub(crate) async fn reader_closed() {
    const POLL_INTERVAL: Duration = Duration::from_millis(500);
    let is_there = || {
        let stdout = std::io::stdout();
        // Error events are reported without being requested.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let polled = poll(&mut watched, Some(&Timespec::default()));
        polled.is_err() || !watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    };
    while is_there() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints an error on stderr.
pub(crate) fn complain(code: &str, message: &str, json: bool) {
    say_aside(&complaint(code, message, json));
}

/// An error for people or for programs.
pub(crate) fn complaint(code: &str, message: &str, json: bool) -> String {
    if json {
        json!({ "error": { "code": code, "message": message } }).to_string()
    } else {
        format!("windlass: {message} [{code}]")
    }
}

/// Prints a line on stderr. If that fails, only the exit code reports the error.
pub(crate) fn say_aside(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        for (text, expected) in [
            ("plain", "plain"),
            ("two\nlines\tand", "two lines and"),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("", ""),
        ] {
            assert_eq!(one_line(text), expected, "{text:?}");
        }
        assert_eq!(one_line(&"\u{e9}".repeat(300)).chars().count(), 203);
        assert_eq!(printable("a\n\u{7}b"), "a\n\u{fffd}b");
    }
}
