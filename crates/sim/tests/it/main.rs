//! The simulation, seed by seed, and processes that are killed or stopped for real.

#[cfg(unix)]
mod chaos;
#[cfg(unix)]
mod kill;
#[cfg(unix)]
mod requests;
mod seeds;
