//! A harness that does not read, so that its pipe is full: what is decided is not said to
//! have been applied, nothing else waits for it, and once it reads it gets everything once.

use std::time::Duration;

use domain::{
    id::{RunId, SessionId},
    run::RunStatus,
};
use link::message::{CancelOutcome, EffectKind, PromptOutcome, Resolve, ResolveOutcome, ResolveReply};
use serde_json::Value;
use tokio::{task::JoinHandle, time::sleep};
use uuid::Uuid;
use worker::uplink::CallError;

use crate::{
    dialogue::Asked,
    lines,
    process::ends,
    world::{World, approve, reject},
};

/// Asks twice and reads nothing until there is a file `read`.
const SCRIPT: &str = "can_use r 5; can_use s 5; while [ ! -e read ]; do sleep 0.05; done; \
    take; take; refused tr; ran ts; idle; while take; do :; done";
/// More than a pipe holds.
const WORDS: usize = 300_000;

type Sent = JoinHandle<Result<ResolveReply, CallError>>;

fn send(world: &World, mut decision: Resolve) -> Sent {
    let server = world.server.clone();
    decision.epoch = server.epoch();
    tokio::spawn(async move { server.call(&decision).await })
}

/// A run with two requests, and a decision for each that is being handed over: a refusal
/// that does not fit into the pipe, and an approval behind it.
async fn decided() -> (World, RunId, [Asked; 2], [Resolve; 2], Vec<Sent>) {
    let world = lines::claude(SCRIPT).await;
    let run = world.begin("go").await;
    let asked = [world.request(0).await, world.request(1).await];
    let words = "x".repeat(WORDS);
    let decisions =
        [world.decision(&asked[0], reject(None, Some(&words))), world.decision(&asked[1], approve(None))];
    let mut sent = Vec::new();
    for (n, decision) in decisions.iter().enumerate() {
        sent.push(send(&world, decision.clone()));
        world.journals("an intent", |s| s.requests[n].intent.is_some()).await;
    }
    (world, run, asked, decisions, sent)
}

fn nothing_is_applied(world: &World, sent: &[Sent]) {
    assert!(sent.iter().all(|s| !s.is_finished()), "it was answered for");
    assert!(world.journaled().requests.iter().all(|r| !r.applied && r.end.is_none()));
    assert!(world.server.seen.lock().unwrap().effects.is_empty());
    assert_eq!(world.file("answers"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_applied_before_the_agent_reads_and_is_given_once_then() {
    let (mut world, run, asked, decisions, sent) = decided().await;
    sleep(Duration::from_secs(5)).await;
    nothing_is_applied(&world, &sent);
    // The same session still answers, and another one goes on.
    let next = world.prompt(RunId(Uuid::now_v7()), "next").await;
    assert_eq!(next.outcome, PromptOutcome::Refused);
    let mut other = world.prompting(RunId(Uuid::now_v7()), "say hi");
    other.key = SessionId(Uuid::now_v7());
    (other.agent.harness, other.agent.mode) = ("demo".into(), "ask".into());
    assert_eq!(world.server.call(&other).await.unwrap().why, None);
    assert_eq!(world.ended(other.run).await, (RunStatus::Completed, None));
    nothing_is_applied(&world, &sent);
    // The next worker does not know more, and says no more.
    world.kill().await;
    for sent in sent {
        assert_eq!(sent.await.unwrap().unwrap_err(), CallError::Gone);
    }
    world.start().await;
    let hello = world.server.seen.lock().unwrap().hellos.last().unwrap().clone();
    let session = hello.sessions.iter().find(|s| s.key == world.session).unwrap();
    assert_eq!(session.pending.len(), 2);
    let sent: Vec<Sent> = decisions.into_iter().map(|decision| send(&world, decision)).collect();
    sleep(Duration::from_secs(5)).await;
    nothing_is_applied(&world, &sent);
    std::fs::write(world.folder.join("work/read"), "").unwrap();
    for sent in sent {
        assert_eq!(sent.await.unwrap().unwrap().outcome, ResolveOutcome::Applied);
    }
    assert_eq!(world.effect(&asked[0].0.request_key).await, EffectKind::Refused);
    assert_eq!(world.effect(&asked[1].0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let answers = world.file("answers").unwrap();
    let given: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |n: usize, name: &str| given[n]["response"]["response"][name].as_str().map(str::to_owned);
    assert_eq!(given.len(), 2);
    assert_eq!(
        (given[0]["response"]["request_id"].as_str(), told(0, "behavior").as_deref()),
        (Some("r"), Some("deny"))
    );
    assert_eq!(told(0, "message").map(|words| words.len()), Some(WORDS));
    assert_eq!(
        (given[1]["response"]["request_id"].as_str(), told(1, "behavior").as_deref()),
        (Some("s"), Some("allow"))
    );
    assert_eq!(world.server.seen.lock().unwrap().requests.len(), 2);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_agent_does_not_read_can_be_stopped_and_what_it_took_is_unknown() {
    let (world, run, asked, _, sent) = decided().await;
    nothing_is_applied(&world, &sent);
    let process = world.pid(run).await;
    assert_eq!(world.cancel(run).await, CancelOutcome::Stopping);
    assert_eq!(world.ended(run).await, (RunStatus::Cancelled, None));
    ends(process).await;
    for asked in &asked {
        assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Unknown);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().unwrap().outcome, ResolveOutcome::OutcomeUnknown);
    }
    assert_eq!(world.file("answers"), None);
}
