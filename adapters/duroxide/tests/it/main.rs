//! duroxide on Windlass: its own suite, sample programs, and faults.

mod faults;
mod kill;
mod samples;
mod suite;
mod test_database;
