//! Connections to a Postgres server, for the store and for tools that inspect a database without
//! opening a store: TLS with libpq's modes, on rustls, and detection of poolers.
//!
//! It is independent of the tables. Start at [`Link`], or with a URL at [`Address`].
//!
//! ```no_run
//! use windlass_postgres_link::{Link, Trust};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let link = Link::new("postgres://app@db.example.com/app".parse()?, &Trust::System)?;
//! assert!(link.is_direct().await?);
//! # Ok(()) }
//! ```

mod accept_any_certificate;
mod address;
mod error;
mod link;
mod trust;

pub use address::Address;
pub use error::LinkError;
pub use link::Link;
pub use trust::Trust;
