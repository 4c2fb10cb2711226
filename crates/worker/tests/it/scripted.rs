//! Harnesses that misbehave, as shell scripts.

use domain::{event::EventBody, run::RunStatus};
use link::message::{EffectKind, ResolveOutcome};

use crate::{
    lines,
    world::{World, approve},
};

pub fn alarms(world: &World) -> Vec<String> {
    let seen = world.server.seen.lock().unwrap();
    let alarms = seen.events.iter().filter_map(|e| match &e.body {
        EventBody::Notice { text, alarm: true } => Some(text.clone()),
        _ => None,
    });
    alarms.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sent_again_is_one_and_a_new_id_is_another() {
    let world = World::scripted(
        "ask 7 one; ask 7 one; ask 7 one; ask 8 one; take; take; result c7; result c8; over; cat",
    )
    .await;
    let run = world.begin("go").await;
    let (first, second) = (world.request(0).await, world.request(1).await);
    assert_eq!(first.0.input, second.0.input);
    assert_ne!(first.0.action_digest, second.0.action_digest);
    for asked in [&second, &first] {
        assert_eq!(world.resolve(asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    }
    for asked in [&second, &first] {
        assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    }
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.server.seen.lock().unwrap().requests.len(), 2);
    assert_eq!(world.file("answers").unwrap().lines().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_with_two_actions_is_refused_and_raises_an_alarm() {
    let world = World::scripted("ask 7 one; sleep 1; ask 7 two; take; over; cat").await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert_eq!(withdrawn.request_key, asked.0.request_key);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::NativeGone);
    let answers = world.file("answers").unwrap();
    assert!(answers.contains(r#""optionId":"r""#) && !answers.contains(r#""optionId":"a""#), "{answers}");
    assert_eq!(alarms(&world).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_nobody_allowed_raises_an_alarm() {
    let world = World::scripted("ask 7 one; result c7; over; cat").await;
    let run = world.begin("go").await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert!(alarms(&world)[0].contains("nobody has answered"));
    world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_changes_its_mode_is_stopped() {
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"current_mode_update","currentModeId":"auto"}}}"#;
    let world = World::scripted(&format!("ask 7 one; echo '{update}'; take; over; cat")).await;
    let run = world.begin("go").await;
    let (status, detail) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(detail.unwrap().contains("\"auto\""));
    assert_eq!(world.file("answers"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claude_that_changes_its_mode_while_it_asks_is_stopped_and_not_answered() {
    let changed = r#"{"type":"system","subtype":"status","status":null,"permissionMode":"acceptEdits"}"#;
    let world = lines::claude(&format!("can_use r 5; echo '{changed}'; take; ran tr; idle; cat")).await;
    let run = world.begin("go").await;
    let (status, detail) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(detail.unwrap().contains("\"acceptEdits\""));
    let asked = world.server.seen.lock().unwrap().requests.first().cloned();
    if let Some(asked) = asked {
        let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
        assert!(withdrawn.execution_gone && withdrawn.request_key == asked.request_key);
        let late = world.resolve(&world.request(0).await, approve(None)).await;
        assert_eq!(late.outcome, ResolveOutcome::NativeGone);
    }
    assert_eq!(world.file("answers"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_too_large_to_show_is_refused_in_words_and_longer_lines_are_left_out() {
    let world = World::scripted(
        "big=$(head -c 6000000 /dev/zero | tr '\\0' x); ask 7 $big; take; head -c 9000000 /dev/zero | tr '\\0' x; echo; over; cat",
    )
    .await;
    let run = world.begin("go").await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let alarms = alarms(&world);
    assert!(alarms[0].contains("cannot be shown"), "{alarms:?}");
    assert!(alarms[1].contains("9000000 bytes"), "{alarms:?}");
    assert!(world.file("answers").unwrap().contains(r#""optionId":"r""#));
    assert!(world.server.seen.lock().unwrap().requests.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ignores_a_cancel_is_killed() {
    let world = World::scripted("ask 7 one; while true; do sleep 1; done").await;
    let run = world.begin("go").await;
    world.request(0).await;
    world.cancel(run).await;
    assert_eq!(world.ended(run).await, (RunStatus::Cancelled, None));
}
