//! duroxide on Windlass: its own suite, sample programs, and faults.

mod ground;
mod kill;
mod mishaps;
mod samples;
mod suite;
