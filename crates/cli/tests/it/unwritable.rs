//! Streams that cannot be written, and too few file descriptors: an exit code, never a panic.

use std::process::Command;

use crate::test_store::TestStore;

/// Runs a shell line in which `$W` is the command; returns its exit code and stderr.
fn shell(store: &TestStore, line: &str) -> (i32, String) {
    let output = Command::new("sh")
        .args(["-c", line])
        .env("W", env!("CARGO_BIN_EXE_windlass"))
        .env("WINDLASS_STORE", store.url())
        .current_dir(store.file(""))
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(!complaint.contains("panicked"), "{line}: {complaint}");
    (output.status.code().unwrap(), complaint)
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let store = TestStore::empty();
    store.ok("task create k");
    for line in
        ["--help", "--version", "task --help", "completions bash", "task list", "stats --json"]
    {
        let (code, complaint) = shell(&store, &format!("\"$W\" {line} >/dev/full"));
        assert_eq!(code, 1, "{line}: {complaint}");
        assert!(complaint.contains("standard output cannot be written"), "{line}: {complaint}");
        let (code, complaint) = shell(&store, &format!("\"$W\" {line} >/dev/full 2>&1"));
        assert_eq!((code, complaint.as_str()), (1, ""), "{line}");
    }
    // A closed pipe is not an error.
    assert_eq!(shell(&store, "{ \"$W\" --help; echo $? >code; } | true; exit $(cat code)").0, 0);
}

#[test]
fn errors_that_cannot_be_written_change_no_exit_code() {
    let store = TestStore::empty();
    for (line, expected) in [
        ("nope", 2),
        ("task", 2),
        ("stats", 4),
        ("stats --json", 4),
        ("task create k", 0),
        ("task show nope", 4),
    ] {
        let (code, _) = shell(&store, &format!("\"$W\" {line} 2>/dev/full"));
        assert_eq!(code, expected, "{line}");
    }
    assert_eq!(shell(&store, "\"$W\" task show nope 2>&-").0, 4);
}

#[test]
fn too_few_descriptors_are_an_error() {
    let store = TestStore::empty();
    store.ok("migrate");
    for line in ["task list", "task create k", "worker exec --kind k --once -- true"] {
        for most in 4..16 {
            let (code, complaint) = shell(&store, &format!("ulimit -n {most}; \"$W\" {line}"));
            // If not even the libraries can be loaded, the dynamic loader reports it.
            assert!(matches!(code, 1 | 127), "{line}, {most}: {code}: {complaint}");
            assert!(complaint.contains("open"), "{line}, {most}: {complaint}");
        }
    }
}
