//! The double of Claude Code behind a real holder: modes that nobody ordered, and lines
//! that are none.

use domain::{event::EventBody, run::RunStatus};
use link::message::{EffectKind, ResolveOutcome};
use serde_json::json;

use crate::{
    dialogue::{Agent, claude},
    process::ends,
    scripted::alarms,
    server::Seen,
    world::{World, approve},
};

/// A linked world with the double, where it is there.
async fn world() -> Option<World> {
    if !Agent::Claude.is_there() {
        return None;
    }
    let mut world = claude().await;
    world.start().await;
    Some(world)
}

fn script(world: &World, steps: &serde_json::Value) -> String {
    format!("script:{}", json!({"ledger": world.folder.join("work/ledger"), "do": steps}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_another_mode_is_stopped_before_it_is_prompted() {
    // The last one cannot be read at all.
    for started in ["acceptEdits", "bypassPermissions", "plan", ""] {
        let Some(world) = world().await else { return };
        let before = json!({"start_mode": started}).to_string();
        std::fs::write(world.folder.join("work/scripted-claude.json"), before).unwrap();
        let run = world.begin(&script(&world, &json!([{"run": {"command": "rm x"}}]))).await;
        let (status, detail) = world.ended(run).await;
        let detail = detail.unwrap();
        assert_eq!(status, RunStatus::Error);
        let said = format!("reports the permission mode \"{started}\" where \"default\" was ordered");
        assert!(detail.contains(&said) && detail.contains("It was stopped."), "{detail}");
        for held in world.holders() {
            ends(held.pid).await;
        }
        // No conversation was begun, and nothing ran.
        assert!(!world.folder.join("home/scripted-sessions").exists(), "{started}: it was prompted");
        assert_eq!(world.file("ledger"), None);
        let is_started =
            |seen: &Seen| seen.events.iter().any(|e| matches!(e.body, EventBody::Started { .. }));
        assert!(!is_started(&world.server.seen.lock().unwrap()));
        // The next message is not refused for it: it is tried again in a new process.
        std::fs::remove_file(world.folder.join("work/scripted-claude.json")).unwrap();
        let next = world.begin(&script(&world, &json!([{"say": "hi"}]))).await;
        assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_mode_that_nobody_ordered_stops_the_run() {
    for mode in ["acceptEdits", "bypassPermissions", "plan", "another"] {
        let Some(world) = world().await else { return };
        let steps = json!([{"ask": {"command": "one"}}, {"mode": mode}, {"wait": 60_000}, {"run": {"command": "two"}}]);
        let run = world.begin(&script(&world, &steps)).await;
        let process = world.pid(run).await;
        let asked = world.request(0).await;
        assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
        assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
        let (status, detail) = world.ended(run).await;
        let detail = detail.unwrap();
        assert_eq!(status, RunStatus::Error);
        assert!(detail.contains(&format!("\"{mode}\"")) && detail.contains("It was stopped."), "{detail}");
        ends(process).await;
        let ledger = world.file("ledger").unwrap();
        assert!(ledger.lines().count() == 1 && ledger.contains("one"), "{ledger}");
        world.no_gap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_says_when_it_ends_before_it_reads_is_told_each_time() {
    let Some(mut world) = world().await else { return };
    let before = json!({"fails": "No room for another one."}).to_string();
    std::fs::write(world.folder.join("work/scripted-claude.json"), before).unwrap();
    for n in 0..20 {
        world.session = domain::id::SessionId(uuid::Uuid::now_v7());
        let run = world.begin(&script(&world, &json!([{"say": "hi"}]))).await;
        let (status, detail) = world.ended(run).await;
        let detail = detail.unwrap();
        assert_eq!(status, RunStatus::Error);
        assert!(detail.contains("It last wrote: No room for another one."), "try {n}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_a_huge_line_are_left_out_and_said_and_the_request_after_them_is_asked() {
    const HUGE: usize = 9_000_000;
    let garbage = [
        "not a line of the protocol",
        r#"{"type":"control_request","request_id":"cut","request":{"subtype":"can_use_tool","inp"#,
        r#"{"type":"control_request","request_id":"poor","request":{"subtype":"can_use_tool"}}"#,
        r#"{"type":["control_request"]}"#,
        "[]",
        "\u{0}\u{1b}[2J\u{202e}",
    ];
    // What is no object of the protocol's, and what is of a kind nobody knows.
    let passed_over = ["", "   ", r#"{"type":"tomorrow","mode":"bypassPermissions"}"#];
    let Some(world) = world().await else { return };
    let lines = garbage.iter().chain(&passed_over).map(|line| json!({ "line": line }));
    let mut steps: Vec<_> = lines.collect();
    steps.extend([json!({"huge": HUGE}), json!({"ask": {"command": "rm x"}}), json!({"line": "{"})]);
    let run = world.begin(&script(&world, &json!(steps))).await;
    let asked = world.request(0).await;
    assert_eq!(world.file("ledger"), None);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.file("ledger").unwrap().lines().count(), 1);
    let alarms = alarms(&world);
    let unreadable = alarms.iter().filter(|text| text.contains("could not be read")).count();
    let too_long: Vec<&String> = alarms.iter().filter(|text| text.contains("too long")).collect();
    assert_eq!(unreadable, garbage.len() + 1, "{alarms:?}");
    assert!(matches!(too_long[..], [text] if text.contains("a line of 9000")), "{alarms:?}");
    assert_eq!(alarms.len(), unreadable + 1, "{alarms:?}");
    let seen = world.server.seen.lock().unwrap();
    assert_eq!((seen.requests.len(), seen.withdrawn.len()), (1, 0));
    assert!(!seen.said().contains("xxxx"));
    drop(seen);
    world.no_gap();
}
