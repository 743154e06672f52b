//! duroxide's own suite on Windlass.

mod ground;
mod suite;
