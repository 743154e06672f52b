//! The way to a Postgres server, for the store and for tools that look at a database without
//! opening it: TLS as libpq does it, on rustls, and whether a pooler is in between.
//!
//! It knows nothing of tables. Start at [`Link`], or with a URL at [`Address`].
//!
//! ```no_run
//! use windlass_postgres_link::{Link, Trust};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let link = Link::new("postgres://app@db.example.com/app".parse()?, &Trust::System)?;
//! assert!(link.is_direct().await?);
//! # Ok(()) }
//! ```

mod address;
mod anybody;
mod error;
mod link;
mod trust;

pub use address::Address;
pub use error::LinkError;
pub use link::Link;
pub use trust::Trust;
