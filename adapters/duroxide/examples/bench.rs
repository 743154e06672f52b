//! Orchestrations of activities that do nothing, on Windlass: the work of `bench/peers/duroxide`
//! with another provider.

#[path = "../../../bench/peers/duroxide/src/work.rs"]
mod work;

use std::sync::Arc;

use windlass_duroxide::WindlassProvider;

use crate::work::{Failure, Work};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let work = Work::read(std::env::args().skip(1).collect())?;
    let url = format!("sqlite://{}", work.file.display());
    let provider = Arc::new(WindlassProvider::open(&url).await?);
    let mut report = work.measure(provider.clone()).await?;
    report["side"] = "duroxide on windlass".into();
    report["durability"] = provider.engine().describe().await?.durability.into();
    provider.engine().shutdown().await?;
    print(&report);
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the program prints its report")]
fn print(report: &serde_json::Value) {
    println!("{report}");
}
