//! A worker that was stopped and replaced writes nothing more to its harness.

use std::time::Duration;

use link::{frame::close, message::Verdict};
use rustix::process::{Signal, kill_process};

use crate::world::{World, approve};

const SCRIPT: &str = "ask 7 one; while read -r line; do echo \"$line\" >> answers; done";

/// A worker with a lease of so many seconds, linked, whose agent has asked.
async fn waiting(lease_s: u64) -> (World, crate::dialogue::Asked) {
    let mut world = World::scripted_without_worker(SCRIPT).await;
    world.server.set(|seen| seen.lease_ttl_s = Some(lease_s));
    world.start().await;
    world.begin("go").await;
    let asked = world.request(0).await;
    (world, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_acts_on_nothing_that_came_meanwhile() {
    let (mut world, asked) = waiting(4).await;
    let worker = world.worker_pid();
    kill_process(worker, Signal::STOP).unwrap();
    let decision = world.decision(&asked, approve(None));
    let server = world.server.clone();
    // It reaches the stopped worker's socket before the link ends.
    let sent = tokio::spawn(async move { server.try_call(&decision).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.server.set(|seen| seen.verdict = Some(Verdict::Fenced));
    world.server.cut(close::SUPERSEDED);
    kill_process(worker, Signal::CONT).unwrap();
    assert_eq!(world.exit_code().await, Some(4));
    assert!(!matches!(sent.await.unwrap(), Some(Ok(_))), "the stopped worker has answered");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.file("answers"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_for_a_moment_goes_on() {
    let (world, asked) = waiting(45).await;
    let worker = world.worker_pid();
    kill_process(worker, Signal::STOP).unwrap();
    let decision = world.decision(&asked, approve(None));
    let server = world.server.clone();
    let sent = tokio::spawn(async move { server.try_call(&decision).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    kill_process(worker, Signal::CONT).unwrap();
    assert!(matches!(sent.await.unwrap(), Some(Ok(_))));
    world.appears("answers").await;
    assert!(world.file("answers").unwrap().contains(r#""optionId":"a""#));
}
