//! Every answer that is more than yes or no, given to the real Claude Code.

use domain::{approval::Grant, decision::Answer, event::EventBody, run::RunStatus};
use link::message::{EffectKind, PermissionRequest, ResolveOutcome};
use serde_json::{Value, json};

use crate::{
    claude::{appending, output, world, world_of},
    endpoint::Endpoint,
    world::{World, approve, reject},
};

const KEY: [(&str, String); 0] = [];

async fn heard_world() -> Option<(World, Endpoint)> {
    let endpoint = Endpoint::start().await;
    let mut key = KEY.to_vec();
    key.push(("ANTHROPIC_API_KEY", "dummy".to_owned()));
    Some((world_of(&endpoint, &key).await?, endpoint))
}

fn script(turns: &Value) -> String {
    format!("SCRIPT:{turns}")
}

fn bash(command: &str) -> Value {
    json!({"tool": "Bash", "input": {"command": command, "description": "x"}})
}

fn grant(request: &PermissionRequest, part: &str) -> Grant {
    let found = request.grants.iter().find(|g| g.native.contains(part)).cloned();
    found.unwrap_or_else(|| panic!("no {part} in {:?}", request.grants))
}

fn granting(request: &PermissionRequest, part: &str) -> Answer {
    Answer { grants: vec![grant(request, part).native], ..approve(None) }
}

fn modes(world: &World) -> Vec<String> {
    let seen = world.server.seen.lock().unwrap();
    let modes = seen.events.iter().filter_map(|e| match &e.body {
        EventBody::Mode { mode } => Some(mode.clone()),
        _ => None,
    });
    modes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_command_runs_instead_and_the_model_is_told() {
    let Some((world, endpoint)) = heard_world().await else { return };
    let run = world.begin(&appending(&world, &["asked"])).await;
    let asked = world.request(0).await;
    let edited = format!(r#"{{"command":"echo ran >> {}/work/edited"}}"#, world.folder.display());
    let answer = Answer { edited_input: Some(edited), ..approve(None) };
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!((world.file("asked"), world.file("edited").as_deref()), (None, Some("ran\n")));
    let last = endpoint.heard().last().unwrap().text();
    assert!(last.contains("A person changed your Bash call") && last.contains("work/edited"), "{last}");
    assert_eq!(world.server.seen.lock().unwrap().requests.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_refusal_that_stops_are_kept_for_the_model() {
    let Some((world, endpoint)) = heard_world().await else { return };
    let run = world.begin(&appending(&world, &["x", "y"])).await;
    let asked = world.request(0).await;
    let answer = Answer { stop: true, ..reject(None, Some("Stop: that bucket is live.")) };
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Cancelled);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Refused);
    let next = world.begin("SCRIPT:[[{\"text\":\"hi\"}]]").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    let last = endpoint.heard().last().unwrap().text();
    assert!(last.contains("Stop: that bucket is live."), "{last}");
    assert_eq!((world.file("x"), world.file("y")), (None, None));
    assert_eq!(world.pid(next).await, world.pid(run).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_for_the_session_covers_the_like_and_is_never_written_down() {
    let Some(world) = world().await else { return };
    let turns = json!([[bash("touch one")], [bash("touch one")], [bash("mkdir two")], [{"text": "end"}]]);
    let run = world.begin(&script(&turns)).await;
    let asked = world.request(0).await;
    assert!(asked.0.grants.iter().all(|g| g.native.contains(r#""destination":"session""#)));
    let answer = granting(&asked.0, "addRules");
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    // The second is covered, the third is not.
    let other = world.request(1).await;
    assert!(String::from_utf8_lossy(&other.0.input.0).contains("mkdir two"));
    world.resolve(&other, reject(None, Some("No."))).await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert!(world.file("one").is_some() && !world.folder.join("work/two").exists());
    assert!(!world.folder.join("work/.claude").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_granted_by_a_person_lasts_over_runs_of_the_process() {
    let Some(world) = world().await else { return };
    let work = world.folder.join("work").display().to_string();
    let write = |name: &str| json!({"tool": "Write", "input": {"file_path": format!("{work}/{name}"), "content": "x"}});
    let run = world.begin(&script(&json!([[write("a")], [write("b")], [{"text": "end"}]]))).await;
    let asked = world.request(0).await;
    let answer = granting(&asked.0, "acceptEdits");
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let next = world.begin(&script(&json!([[write("c")], [{"text": "end"}]]))).await;
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    assert_eq!(world.pid(next).await, world.pid(run).await);
    assert!(["a", "b", "c"].iter().all(|name| world.file(name).is_some()));
    assert_eq!(world.server.seen.lock().unwrap().requests.len(), 1);
    assert!(modes(&world).contains(&"acceptEdits".to_owned()));
    // As the words of the grant say: files are moved and deleted too, other commands ask.
    let words = &grant(&asked.0, "acceptEdits").words;
    assert!(words.contains("move and delete") && words.contains("other commands still ask"), "{words}");
    let last = world
        .begin(&script(
            &json!([[bash("mv a moved")], [bash("rm b")], [bash("sh -c 'echo 1 > n'")], [{"text": "end"}]]),
        ))
        .await;
    let other = world.request(1).await;
    assert!(String::from_utf8_lossy(&other.0.input.0).contains("sh -c"));
    assert_eq!((world.file("a"), world.file("b"), world.file("moved").as_deref()), (None, None, Some("x")));
    world.resolve(&other, approve(None)).await;
    assert_eq!(world.ended(last).await, (RunStatus::Completed, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_gets_its_answers_and_a_plain_yes_is_never_given() {
    let Some(world) = world().await else { return };
    let question = json!({"questions": [
        {"question": "Which?", "header": "H", "multiSelect": false, "options": [
            {"label": "A", "description": "a"}, {"label": "B", "description": "b"}]},
        {"question": "Many?", "header": "M", "multiSelect": true, "options": [
            {"label": "X", "description": "x"}, {"label": "Y", "description": "y"}]}]});
    let turns = json!([[{"tool": "AskUserQuestion", "input": question}], [{"text": "end"}]]);
    let run = world.begin(&script(&turns)).await;
    let asked = world.request(0).await;
    let content = r#"{"answers":{"Many?":"X, Y","Which?":"neither of them"}}"#;
    let answer = Answer { content: Some(content.to_owned()), ..approve(None) };
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let (said, _) = &output(&world)[0];
    assert!(said.contains("neither of them") && said.contains("X, Y"), "{said}");

    let run = world.begin(&script(&turns)).await;
    let asked = world.request(1).await;
    let reply = world.resolve(&asked, approve(None)).await;
    assert_eq!(reply.outcome, ResolveOutcome::DigestMismatch);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let (said, is_error) = &output(&world)[1];
    assert!(*is_error && said.contains("cannot be handed over"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_sent_back_with_comments_and_approved_then() {
    let Some(mut world) = world().await else { return };
    world.mode = "plan".into();
    let plan = json!({"tool": "ExitPlanMode", "input": {"plan": "# Plan"}});
    let turns = json!([[plan], [plan], [bash("touch done")], [{"text": "end"}]]);
    let run = world.begin(&script(&turns)).await;
    let first = world.request(0).await;
    assert_eq!(first.0.mode, "plan");
    world.resolve(&first, reject(None, Some("Smaller steps."))).await;
    let second = world.request(1).await;
    assert_eq!(output(&world)[0], ("Smaller steps.".to_owned(), true));
    world.resolve(&second, approve(None)).await;
    let command = world.request(2).await;
    assert_eq!(command.0.tool, "Bash");
    world.resolve(&command, approve(None)).await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.file("done").is_some());
    assert!(modes(&world).ends_with(&["default".to_owned()]));
    // The agent plans: its next message does too.
    let next = world.begin(&script(&json!([[plan], [{"text": "end"}]]))).await;
    world.resolve(&world.request(3).await, reject(None, None)).await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    assert!(modes(&world).ends_with(&["plan".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_for_everything_asks_for_what_runs_otherwise() {
    let Some(mut world) = world().await else { return };
    let turns = json!([[bash("ls")], [{"text": "end"}]]);
    let run = world.begin(&script(&turns)).await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert!(world.server.seen.lock().unwrap().requests.is_empty());
    world.asks_everything = true;
    let run = world.begin(&script(&turns)).await;
    let asked = world.request(0).await;
    world.resolve(&asked, approve(None)).await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
}
