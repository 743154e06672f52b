//! The worker as its users see it.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod children;
mod drain;
mod end;
mod lease;
mod outage;
mod outcome;
mod payload;
mod registry;
mod sessions;
mod settled;
mod slots;
mod stage;
mod suspend;
mod workflow_bounds;
mod workflow_cancel;
mod workflow_cast;
mod workflow_chain;
mod workflow_deletion;
mod workflow_effects;
mod workflow_engine;
mod workflow_fair;
mod workflow_golden;
mod workflow_handle;
mod workflow_log;
mod workflow_lost_response;
mod workflow_messages;
mod workflow_random;
mod workflow_regressions;
mod workflow_rejections;
mod workflow_replay;
mod workflow_rows;
mod workflow_spans;
mod workflow_steps;
mod workflow_versions;
mod workflow_waits;
