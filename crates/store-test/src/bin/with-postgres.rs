//! `with-postgres [name=value]... -- command [argument]...`: runs a command with a temporary
//! Postgres server. Every `{}` in the command is replaced by the database URL, which is also in the
//! environment variable `WINDLASS_STORE`.

use std::process::{Command, ExitCode};

use windlass_store_test::postgres::Server;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = args.splitn(2, |arg| arg == "--");
    let (settings, command) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some((program, arguments)) = command.split_first() else {
        eprintln!("usage: with-postgres [name=value]... -- command [argument]...");
        return ExitCode::from(2);
    };
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start_with(&[&["max_connections=200"], &settings[..]].concat());
    let url = server.url();
    let arguments = arguments.iter().map(|argument| argument.replace("{}", &url));
    let status = Command::new(program).args(arguments).env("WINDLASS_STORE", &url).status();
    drop(server);
    match status {
        Ok(status) => status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::from(127)
        }
    }
}
