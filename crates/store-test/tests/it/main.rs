//! The suites on the store in memory, and on stores that are broken on purpose.

mod broken;
mod fault;
mod suites;
