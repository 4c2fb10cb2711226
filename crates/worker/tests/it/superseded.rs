//! A worker that was stopped and replaced writes nothing more to its harness.

use std::time::Duration;

use link::{
    frame::close,
    message::{ResolveOutcome, Verdict},
};
use rustix::process::{Signal, kill_process};
use worker::uplink::CallError;

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

/// Stops a worker until its lease is over, with a decision in its socket. `closed`: the
/// server has ended the link by then.
async fn stopped_past_its_lease(closed: bool) {
    let (mut world, asked) = waiting(4).await;
    let worker = world.worker_pid();
    kill_process(worker, Signal::STOP).unwrap();
    let decision = world.decision(&asked, approve(None));
    let server = world.server.clone();
    // It reaches the stopped worker's socket before the link ends.
    let sent = tokio::spawn(async move { server.call(&decision).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.server.set(|seen| seen.verdict = Some(Verdict::Fenced));
    assert!(!sent.is_finished(), "nobody waited for an answer");
    if closed {
        world.server.cut(close::SUPERSEDED);
    }
    kill_process(worker, Signal::CONT).unwrap();
    assert_eq!(world.exit_code().await, Some(4));
    let sent = sent.await.unwrap();
    assert!(matches!(sent, Err(CallError::Gone)), "the stopped worker has answered: {sent:?}");
    let left = world.journaled();
    assert!(left.requests[0].is_open(), "{:?}", left.requests[0].intent);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.file("answers"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_acts_on_nothing_that_came_meanwhile() {
    stopped_past_its_lease(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_sees_it_by_itself() {
    stopped_past_its_lease(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_for_a_moment_goes_on() {
    let (world, asked) = waiting(45).await;
    let worker = world.worker_pid();
    kill_process(worker, Signal::STOP).unwrap();
    let decision = world.decision(&asked, approve(None));
    let server = world.server.clone();
    let sent = tokio::spawn(async move { server.call(&decision).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    kill_process(worker, Signal::CONT).unwrap();
    assert_eq!(sent.await.unwrap().unwrap().outcome, ResolveOutcome::Applied);
    world.appears("answers").await;
    assert!(world.file("answers").unwrap().contains(r#""optionId":"a""#));
}
