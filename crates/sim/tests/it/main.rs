#[cfg(unix)]
mod kill;
