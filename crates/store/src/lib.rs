//! The store interface of Windlass, and its in-memory implementation.
//!
//! A store handles tables, keys, versions, index ranges and bytes. It contains no rules: it never
//! interprets the state of a task. Start at [`Store`] and [`Tx`]; [`MemoryStore`] is the shortest
//! implementation.
//!
//! ```
//! use windlass_core::{ReferenceTables, Table, LoadRequest};
//! use windlass_store::{MemoryStore, Query, Store};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemoryStore::new();
//! let lanes = store.query(&Query::all(Table::Lane, 10)).await.unwrap();
//! assert!(lanes.is_empty());
//! # }
//! ```

mod clock;
mod commit_notification;
mod contract;
mod error;
mod failpoint;
mod memory;
mod notification;
mod round_trip_stats;
mod scan_hints;
mod sql_filter;

pub use clock::{Clock, ManualClock, MonotonicTime, SystemClock};
pub use commit_notification::CommitNotification;
pub use contract::{Count, Query, Store, StoreDescription, Tx};
pub use error::{CommitId, StoreError};
pub use failpoint::{Failpoints, Fault};
pub use memory::MemoryStore;
pub use notification::{Notification, Notifications};
pub use round_trip_stats::{RoundTripCounter, RoundTripStats};
pub use scan_hints::{HintProbe, LowWatermarks, ScanHints};
pub use sql_filter::SqlFilter;
