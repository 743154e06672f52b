//! The worker as its users see it.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod children;
mod drain;
mod end;
mod lease;
mod outcome;
mod payload;
mod registry;
mod sessions;
mod settled;
mod slots;
mod stage;
mod waiting;
