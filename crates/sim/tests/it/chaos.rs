//! The program `chaos`: a short run through every kind of fault, and stopped processes.

use std::process::Command;

#[test]
fn faults_of_every_kind_lose_nothing() {
    let seed = std::env::var("WINDLASS_SEED").unwrap_or_else(|_| "1".into());
    succeeds(&["--tasks", "1500", "--faults", "6", "--seed", &seed]);
}

#[test]
fn a_stopped_process_does_not_block_others() {
    succeeds(&["stopped"]);
}

fn succeeds(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_chaos")).args(args).output();
    let output = output.expect("the program runs");
    let report = String::from_utf8_lossy(&output.stdout);
    let progress = String::from_utf8_lossy(&output.stderr);
    eprintln!("{report}");
    let reproduce = format!("cargo run -p windlass-sim --bin chaos -- {}", args.join(" "));
    assert!(output.status.success(), "{report}{progress}reproduce: {reproduce}");
}
