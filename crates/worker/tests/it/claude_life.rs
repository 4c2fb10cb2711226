//! The life of a real Claude Code process: sub-agents, work in the background, idleness,
//! retries.

use std::{process::Command, time::Duration};

use domain::{event::EventBody, run::RunStatus};
use link::message::{Finish, ResolveOutcome};
use serde_json::{Value, json};

use crate::{
    claude::{world, world_of},
    endpoint::Endpoint,
    lines,
    process::{ends, lives},
    server::Seen,
    world::{approve, reject},
};

fn script(turns: &Value) -> String {
    format!("SCRIPT:{turns}")
}

fn bash(command: &str) -> Value {
    json!({"tool": "Bash", "input": {"command": command, "description": "x"}})
}

fn in_background(seen: &Seen) -> Vec<Vec<String>> {
    let all = seen.events.iter().filter_map(|e| match &e.body {
        EventBody::Background { tasks } => Some(tasks.clone()),
        _ => None,
    });
    all.collect()
}

fn task(description: &str, turns: &Value, background: bool) -> Value {
    json!({"tool": "Task", "input": {"description": description, "prompt": script(turns),
        "subagent_type": "general-purpose", "run_in_background": background}})
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sub_agents_are_told_apart_and_answered_apart() {
    let Some(world) = world().await else { return };
    let one = task("first errand", &json!([[bash("touch one")], [{"text": "sub"}]]), false);
    let two = task("second errand", &json!([[bash("touch two")], [{"text": "sub"}]]), false);
    let run = world.begin(&script(&json!([[one, two], [{"text": "end"}]]))).await;
    let mut asked = [world.request(0).await, world.request(1).await];
    asked.sort_by_key(|(r, _)| String::from_utf8_lossy(&r.input.0).contains("touch two"));
    let titles = asked.each_ref().map(|(r, _)| r.sub_agent_title.clone().unwrap());
    assert_eq!(titles, ["general-purpose: first errand", "general-purpose: second errand"]);
    assert_ne!(asked[0].0.sub_agent, asked[1].0.sub_agent);
    world.resolve(&asked[1], approve(None)).await;
    world.resolve(&asked[0], reject(None, Some("Not this one."))).await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.file("one").is_none() && world.file("two").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_in_the_background_asks_after_the_result_and_the_run_is_still_there() {
    let Some(world) = world().await else { return };
    let errand = task("errand", &json!([[bash("touch sub")], [{"text": "sub"}]]), true);
    let run = world.begin(&script(&json!([[errand], [{"text": "end"}]]))).await;
    let asked = world.request(0).await;
    world.server.see("the parent's last words", |s| s.said().contains("end").then_some(())).await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.file("sub").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_background_keeps_the_run_until_it_ends() {
    let Some(world) = world().await else { return };
    // It goes on until somebody writes into the pipe.
    let gate = world.folder.join("work/gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let command = json!({"tool": "Bash", "input": {"command": "read line < gate; touch late", "description": "build it", "run_in_background": true}});
    let run = world.begin(&script(&json!([[command], [{"text": "end"}]]))).await;
    world.resolve(&world.request(0).await, approve(None)).await;
    let told = world.server.see("work in the background", |s| in_background(s).first().cloned()).await;
    assert_eq!(told, ["build it"]);
    world.server.see("the last words", |s| s.said().contains("end").then_some(())).await;
    // Longer than a run waits for a turn that begins by itself.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(world.file("late").is_none() && world.journaled().run.is_some());
    tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n").unwrap()).await.unwrap();
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.file("late").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_message_does_not_wait_for_a_command_in_the_background() {
    let Some(world) = world().await else { return };
    let command = json!({"tool": "Bash", "input": {"command": "touch served; sleep 600", "description": "serve", "run_in_background": true}});
    let run = world.begin(&script(&json!([[command], [{"text": "end"}]]))).await;
    world.resolve(&world.request(0).await, approve(None)).await;
    world.server.see("work in the background", |s| in_background(s).first().cloned()).await;
    let finish = Finish { key: world.session, epoch: world.server.epoch(), run };
    world.server.call(&finish).await.unwrap();
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let next = world.begin("SCRIPT:[[{\"text\":\"here\"}]]").await;
    world.server.see("an answer", |s| s.said().contains("here").then_some(())).await;
    assert_eq!(world.pid(next).await, world.pid(run).await);
    // It goes on beside the new run too, until that is stopped or finished.
    let finish = Finish { key: world.session, epoch: world.server.epoch(), run: next };
    world.server.see("work in the background", |s| in_background(s).get(1).cloned()).await;
    world.server.call(&finish).await.unwrap();
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_is_ended_and_the_next_message_takes_its_conversation_up() {
    let endpoint = Endpoint::start().await;
    let vars = [
        ("ANTHROPIC_API_KEY", "dummy".to_owned()),
        // A third of a second.
        ("COUNTERSIGN_IDLE_MINUTES", "0.005".to_owned()),
    ];
    let Some(world) = world_of(&endpoint, &vars).await else { return };
    let first = world.begin("Remember the word heron. SCRIPT:[[{\"text\":\"hi\"}]]").await;
    assert_eq!(world.ended(first).await, (RunStatus::Completed, None));
    let process = world.pid(first).await;
    ends(process).await;
    let next = world.begin("SCRIPT:[[{\"text\":\"again\"}]]").await;
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    assert_ne!(world.pid(next).await, process);
    assert!(endpoint.heard().last().unwrap().text().contains("heron"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_process_is_not_idle() {
    let endpoint = Endpoint::start().await;
    let vars = [("ANTHROPIC_API_KEY", "dummy".to_owned()), ("COUNTERSIGN_IDLE_MINUTES", "0.005".to_owned())];
    let Some(world) = world_of(&endpoint, &vars).await else { return };
    let run = world.begin(&script(&json!([[bash("touch x")], [{"text": "end"}]]))).await;
    let asked = world.request(0).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.file("x").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_work_in_the_background_is_not_idle() {
    let mut world = lines::claude_without_worker(
        r#"tasks() { echo '{"type":"system","subtype":"background_tasks_changed","tasks":['$1']}'; }
tasks '{"task_id":"b","task_type":"local_bash","description":"serve"}'
idle
while [ ! -e over ]; do sleep 0.05; done
tasks
while read -r line; do case "$line" in *end_session*) exit ;; esac; done"#,
    )
    .await;
    world.env.push(("COUNTERSIGN_IDLE_MINUTES".to_owned(), "0.005".to_owned()));
    world.start().await;
    let run = world.begin("go").await;
    let process = world.pid(run).await;
    world.server.see("work in the background", |s| in_background(s).first().cloned()).await;
    let finish = Finish { key: world.session, epoch: world.server.epoch(), run };
    world.server.call(&finish).await.unwrap();
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    // Ten times as long as it may be idle.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(lives(process), "it was ended with work in the background");
    std::fs::write(world.folder.join("work/over"), "").unwrap();
    ends(process).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_message_handed_over_while_a_request_waits_leaves_the_request() {
    let Some(world) = world().await else { return };
    let run = world.begin(&script(&json!([[bash("touch x")], [{"text": "end"}]]))).await;
    let asked = world.request(0).await;
    // The worker takes one run at a time; the server keeps the next one in its queue.
    let reply = world.prompt(domain::id::RunId(uuid::Uuid::now_v7()), "next").await;
    assert_eq!(reply.outcome, link::message::PromptOutcome::Refused);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_the_endpoint_are_shown() {
    let Some(world) = world().await else { return };
    let run = world.begin(&script(&json!([[{"status": 529}], [{"text": "end"}]]))).await;
    let told = world
        .server
        .see("a retry", |s| {
            s.events.iter().find_map(|e| match &e.body {
                EventBody::Notice { text, .. } if text.contains("did not answer") => Some(text.clone()),
                _ => None,
            })
        })
        .await;
    assert!(told.contains("529"), "{told}");
    world.cancel(run).await;
    assert_eq!(world.ended(run).await.0, RunStatus::Cancelled);
}
