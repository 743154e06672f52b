//! What commands print: tables for people, JSON for programs, nothing for a reader that has left.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};
use windlass::Timestamp;

/// The fields that are moments in what the core writes.
const MOMENTS: &[&str] = &["at", "until", "opens_at", "expires_at"];

/// Prose is not made narrower than this to fit a terminal.
const PROSE: u16 = 40;
/// The space on both sides of a column.
const PADDING: u16 = 2;

/// Prints a line, or ends the program where that cannot be done.
pub(crate) fn say(line: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        std::process::exit(unwritten(&error));
    }
}

/// The exit code where standard output could not be written. Nobody reading any more, as behind
/// `head`, is no reason to complain.
pub(crate) fn unwritten(error: &std::io::Error) -> i32 {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return 0;
    }
    let message = format!("standard output cannot be written: {error}");
    complain("output", &message, json_is_asked_for());
    1
}

pub(crate) fn say_json(value: &Value) {
    say(&value.to_string());
}

/// Prints a table that fits the terminal if names and some prose do, and is whole elsewhere.
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

/// Prints names and values, one a line, the values below each other.
pub(crate) fn say_pairs(pairs: &[(&str, String)]) {
    let widest = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        let indent = format!("\n{:widest$}  ", "");
        say(&format!("{name:widest$}  {}", value.replace('\n', &indent)));
    }
}

/// Text that others wrote, safe to print: a terminal takes no orders from it.
pub(crate) fn printable(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && !"\n\t".contains(c) { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}

/// Such text on one line, and not too much of it.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = printable(&words.join(" "));
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// A moment as programs get it.
pub(crate) fn time(at: impl Into<Option<Timestamp>>) -> Value {
    at.into().map_or(Value::Null, |at| json!(at.to_string()))
}

/// What the core writes of itself, with moments as programs get them.
pub(crate) fn with_times(fields: Map<String, Value>) -> Map<String, Value> {
    let told = fields.into_iter().map(|(name, value)| {
        let moment = value.as_i64().filter(|_| MOMENTS.contains(&name.as_str()));
        let value = moment.map_or(value, |micros| time(Timestamp::from_micros(micros)));
        (name, value)
    });
    told.collect()
}

/// `1 task`, `2 tasks`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Whether JSON is asked for, known before the arguments are understood: complaints about them
/// have that form too. What follows `--` is not for this program.
pub(crate) fn json_is_asked_for() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Ends when nobody reads what is printed any more, as far as the system can say.
pub(crate) async fn reader_left() {
    const PAUSE: Duration = Duration::from_millis(500);
    let is_there = || {
        let stdout = std::io::stdout();
        // Errors are told without being asked for.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let asked = poll(&mut watched, Some(&Timespec::default()));
        asked.is_err() || !watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    };
    while is_there() {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Complains on standard error.
pub(crate) fn complain(code: &str, message: &str, json: bool) {
    say_aside(&complaint(code, message, json));
}

/// A complaint, as people or programs get it.
pub(crate) fn complaint(code: &str, message: &str, json: bool) -> String {
    if json {
        json!({ "error": { "code": code, "message": message } }).to_string()
    } else {
        format!("windlass: {message} [{code}]")
    }
}

/// Prints a line on standard error. Where that cannot be done, only the exit code tells.
pub(crate) fn say_aside(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_gives_no_orders() {
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
