//! Complaints about arguments, each on one line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use windlass::StoreUrl;

use crate::output::unwritten;

/// Whether this is help that was asked for, or that is shown where nothing was.
pub(crate) fn is_help(wrong: &clap::Error) -> bool {
    matches!(
        wrong.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Prints help; says with which exit code to end.
pub(crate) fn show_help(help: &clap::Error) -> ExitCode {
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    let code = match printed {
        Err(error) if !help.use_stderr() => unwritten(&error),
        _ => help.exit_code(),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What is wrong, and where help is.
pub(crate) fn gist(wrong: &clap::Error, command: clap::Command, args: &[String]) -> String {
    let what = negative(wrong, args).unwrap_or_else(|| told(&veiled(wrong)));
    format!("{what} (see {} --help)", path(command, args))
}

/// A complaint without the password of a URL in it.
fn veiled(wrong: &clap::Error) -> String {
    let complaint = wrong.to_string();
    match wrong.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => complaint.replace(value, &StoreUrl::veiled(value)),
        _ => complaint,
    }
}

/// A complaint without what is said after every one of them.
fn told(complaint: &str) -> String {
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    // Such a tip is right for a program that takes any words.
    let lines = lines.take_while(told).filter(|line| !line.starts_with("tip: to pass"));
    let line = lines.collect::<Vec<&str>>().join(" ").replace(" tip: ", "; ");
    line.trim_start_matches("error: ").to_owned()
}

/// A value with a sign is taken for an option: names the one that it was meant for.
fn negative(wrong: &clap::Error, args: &[String]) -> Option<String> {
    let Some(ContextValue::String(found)) = wrong.get(ContextKind::InvalidArg) else { return None };
    let is_number = found.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    let at = args.iter().position(|arg| is_number && arg.starts_with(found.as_str()))?;
    let option = at.checked_sub(1).map(|before| &args[before])?;
    option.starts_with("--").then(|| format!("invalid value '{}' for '{option}'", args[at]))
}

/// The command that was meant, as far as it was understood.
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
