//! The simulation, seed by seed, and processes that are killed or stopped for real.

#[cfg(unix)]
mod bank;
#[cfg(unix)]
mod chaos;
#[cfg(unix)]
mod kill;
#[cfg(unix)]
mod requests;
mod seeds;
#[cfg(unix)]
mod workflows;
