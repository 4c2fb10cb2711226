//! Requests that wait longer than they may, with nobody to answer; and one real wait of
//! 16 minutes for each driver: asked, left alone, then answered. Run that with
//!
//! ```text
//! cargo test -p worker --test it -- --ignored waits_16_minutes
//! ```
//!
//! They sleep all the while, so they run beside everything else. `COUNTERSIGN_TEST_WAIT_S`
//! sets another number of seconds, for trying it out.

use std::time::Duration;

use domain::run::RunStatus;
use link::message::{EffectKind, ResolveOutcome};
use tokio::time::{Instant, sleep};

use crate::{
    claude,
    dialogue::{self, Agent, Asked},
    process::lives,
    world::{World, approve},
};

fn wait() -> Duration {
    let set = std::env::var("COUNTERSIGN_TEST_WAIT_S").ok();
    Duration::from_secs(set.map_or(960, |text| text.parse().expect("a number of seconds")))
}

/// Leaves the request alone and looks that nobody else answers it.
async fn left_alone(world: &World, asked: &Asked, process: u32, file: &str) {
    let until = Instant::now() + wait();
    let events = world.server.seen.lock().unwrap().events.len();
    while Instant::now() < until {
        sleep(Duration::from_secs(5).min(until - Instant::now())).await;
        let seen = world.server.seen.lock().unwrap();
        assert!(lives(process), "the agent is gone");
        assert!(seen.withdrawn.is_empty(), "{:?}", seen.withdrawn);
        assert!(seen.effects.is_empty(), "{:?}", seen.effects);
        assert_eq!((seen.requests.len(), seen.events.len()), (1, events), "{:#?}", seen.events);
        assert_eq!(seen.hellos.len(), 1, "the link was lost");
        assert_eq!(world.file(file), None);
    }
    assert_eq!(world.request(0).await.0.request_key, asked.0.request_key);
}

async fn waits(mut world: World, text: &str, option: Option<&str>, file: &str, after: &str) {
    world.hitl_timeout_s = 1800;
    let run = world.begin(text).await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    left_alone(&world, &asked, process, file).await;
    assert_eq!(world.resolve(&asked, approve(option)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.file(file).as_deref(), Some(after));
    assert!(lives(process));
    let seen = world.server.seen.lock().unwrap();
    assert_eq!((seen.requests.len(), seen.effects.len(), seen.hellos.len()), (1, 1, 1));
    drop(seen);
    world.no_gap();
}

/// Lets the time for answering pass, several times over, with the link away: first with
/// this worker, then with one that finds the request in its journal.
async fn is_never_answered_by_the_worker(mut world: World, text: &str, answers: &str) {
    world.hitl_timeout_s = 1;
    world.start().await;
    let run = world.begin(text).await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    world.journals("that it is stored", |s| s.requests[0].approval.is_some()).await;
    world.server.set(|seen| seen.refuse_links = true);
    world.server.cut(0);
    for life in 1..=2 {
        sleep(Duration::from_secs(4)).await;
        let left = world.journaled();
        assert!(left.requests[0].is_open(), "life {life}: {:?}", left.requests[0].end);
        assert!(left.run.is_some_and(|r| !r.cancelling && r.failed.is_none()), "life {life}: the run");
        assert_eq!(world.file(answers), None, "life {life}");
        assert!(lives(process), "life {life}: the agent is gone");
        world.kill().await;
        world.spawn(&[]);
    }
    world.server.set(|seen| seen.refuse_links = false);
    world.linked(2).await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.file(answers).unwrap().lines().count(), 1);
    let seen = world.server.seen.lock().unwrap();
    assert!(seen.withdrawn.is_empty() && seen.requests.len() == 1, "{:?}", seen.withdrawn);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_request_is_never_answered_by_the_worker_itself() {
    let world = World::scripted_without_worker("ask 7 one; take; result c7; over; cat").await;
    is_never_answered_by_the_worker(world, "go", "answers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_request_of_claude_is_never_answered_by_the_worker_itself() {
    if !Agent::Claude.is_there() {
        return;
    }
    let world = dialogue::claude().await;
    let ledger = world.folder.join("work/ledger").display().to_string();
    let text = format!(r#"script:{{"ledger":"{ledger}","do":[{{"ask":{{"command":"x"}}}}]}}"#);
    is_never_answered_by_the_worker(world, &text, "ledger").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 16 minutes"]
async fn a_request_waits_16_minutes_unattended() {
    waits(World::demo().await, "Buy milk", Some("allow-once"), "notes.txt", "Buy milk\n").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 16 minutes"]
async fn a_request_of_claude_waits_16_minutes_unattended() {
    let Some(world) = claude::world().await else { return };
    let text = claude::appending(&world, &["x"]);
    waits(world, &text, None, "x", "ran\n").await;
}
