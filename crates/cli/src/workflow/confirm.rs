use std::io::{IsTerminal as _, Write as _, stdin, stdout};

use crate::error::CliError;

/// Asks for confirmation of a deletion, if stdin is a terminal.
pub(super) fn confirm(is_confirmed: bool, question: &str) -> Result<(), CliError> {
    if is_confirmed {
        return Ok(());
    }
    if !stdin().is_terminal() {
        return Err(CliError::NotConfirmed);
    }
    let failed = |error| CliError::System { what: "the answer cannot be read", error };
    let mut out = stdout();
    write!(out, "{question} [y/N] ").map_err(failed)?;
    out.flush().map_err(failed)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(failed)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::NotConfirmed),
    }
}
