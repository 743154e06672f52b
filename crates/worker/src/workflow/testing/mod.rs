//! Tests of workflows: run one in memory under virtual time, with mocks in place of its
//! activities, or check that changed code matches recorded executions.
//!
//! ```
//! use std::time::Duration;
//! use windlass_worker::workflow::testing::WorkflowTest;
//! use windlass_worker::workflow::Workflow;
//! use windlass_worker::{Context, Failure};
//!
//! async fn greet(_: Context, name: String) -> Result<String, Failure> {
//!     Ok(format!("hello, {name}"))
//! }
//!
//! async fn welcome(ctx: Workflow, name: String) -> Result<String, Failure> {
//!     ctx.sleep(Duration::from_secs(3_600)).await?;
//!     Ok(ctx.activity(greet, &name).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let test = WorkflowTest::new(welcome, &"Ada".to_owned())
//!     .activity(greet, |name| Ok(format!("hi, {name}")));
//! let tested = test.run().await.expect("it comes to an end");
//! assert_eq!(tested.result.as_deref(), Ok("hi, Ada"));
//! assert_eq!(tested.elapsed, Duration::from_secs(3_600));
//! # }
//! ```

mod agenda;
mod failure;
mod mock;
mod recorded;
mod stage;
mod test;

pub use failure::TestFailure;
pub use recorded::{RecordedExecution, replay_check};
pub use stage::SentSignal;
pub use test::{WorkflowTest, WorkflowTestResult};
