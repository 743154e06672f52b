//! The simulation, seed by seed.

mod seeds;
