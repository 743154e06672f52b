//! duroxide on Windlass: its own suite, sample programs, and faults.

mod faults;
mod ground;
mod kill;
mod samples;
mod suite;
