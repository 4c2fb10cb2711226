//! The same with the real Claude Code against a scripted endpoint. Needs `CLAUDE_BIN`
//! and says loudly when it is not there.

use std::{path::Path, time::Duration};

use domain::{event::EventBody, run::RunStatus};
use link::message::{CancelOutcome, EffectKind, ResolveOutcome};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    process::kill,
    world::{World, approve, reject},
};

/// A world with Claude Code, or nothing where it is not installed.
pub async fn world() -> Option<World> {
    let key = [("ANTHROPIC_API_KEY", "dummy".to_owned())];
    world_of(&Endpoint::start().await, &key).await
}

/// The same against an endpoint of the test's own, with these variables and no key but
/// what is in them.
pub async fn world_of(endpoint: &Endpoint, vars: &[(&str, String)]) -> Option<World> {
    let bin = std::env::var("CLAUDE_BIN").ok().filter(|p| Path::new(p).is_file());
    let Some(bin) = bin else {
        crate::skipped("CLAUDE_BIN names no program, so Claude Code was not tested here");
        return None;
    };
    let home = std::env::temp_dir().join(format!("cs-claude-home-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir_all(&home).unwrap();
    let env = [
        ("CLAUDE_BIN", bin),
        ("HOME", home.display().to_string()),
        ("CLAUDE_CONFIG_DIR", home.join("config").display().to_string()),
        ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", endpoint.port)),
    ];
    let vars = env.iter().chain(vars).map(|(name, value)| ((*name).to_owned(), value.clone()));
    let mut world = World::new("claude", "default", vars.collect()).await;
    world.litter.push(home);
    Some(world)
}

/// A prompt that makes the model append lines to files, each by its own call.
pub fn appending(world: &World, names: &[&str]) -> String {
    let work = world.folder.join("work").display().to_string();
    let call = |name: &&str| json!([{"tool": "Bash", "input": {"command": format!("echo ran >> {work}/{name}"), "description": "List files"}}]);
    let mut turns: Vec<Value> = names.iter().map(call).collect();
    turns.push(json!([{"text": "the end"}]));
    format!("SCRIPT:{}", json!(turns))
}

pub fn output(world: &World) -> Vec<(String, bool)> {
    let seen = world.server.seen.lock().unwrap();
    let returned = seen.events.iter().filter_map(|e| match &e.body {
        EventBody::Returned { output, is_error, .. } => Some((output.clone(), *is_error)),
        _ => None,
    });
    returned.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_command_runs_once_in_the_same_process() {
    let Some(world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x"])).await;
    let asked = world.request(0).await;
    assert_eq!(world.file("x"), None);
    assert_eq!((asked.0.tool.as_str(), asked.0.words.as_deref()), ("Bash", Some("List files")));
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.file("x").as_deref(), Some("ran\n"));
    assert!(world.server.seen.lock().unwrap().said().contains("the end"));
    let next = world.begin("SCRIPT:[[{\"text\":\"hi\"}]]").await;
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    assert_eq!(world.pid(next).await, world.pid(run).await);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_model_in_the_persons_words() {
    let Some(world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x"])).await;
    let asked = world.request(0).await;
    let answer = reject(None, Some("Use the staging bucket."));
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Refused);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(output(&world), [("Use the staging bucket.".to_owned(), true)]);
    assert_eq!(world.file("x"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_are_answered_in_reverse() {
    let Some(world) = world().await else { return };
    let outside = world.folder.display().to_string();
    std::fs::write(world.folder.join("a"), "AA").unwrap();
    std::fs::write(world.folder.join("b"), "BB").unwrap();
    let read = |name: &str| json!({"tool": "Read", "input": {"file_path": format!("{outside}/{name}")}});
    let script = json!([[read("a"), read("b")], [{"text": "the end"}]]);
    let run = world.begin(&format!("SCRIPT:{script}")).await;
    let (first, second) = (world.request(0).await, world.request(1).await);
    assert_eq!(world.resolve(&second, reject(None, Some("Not b."))).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.resolve(&first, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.effect(&first.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.effect(&second.0.request_key).await, EffectKind::Refused);
    let outputs = output(&world);
    assert!(outputs.iter().any(|(o, e)| o.contains("AA") && !e), "{outputs:?}");
    assert!(outputs.iter().any(|(o, e)| o == "Not b." && *e), "{outputs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_is_cancelled_and_the_process_stays_usable() {
    let Some(world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x"])).await;
    let asked = world.request(0).await;
    assert_eq!(world.cancel(run).await, CancelOutcome::Stopping);
    assert_eq!(world.ended(run).await, (RunStatus::Cancelled, None));
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::NativeGone);
    let next = world.begin(&appending(&world, &["y"])).await;
    let asked = world.request(1).await;
    world.resolve(&asked, approve(None)).await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    assert_eq!(world.pid(next).await, world.pid(run).await);
    assert_eq!((world.file("x"), world.file("y").as_deref()), (None, Some("ran\n")));
    let seen = world.server.seen.lock().unwrap();
    assert!(!seen.events.iter().any(|e| matches!(&e.body, EventBody::Notice { alarm: true, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_with_stop_gives_the_words_and_ends_the_run() {
    let Some(world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x", "y"])).await;
    let asked = world.request(0).await;
    let mut answer = reject(None, Some("Stop here."));
    answer.stop = true;
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Cancelled);
    // Not the words of an interrupt, as a call may have got that the model made after it.
    assert_eq!(output(&world)[0], ("Stop here.".to_owned(), true));
    assert_eq!((world.file("x"), world.file("y")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_comes_back_to_the_same_request_of_the_same_process() {
    let Some(mut world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x"])).await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    world.kill().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.file("x"), None);
    world.start().await;
    let hello = world.server.seen.lock().unwrap().hellos.last().unwrap().clone();
    assert_eq!(hello.sessions[0].pending[0].request_key, asked.0.request_key);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("x").as_deref(), Some("ran\n"));
    let next = world.begin("SCRIPT:[[{\"text\":\"hi\"}]]").await;
    world.ended(next).await;
    assert_eq!(world.pid(next).await, process);
    assert!(world.server.seen.lock().unwrap().withdrawn.is_empty());
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_retires_its_request_and_the_next_prompt_resumes() {
    let Some(world) = world().await else { return };
    let first = world.begin("SCRIPT:[[{\"text\":\"hi\"}]]").await;
    world.ended(first).await;
    let run = world.begin(&appending(&world, &["x"])).await;
    let asked = world.request(0).await;
    kill(world.pid(run).await);
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert!(withdrawn.execution_gone);
    assert_eq!(world.ended(run).await.0, RunStatus::Error);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::NativeGone);
    let next = world.begin("SCRIPT:[[{\"text\":\"again\"}]]").await;
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    assert_eq!(world.file("x"), None);
    let seen = world.server.seen.lock().unwrap();
    let sessions: Vec<_> = seen
        .events
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::Started { native_session, .. } => native_session.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(sessions.len(), 3);
    assert!(sessions.iter().all(|s| *s == sessions[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proper_end_ends_the_program_without_another_call_of_the_model() {
    let Some(mut world) = world().await else { return };
    let run = world.begin(&appending(&world, &["x"])).await;
    world.request(0).await;
    assert_eq!(world.end(Signal::TERM).await, Some(0));
    let (status, detail) = world.ended(run).await;
    assert_eq!((status, detail.as_deref()), (RunStatus::Error, Some("The worker was stopped.")));
    assert_eq!(world.file("x"), None);
    assert!(!world.server.seen.lock().unwrap().said().contains("the end"));
}
