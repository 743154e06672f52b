//! A short run of the program `chaos`: every kind of fault, and the judge.

use std::process::Command;

#[test]
fn faults_of_every_kind_lose_nothing() {
    let seed = std::env::var("WINDLASS_SEED").unwrap_or_else(|_| "1".into());
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_chaos"));
    chaos.args(["--tasks", "2000", "--faults", "6", "--seed", &seed]);
    let output = chaos.output().expect("the program runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let progress = String::from_utf8_lossy(&output.stderr);
    println!("{told}");
    assert!(
        output.status.success(),
        "{told}{progress}\n\
         reproduce: WINDLASS_SEED={seed} cargo test -p windlass-sim --test it chaos"
    );
}
