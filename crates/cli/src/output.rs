//! What commands print: tables for people, JSON for programs, nothing for a reader that has left.

use std::io::{IsTerminal as _, Write as _};

use comfy_table::{Table, presets};
use serde_json::Value;

/// Prints a line. Nobody reading any more, as behind `head`, is no reason to complain.
pub(crate) fn say(line: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        let left = error.kind() == std::io::ErrorKind::BrokenPipe;
        std::process::exit(if left { 0 } else { 1 });
    }
}

pub(crate) fn say_json(value: &Value) {
    say(&value.to_string());
}

/// Prints a table that fits the terminal, or is as wide as it needs to be where there is none.
pub(crate) fn say_table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header).add_rows(rows);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    }
    say(&table.to_string());
}
