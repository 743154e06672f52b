//! duroxide on Windlass: its own suite, programs of its users, and processes that are killed.

mod ground;
mod kill;
mod mishaps;
mod samples;
mod suite;
