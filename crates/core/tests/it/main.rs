//! What core promises to its users: invariants over all short sequences of commands, batches that
//! equal their commands one by one, and bytes that stay readable.

mod batch;
mod cost;
mod documents;
mod exhaustive;
mod explore;
mod golden;
mod invariants;
mod limits;
mod messages;
mod random;
mod requests;
mod rounds;
mod steps;
mod wakes;
mod workflows;
mod world;
