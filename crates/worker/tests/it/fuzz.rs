//! Everything that reads what it does not trust, with hostile input: nothing panics,
//! nothing grows, and nothing is ever answered with an allow.

use std::io::Write as _;

use domain::{
    action,
    approval::AskOption,
    decision::{Answer, Outcome},
    edit,
    id::{DecisionId, RunId},
    question::Questions,
    run::RunStatus,
};
use link::{
    frame::{Frame, MAX_FRAME, body},
    message::{self, EffectKind, ResolveOutcome},
};
use proptest::{collection::vec, prelude::*, strategy::ValueTree as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;
use worker::{
    bounds,
    drivers::{Ask, Driver, Step, acp::Acp, claude::Claude},
    hold::wire::{FromHolder, ToHolder},
    journal::{Journal, State},
};

use crate::{
    dialogue::{Agent, Course, Dialogue},
    hostile::{Raw, bytes, changed, changed_line, fuzz, recorded},
    world::{World, approve},
};

const CLAUDE: &str = include_str!("../recorded/claude.jsonl");
const ACP: &str = include_str!("../recorded/acp.jsonl");
const LINK: &str = include_str!("../recorded/link.jsonl");

// ---- the link

/// Reads it as a message; what can be read can be written and read again.
fn reads<M: Serialize + DeserializeOwned>(raw: &RawValue) {
    if let Ok(message) = body::<M>(raw) {
        let text = serde_json::value::to_raw_value(&message).unwrap();
        assert!(body::<M>(&text).is_ok(), "{text}");
    }
}

fn reads_as_anything(raw: &RawValue) {
    reads::<message::Hello>(raw);
    reads::<message::Welcome>(raw);
    reads::<message::Heartbeat>(raw);
    reads::<message::Acknowledge>(raw);
    reads::<message::Drain>(raw);
    reads::<message::Prompt>(raw);
    reads::<message::PromptReply>(raw);
    reads::<message::Cancel>(raw);
    reads::<message::CancelReply>(raw);
    reads::<message::Finish>(raw);
    reads::<message::Close>(raw);
    reads::<message::SessionEvent>(raw);
    reads::<message::PermissionRequest>(raw);
    reads::<message::PermissionStored>(raw);
    reads::<message::Resolve>(raw);
    reads::<message::ResolveReply>(raw);
    reads::<message::Withdrawn>(raw);
    reads::<message::Effect>(raw);
    reads::<()>(raw);
}

fn frame(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(frame) = Frame::parse(&text) else { return };
    match &frame {
        Frame::Call { params, .. } | Frame::Notify { params, .. } => reads_as_anything(params),
        Frame::Answer { result: Ok(raw), .. } => reads_as_anything(raw),
        Frame::Answer { result: Err(_), .. } => {}
    }
    let written = frame.to_text();
    assert_eq!(Frame::parse(&written).map(Frame::to_text), Ok(written));
}

#[test]
fn every_recorded_frame_reads() {
    for line in recorded(LINK) {
        assert_eq!(Frame::parse(line).map(Frame::to_text).as_deref(), Ok(line));
    }
}

#[test]
fn the_frame_decoder_stands_anything() {
    fuzz(6000, changed(recorded(LINK)), |Raw(bytes)| frame(&bytes));
    fuzz(2000, bytes(), |Raw(bytes)| frame(&bytes));
}

/// What this process holds in memory, in kilobytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Run in a process of its own: what other tests hold would count too.
#[test]
#[ignore = "measured in a process of its own by the test below"]
fn frames_one_after_another() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = changed(recorded(LINK));
    let frames: Vec<Vec<u8>> =
        (0..1000).map(|_| strategy.new_tree(&mut runner).unwrap().current().0).collect();
    let all = || frames.iter().for_each(|bytes| frame(bytes));
    all();
    let before = resident();
    (0..20).for_each(|_| all());
    let after = resident();
    assert!(after < before + 8 * 1024, "from {before} kB to {after} kB over 20,000 frames");
}

#[test]
fn the_frame_decoder_does_not_grow_over_20_000_hostile_frames() {
    let tests = std::env::current_exe().unwrap();
    let mut alone = std::process::Command::new(tests);
    alone.args(["--exact", "fuzz::frames_one_after_another", "--ignored"]);
    let output = alone.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_frame_over_the_limit_is_refused_before_it_is_read() {
    let long = format!(r#"{{"jsonrpc":"2.0","method":"x","params":"{}"}}"#, "x".repeat(MAX_FRAME));
    assert!(Frame::parse(&long).is_err());
    // Not by the stack.
    let deep = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{}"#, "[".repeat(MAX_FRAME / 2));
    assert!(Frame::parse(&deep).is_err());
}

// ---- drivers

/// What the state of a driver may be, as it is journalled with each line.
const STATE_MAX: usize = 512 * 1024;

fn claudes() -> Vec<Driver> {
    let new = || Claude::new("s".into(), "default".into(), "/w/repo".into(), false);
    let mut ready = Driver::Claude(new());
    ready.start();
    let steps = ready.line(r#"{"type":"control_response","response":{"subtype":"success","request_id":"countersign-initialize-1","response":{"session_state":"idle","current_permission_mode":"default"},"pending_permission_requests":[]}}"#);
    assert!(steps.contains(&Step::Ready));
    let mut prompted = ready.clone();
    prompted.prompt(RunId(Uuid::nil()), "go");
    let mut starting = Driver::Claude(new());
    starting.start();
    // The recorded list answers the second one.
    starting.reattach();
    vec![starting, ready, prompted]
}

fn acps() -> Vec<Driver> {
    let mut starting = Driver::Acp(Acp::new("ask".into(), "/w/repo".into()));
    starting.start();
    let mut ready = starting.clone();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","modes":{"currentModeId":"ask"}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
    ] {
        ready.line(line);
    }
    assert!(ready.is_ready());
    let mut prompted = ready.clone();
    prompted.prompt(RunId(Uuid::nil()), "go");
    vec![starting, ready, prompted]
}

/// The recorded lines of the agent, as of the session the drivers here are in.
fn acp_lines() -> Vec<&'static str> {
    let session = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        if let Some(id) = value.pointer_mut("/params/sessionId") {
            *id = "s".into();
        }
        // In the order of the wire as far as it matters: one line of text.
        let text: &'static str = value.to_string().leak();
        text
    };
    recorded(ACP).into_iter().map(session).collect()
}

/// A line to a harness is one JSON object, and allows nothing.
fn allows_nothing(line: &str) {
    assert!(!line.contains('\n'), "{line}");
    assert!(line.starts_with('{') && serde_json::from_str::<&RawValue>(line).is_ok(), "{line}");
    // An id is given back as it came, and may be deeper or larger than a `Value` can be.
    let Ok(value) = serde_json::from_str::<Value>(line) else { return };
    assert_ne!(value.pointer("/response/response/behavior"), Some(&"allow".into()), "{line}");
    let outcome = value.pointer("/result/outcome/outcome");
    assert!(outcome.is_none() || outcome == Some(&"cancelled".into()), "{line}");
}

/// A refusal chooses an answer that rejects, or none.
fn refuses(line: &str, options: &[AskOption]) {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let chosen = value.pointer("/result/outcome/optionId").and_then(Value::as_str);
    if let Some(chosen) = chosen {
        let all = options.iter().filter(|o| o.id == chosen).collect::<Vec<_>>();
        assert!(all.iter().any(|o| o.kind.starts_with("reject")), "{line}");
    } else {
        allows_nothing(line);
    }
}

fn ask(driver: &Driver, ask: &Ask) {
    refuses(&driver.refuse(&ask.native_id, &ask.options, "No."), &ask.options);
    let decision = DecisionId(Uuid::nil());
    for outcome in [Outcome::Reject, Outcome::Expire] {
        let answered = driver.answer(ask, decision, &Answer::plain(outcome)).unwrap();
        refuses(&answered.line, &ask.options);
    }
    for option in ask.options.iter().filter(|o| o.kind.starts_with("reject")) {
        let approve = Answer { option_id: Some(option.id.clone()), ..Answer::plain(Outcome::Approve) };
        let doubtful = ask.options.iter().any(|o| o.id == option.id && !o.kind.starts_with("reject"));
        assert!(doubtful || driver.answer(ask, decision, &approve).is_err(), "{ask:?}");
    }
    if let Ok(answered) = driver.answer(ask, decision, &Answer::plain(Outcome::Approve)) {
        assert!(!answered.line.contains('\n'));
        assert!(serde_json::from_str::<&RawValue>(&answered.line).is_ok(), "{}", answered.line);
        if matches!(driver, Driver::Claude(_)) {
            let input = std::str::from_utf8(&ask.input.0).unwrap();
            assert!(answered.line.contains(input), "{}", answered.line);
        }
    }
    if bounds::fits(ask) {
        assert!(serde_json::to_vec(ask).unwrap().len() < MAX_FRAME);
    }
}

fn step(driver: &Driver, step: Step) {
    match step {
        Step::Write(line) => allows_nothing(&line),
        Step::Event(event) => {
            let size = serde_json::to_vec(&bounds::event(event)).unwrap().len();
            assert!(size < MAX_FRAME / 4, "an event of {size} bytes");
        }
        Step::Ask(one) => ask(driver, &one),
        Step::Listed(all) => all.iter().for_each(|one| ask(driver, one)),
        Step::Fatal(_)
        | Step::Idle { .. }
        | Step::NativeSession(_)
        | Step::Ready
        | Step::Withdrawn { .. } => {}
    }
}

fn size(driver: &Driver) -> usize {
    let text = serde_json::to_string(driver).unwrap();
    assert_eq!(serde_json::from_str::<Driver>(&text).unwrap(), *driver, "it does not read back as it was");
    text.len()
}

/// Feeds lines to drivers in every phase.
fn drive(drivers: &[Driver], lines: &[String]) {
    for driver in drivers {
        let mut driver = driver.clone();
        for line in lines {
            for one in driver.line(line) {
                step(&driver, one);
            }
            if let Some(refusal) = driver.refuse_left_out(line) {
                allows_nothing(&refusal);
            }
        }
        for one in driver.flush() {
            step(&driver, one);
        }
        let size = size(&driver);
        assert!(size < STATE_MAX, "a state of {size} bytes");
    }
}

#[test]
fn claudes_lines_are_stood_whatever_they_are() {
    let drivers = claudes();
    fuzz(4000, vec(changed_line(recorded(CLAUDE)), 1..8), |lines| drive(&drivers, &lines));
}

#[test]
fn an_acp_agents_lines_are_stood_whatever_they_are() {
    let drivers = acps();
    fuzz(4000, vec(changed_line(acp_lines()), 1..8), |lines| drive(&drivers, &lines));
}

/// So many hostile lines into one driver, each with ids of its own.
fn does_not_grow(driver: &mut Driver, lines: Vec<&'static str>) {
    const LINES: usize = 100_000;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = changed_line(lines.clone());
    let mut pool: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
    while pool.len() < 400 {
        let line = strategy.new_tree(&mut runner).unwrap().current();
        if line.len() < 3000 {
            pool.push(line);
        }
    }
    for n in 0..LINES {
        let line = &pool[n % pool.len()];
        // A state of its own for each id, were it kept.
        let line = line
            .replace("toolu_", &format!("toolu_{n}_"))
            .replace("call_", &format!("call_{n}_"))
            .replace(r#""task_id":""#, &format!(r#""task_id":"{n}"#));
        driver.line(&line);
        if n % 5000 == 0 {
            let size = size(driver);
            assert!(size < STATE_MAX, "a state of {size} bytes after {n} lines");
        }
    }
    // The same with ids as long as a line may be.
    for n in 0..300 {
        let id = format!("{n}{}", "x".repeat(40_000));
        for line in &lines {
            let line = line
                .replace("toolu_", &format!("toolu_{id}_"))
                .replace("call_", &format!("call_{id}_"))
                .replace(r#""task_id":""#, &format!(r#""task_id":"{id}"#))
                .replace(r#""currentModeId":""#, &format!(r#""currentModeId":"{id}"#))
                .replace(r#""session_id":""#, &format!(r#""session_id":"{id}"#));
            driver.line(&line);
        }
    }
    let size = size(driver);
    assert!(size < STATE_MAX, "a state of {size} bytes");
}

#[test]
fn claudes_driver_does_not_grow_over_100_000_hostile_lines() {
    let lines = recorded(CLAUDE).into_iter().filter(|l| l.len() < 1000).collect();
    does_not_grow(&mut claudes().pop().unwrap(), lines);
}

#[test]
fn the_acp_driver_does_not_grow_over_100_000_hostile_lines() {
    does_not_grow(&mut acps().pop().unwrap(), acp_lines());
}

#[test]
fn a_request_with_an_endless_name_is_no_request() {
    let line = recorded(CLAUDE).into_iter().find(|l| l.contains(r#""tool_name":"Bash""#)).unwrap();
    let line = line.replace(r#""tool_name":"Bash""#, &format!(r#""tool_name":"{}""#, "x".repeat(100_000)));
    let mut driver = claudes().pop().unwrap();
    let asked = driver.line(&line).into_iter().find_map(|s| match s {
        Step::Ask(ask) => Some(ask),
        _ => None,
    });
    assert!(!bounds::fits(&asked.unwrap()));
}

// ---- what is shown

/// Views an action; what is made of it is no more than a multiple of it.
fn view(tool: &str, input: &[u8]) {
    let view = action::view(tool, "/w/repo", input);
    let shown = serde_json::to_vec(&view).unwrap().len();
    assert!(shown < 4096 + 128 * (input.len() + tool.len()), "{shown} bytes of {}", input.len());
    assert!(view.title().len() < 4096);
    action::words_in(input);
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = edit::check(text);
    }
    if let Some(questions) = Questions::read(input) {
        assert!(!questions.are_answered_by("") && !questions.are_answered_by("{}"));
    }
}

#[test]
fn any_action_can_be_shown() {
    const INPUTS: &[&str] = &[
        r#"{"command":"echo ok\nrm -rf ~","description":"List files","timeout":9007199254740993}"#,
        r#"{"file_path":"/w/a.txt","old_string":"a","new_string":"b\u202e"}"#,
        r#"{"questions":[{"question":"Which?","header":"H","options":[{"label":"A","description":"a"}],"multiSelect":false}]}"#,
        r#"{"plan":"1. Do it","url":"https://x","a":[1.0,{"b":null}]}"#,
    ];
    let tools =
        || prop::sample::select(&["Bash", "Write", "AskUserQuestion", "ExitPlanMode", "\u{200b}x"][..]);
    fuzz(4000, (tools(), changed(INPUTS.to_vec())), |(tool, Raw(input))| view(tool, &input));
    fuzz(2000, (any::<String>(), bytes()), |(tool, Raw(input))| view(&tool, &input));
}

#[test]
fn a_deep_action_is_shown_without_growing() {
    for n in [100, 1000, 50_000, 1_000_000] {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        view("mcp__x__y", deep.as_bytes());
        let wide = format!(r#"{{"a":[[[[[[[[[[[[[[[[[[[[{}]]]]]]]]]]]]]]]]]]]]}}"#, vec!["0"; n].join(","));
        view("mcp__x__y", wide.as_bytes());
    }
}

// ---- the holder

#[test]
fn the_holders_messages_are_stood_whatever_they_are() {
    const LINES: &[&str] = &[
        r#"{"is":"hello","held":{"incarnation":"00000000-0000-0000-0000-000000000000","socket":"/s","holder":1,"pid":2,"started":3},"start":0,"end":9}"#,
        r#"{"is":"line","offset":0,"next":9}"#,
        r#"{"is":"left_out","offset":0,"next":9,"bytes":9000000,"head":"{"}"#,
        r#"{"is":"written","id":"answer:1"}"#,
        r#"{"is":"exit","exit":{"code":null,"signal":9,"stderr":""}}"#,
        r#"{"is":"from","offset":18446744073709551615}"#,
        r#"{"is":"write","id":"x","text":"y"}"#,
        r#"{"is":"posted","offset":7}"#,
        r#"{"is":"kill"}"#,
    ];
    fuzz(4000, changed(LINES.to_vec()), |Raw(bytes)| {
        if let Ok(message) = serde_json::from_slice::<FromHolder>(&bytes) {
            assert!(serde_json::from_slice::<FromHolder>(&serde_json::to_vec(&message).unwrap()).is_ok());
        }
        if let Ok(message) = serde_json::from_slice::<ToHolder>(&bytes) {
            assert!(serde_json::from_slice::<ToHolder>(&serde_json::to_vec(&message).unwrap()).is_ok());
        }
    });
}

// ---- the journal

/// The journal of a dialogue that was had.
async fn journal() -> Vec<u8> {
    let mut dialogue = Dialogue::new(Agent::Shell, Course::Approve, "recorded".to_owned()).await;
    dialogue.world.spawn(&[]);
    dialogue.play().await;
    let path = dialogue.world.data.join("sessions").join(dialogue.world.session.to_string());
    std::fs::read(path.join("journal.jsonl")).unwrap()
}

/// What a journal of these bytes comes to, where it can be read.
fn opened(bytes: &[u8]) -> Option<State> {
    let path = std::env::temp_dir().join(format!("cs-journal-{}", Uuid::new_v4()));
    std::fs::write(&path, bytes).unwrap();
    let state = Journal::open(&path).ok().map(|(_, state)| state);
    assert!(std::fs::metadata(&path).unwrap().len() <= bytes.len() as u64, "it has grown");
    if let Some(state) = &state {
        assert_eq!(Journal::open(&path).ok().map(|(_, state)| state).as_ref(), Some(state));
    }
    std::fs::remove_file(path).unwrap();
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_read_as_it_was_or_not_at_all() {
    let whole = journal().await;
    let text: &'static str = String::from_utf8(whole).unwrap().leak();
    tokio::task::spawn_blocking(move || {
        // Cut anywhere, it is what its whole lines come to.
        for end in (0..text.len()).step_by(7) {
            let whole_lines = text[..end].rfind('\n').map_or(0, |at| at + 1);
            assert_eq!(opened(&text.as_bytes()[..end]), opened(&text.as_bytes()[..whole_lines]), "at {end}");
        }
        // Changed anywhere, it is read or refused.
        let lines: Vec<&'static str> = text.lines().collect();
        let count = lines.len();
        fuzz(1500, (0..count, changed_line(lines.clone())), |(at, line)| {
            let mut all = lines.clone();
            all[at] = &line;
            opened(format!("{}\n", all.join("\n")).as_bytes());
        });
        fuzz(500, bytes(), |Raw(bytes)| {
            opened(&bytes);
        });
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_stands_garbage_and_its_request_still_waits() {
    const LINES: &[&str] =
        &[r#"{"is":"from","offset":18446744073709551615}"#, r#"{"is":"posted","offset":7}"#];
    let script = "ask 7 one; take; echo ran >> effects; result c7; over; cat";
    let mut world = World::scripted(script).await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    world.kill().await;
    let session = world.data.join("sessions").join(world.session.to_string());
    let incarnation = asked.0.request_key.incarnation.to_string();
    let described = std::fs::read(session.join(incarnation).join("holder.json")).unwrap();
    let held: worker::hold::wire::Held = serde_json::from_slice(&described).unwrap();
    tokio::task::spawn_blocking(move || {
        fuzz(100, vec(changed(LINES.to_vec()), 0..20), |lines| {
            let mut socket = std::os::unix::net::UnixStream::connect(&held.socket).unwrap();
            for Raw(line) in lines {
                // It may have hung up already.
                let _ = socket.write_all(&line).and_then(|()| socket.write_all(b"\n"));
            }
        });
    })
    .await
    .unwrap();
    world.start().await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("effects").as_deref(), Some("ran\n"));
    world.no_gap();
}
