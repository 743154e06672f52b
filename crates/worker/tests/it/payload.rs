use windlass_core::command::Create;
use windlass_engine::Config;
use windlass_store_test::{Call, Failure};
use windlass_worker::Context;

use crate::stage::{EVER, Stage, new_task};

#[tokio::test(start_paused = true)]
async fn a_payload_too_large_for_the_claim_is_fetched() {
    let stage = Stage::with(Config { claim_bytes: 10, ..Config::default() }).await;
    let text = format!("\"{}\"", "x".repeat(1_000));
    let mut create = Create::one(new_task("0", &text));
    create.tasks.extend(["1", "2"].map(|id| new_task(id, &text)));
    stage.engine.submit(create).await.unwrap();
    // The first read is that of the claim; the second one fails and is retried.
    let before = stage.faults.calls(Call::Payloads);
    stage.faults.fail(Call::Payloads, 2, Failure::Unavailable);
    let worker = stage.worker().concurrency(3);
    let running =
        worker.handler("k", async |_: Context, text: String| Ok(text.len())).start().unwrap();
    for id in ["0", "1", "2"] {
        stage.until(id, "completed").await;
        assert_eq!(stage.result(id).await.unwrap(), "1000");
        assert_eq!(stage.history(id), "created claimed completed");
    }
    assert_eq!(stage.faults.calls(Call::Payloads) - before, 4);
    running.drain(EVER).await;
}
