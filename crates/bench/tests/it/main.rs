//! The program from outside. That it is built for this is why `cargo xtask test` finds it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Command;

fn refused(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_countersign-bench")).args(arguments).output().unwrap();
    assert!(!out.status.success());
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn what_it_does_not_know_is_refused_with_what_there_is() {
    assert!(refused(&["speed"]).contains("There is no measure speed"));
    assert!(refused(&["faults", "--fast", "1"]).contains("--fast"));
}
