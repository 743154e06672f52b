//! Errors about arguments, each on one line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use windlass::StoreUrl;

use crate::output::unwritten;

/// Whether this is help, requested or shown for missing arguments.
pub(crate) fn is_help(wrong: &clap::Error) -> bool {
    matches!(
        wrong.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Prints help and returns the exit code.
pub(crate) fn show_help(help: &clap::Error) -> ExitCode {
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    let code = match printed {
        Err(error) if !help.use_stderr() => unwritten(&error),
        _ => help.exit_code(),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What is wrong, and which help to read.
pub(crate) fn summary(wrong: &clap::Error, command: clap::Command, args: &[String]) -> String {
    let what = negative(wrong, args).unwrap_or_else(|| message(&redacted(wrong)));
    format!("{what} (see {} --help)", path(command, args))
}

/// The error message with the password of a URL redacted.
fn redacted(wrong: &clap::Error) -> String {
    let complaint = wrong.to_string();
    match wrong.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => complaint.replace(value, &StoreUrl::redacted(value)),
        _ => complaint,
    }
}

/// The error message on one line, without the usage and the hints of clap.
fn message(complaint: &str) -> String {
    let is_message = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    // This tip suits only programs that take arbitrary arguments.
    let lines = lines.take_while(is_message).filter(|line| !line.starts_with("tip: to pass"));
    let line = lines.collect::<Vec<&str>>().join(" ").replace(" tip: ", "; ");
    line.trim_start_matches("error: ").to_owned()
}

/// Clap reads a negative value as an option: names the option that it belongs to.
fn negative(wrong: &clap::Error, args: &[String]) -> Option<String> {
    let Some(ContextValue::String(found)) = wrong.get(ContextKind::InvalidArg) else { return None };
    let is_number = found.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    let at = args.iter().position(|arg| is_number && arg.starts_with(found.as_str()))?;
    let option = at.checked_sub(1).map(|before| &args[before])?;
    option.starts_with("--").then(|| format!("invalid value '{}' for '{option}'", args[at]))
}

/// The subcommand, as far as it was recognized.
fn path(command: clap::Command, args: &[String]) -> String {
    let mut names = vec![command.get_name().to_owned()];
    let mut command = &command;
    for arg in args {
        let Some(sub) = command.find_subcommand(arg) else { break };
        names.push(sub.get_name().to_owned());
        command = sub;
    }
    names.join(" ")
}
