//! Lines and requests as large as they may be, and larger.

use domain::run::RunStatus;
use link::message::{EffectKind, ResolveOutcome};
use serde_json::Value;

use crate::{
    scripted::alarms,
    world::{World, approve},
};

const LINE_MAX: usize = 8 * 1024 * 1024;
/// The largest action, in bytes of its input.
const ACTION_MAX: usize = 5 * 1024 * 1024;

/// A Claude Code that goes on with `body` after the prompt. `can_use ID BYTES` asks for a
/// command of so many characters; `ran` and `refused` tell what became of a call; `idle`
/// ends the turn.
pub async fn claude(body: &str) -> World {
    let mut world = claude_without_worker(body).await;
    world.start().await;
    world
}

pub async fn claude_without_worker(body: &str) -> World {
    let head = r#"#!/bin/sh
[ "$1" = --version ] && { echo 2.1.332; exit; }
x() { head -c $1 /dev/zero | tr '\0' x; }
can_use() {
  printf '{"type":"control_request","request_id":"'$1'","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"'
  x $2
  printf '"},"tool_use_id":"t'$1'"}}\n'
}
became() { echo '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"'$1'","content":"x","is_error":'$2'}]}}'; }
ran() { became $1 false; }
refused() { became $1 true; }
take() { while read -r line; do case "$line" in *'"control_response"'*) echo "$line" >> answers; return ;; esac; done; }
idle() {
  echo '{"type":"result","subtype":"success","is_error":false,"result":"ok"}'
  echo '{"type":"system","subtype":"session_state_changed","state":"idle"}'
}
while read -r line; do
  case "$line" in
    *'"initialize"'*)
      echo '{"type":"control_response","response":{"subtype":"success","request_id":"countersign-initialize-1","response":{"session_state":"idle","current_permission_mode":"default"},"pending_permission_requests":[]}}' ;;
    *'"type":"user"'*) break ;;
  esac
done
"#;
    let path = std::env::temp_dir().join(format!("cs-script-{}", uuid::Uuid::new_v4().simple()));
    std::fs::write(&path, format!("{head}{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let env = vec![("CLAUDE_BIN".to_owned(), path.display().to_string())];
    let mut world = World::without_worker("claude", "default", env).await;
    world.litter.push(path);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_just_under_the_limit_arrives_whole_and_runs_as_it_was_asked() {
    // Around the command: {"command":""}.
    let characters = ACTION_MAX - 14;
    let world = claude(&format!("can_use r {characters}; take; ran tr; idle; cat")).await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    assert_eq!(asked.0.input.0.len(), ACTION_MAX);
    let input: Value = serde_json::from_slice(&asked.0.input.0).unwrap();
    assert_eq!(input["command"].as_str().map(str::len), Some(characters));
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let answer: Value = serde_json::from_str(&world.file("answers").unwrap()).unwrap();
    assert_eq!(answer["response"]["response"]["behavior"], "allow");
    assert_eq!(answer["response"]["response"]["updatedInput"], input);
    assert!(alarms(&world).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_over_the_limit_is_refused_in_words() {
    let world = claude(&format!("can_use r {}; take; ran tr; idle; cat", ACTION_MAX - 13)).await;
    let run = world.begin("go").await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let answer: Value = serde_json::from_str(&world.file("answers").unwrap()).unwrap();
    assert_eq!(answer["response"]["response"]["behavior"], "deny");
    assert!(answer["response"]["response"]["message"].as_str().unwrap().contains("too large"));
    assert!(world.server.seen.lock().unwrap().requests.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_a_line_too_long_to_keep_is_refused_by_the_id_it_begins_with() {
    let world = claude("can_use big 9000000; take; can_use small 5; take; ran tsmall; idle; cat").await;
    let run = world.begin("go").await;
    // The agent goes on, and what it asks next is asked.
    let asked = world.request(0).await;
    assert_eq!(asked.0.request_key.native_id, "small");
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let answers = world.file("answers").unwrap();
    let first: Value = serde_json::from_str(answers.lines().next().unwrap()).unwrap();
    assert_eq!(first["response"]["request_id"], "big");
    assert_eq!(first["response"]["response"]["behavior"], "deny");
    assert!(first["response"]["response"]["message"].as_str().unwrap().contains("too large"));
    let notices = alarms(&world);
    assert!(matches!(&notices[..], [text] if text.contains("The request in it was refused.")), "{notices:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_of_an_agent_that_offers_answers() {
    let world = World::scripted(
        "big=$(head -c 9000000 /dev/zero | tr '\\0' x); ask 7 $big; take; ask 8 one; take; result c8; over; cat",
    )
    .await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    assert_eq!(asked.0.request_key.native_id, "8");
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let answers = world.file("answers").unwrap();
    let first: Value = serde_json::from_str(answers.lines().next().unwrap()).unwrap();
    assert_eq!(first["id"], 7);
    assert!(first["error"]["message"].as_str().unwrap().contains("too large"), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_8_mib_passes_and_one_byte_more_is_left_out_and_said() {
    const HEAD: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#;
    const TAIL: &str = r#""}}}}"#;
    let text = LINE_MAX - HEAD.len() - TAIL.len();
    let world = World::scripted(&format!(
        "say() {{ printf '{HEAD}'; head -c $1 /dev/zero | tr '\\0' x; printf '{TAIL}\\n'; }}; say {text}; say {}; over; cat",
        text + 1
    ))
    .await;
    let run = world.begin("go").await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.server.seen.lock().unwrap().said().len(), text);
    let notices = alarms(&world);
    let over = format!("a line of {} bytes", LINE_MAX + 1);
    assert!(matches!(&notices[..], [text] if text.contains(&over)), "{notices:?}");
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_without_end_is_refused_after_so_many() {
    let world = World::scripted(
        "i=100; while [ $i -lt 400 ]; do ask $i one; i=$((i+1)); done; while true; do take; done",
    )
    .await;
    world.begin("go").await;
    let refused = || world.file("answers").map_or(0, |a| a.lines().count());
    for _ in 0..600 {
        if refused() == 44 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(refused(), 300 - worker::bounds::UNSETTLED_MAX);
    let answers = world.file("answers").unwrap();
    assert!(answers.lines().all(|l| l.contains(r#""optionId":"r""#)), "{answers}");
    world.server.see("all", |s| (s.requests.len() == worker::bounds::UNSETTLED_MAX).then_some(())).await;
}
