//! Windlass under simulated and real crashes.
