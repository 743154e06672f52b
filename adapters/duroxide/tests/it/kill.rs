//! Two processes on one Postgres database, one of which is killed.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::ProviderAdmin as _;
use duroxide::{Client, OrchestrationStatus};
use windlass_duroxide::WindlassProvider;
use windlass_store_test::postgres::Server;

/// Longer than the whole test takes.
const NEVER: Duration = Duration::from_secs(240);

/// The default number of orchestrations.
const ORCHESTRATIONS: usize = 200;

/// The number of processes that have claimed a turn so far.
const CLAIMANTS: &str = "SELECT count(DISTINCT body::json ->> 'worker') FROM windlass.event \
    WHERE name = 'claimed' AND kind = 'orchestration'";

/// A process of the example, killed on drop.
struct Runner(Child);

impl Runner {
    fn start(url: &str) -> Self {
        let here = std::env::current_exe().expect("the path of this program is known");
        let folder = here.parent().and_then(|deps| deps.parent()).expect("beside its examples");
        let program: PathBuf = folder.join("examples").join("runner");
        Self(Command::new(&program).arg(url).spawn().expect("the example was built"))
    }

    /// Kills the process with SIGKILL.
    fn kill(&mut self) {
        self.0.kill().expect("the process runs");
        self.0.wait().expect("the process has exited");
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn completed(provider: &WindlassProvider) -> u64 {
    provider.get_system_metrics().await.expect("the metrics are readable").completed_instances
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_orchestrations_finish_after_a_process_is_killed() {
    let wanted = std::env::var("WINDLASS_ORCHESTRATIONS").ok();
    let count = wanted.and_then(|count| count.parse().ok()).unwrap_or(ORCHESTRATIONS);
    let server = Server::start();
    let provider = Arc::new(WindlassProvider::open(&server.url()).await.expect("it answers"));
    let client = Client::new(provider.clone());
    let mut one = Runner::start(&server.url());
    let _other = Runner::start(&server.url());
    for number in 0..count {
        let (name, input) = (format!("five-{number}"), number.to_string());
        client.start_orchestration(&name, "five", input).await.expect("the orchestration starts");
    }
    let before = tokio::time::timeout(NEVER, async {
        loop {
            let some = completed(&provider).await;
            if some > 0 && server.sql(CLAIMANTS) == "2" {
                return some;
            }
            tokio::task::yield_now().await;
        }
    });
    let before = before.await.expect("some finish, and both processes work");
    one.kill();
    assert!(before < count as u64, "some orchestrations are still open");
    for number in 0..count {
        let ended = client.wait_for_orchestration(&format!("five-{number}"), NEVER).await;
        match ended.expect("the orchestration finishes") {
            OrchestrationStatus::Completed { output, .. } => {
                assert_eq!(output, (number + 5).to_string());
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(completed(&provider).await, count as u64);
    provider.engine().shutdown().await.expect("the engine stops");
}
