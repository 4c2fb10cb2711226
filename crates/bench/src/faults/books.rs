//! Three books compared: what people decided, as the deciding side noted it; what the
//! product has stored; what the harnesses really did, as their ledgers say.

use std::collections::{HashMap, HashSet};

use domain::digest::{ActionDigest, ActionFields};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

/// What a person meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    pub approve: bool,
    pub message: Option<String>,
    /// The command typed over the one asked for.
    pub edit: Option<String>,
    /// The label picked, where a question was asked.
    pub pick: Option<String>,
    pub stop: bool,
}

/// How the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Stored,
    Refused(String),
    /// The connection broke, or it could not say.
    Unsure,
}

/// One decision as it was sent.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub approval: Uuid,
    /// The digest that was shown and sent.
    pub digest: String,
    pub meant: Meant,
    pub told: Told,
}

/// A decision as it is stored.
#[derive(Clone, Debug)]
pub struct Decided {
    /// False where it expired.
    pub by_person: bool,
    pub outcome: String,
    pub message: Option<String>,
    pub stop: bool,
    pub edited_input: Option<String>,
    /// Answers to questions, as JSON text.
    pub content: Option<String>,
    pub delivery: String,
    pub note: Option<String>,
    /// Milliseconds since 1970.
    pub at: u64,
    pub applied: bool,
}

/// An approval as it is stored.
#[derive(Clone, Debug)]
pub struct Approval {
    pub id: Uuid,
    pub worker: Uuid,
    pub incarnation: Uuid,
    pub request_key: String,
    pub harness: String,
    pub tool: String,
    pub folder: String,
    pub sub_agent: Option<String>,
    pub input: Vec<u8>,
    pub digest: Vec<u8>,
    pub status: String,
    pub decision: Option<Decided>,
}

impl Approval {
    fn native_id(&self) -> &str {
        self.request_key.split_once('/').map_or("", |(_, id)| id)
    }

    fn digest_of(&self, input: &[u8]) -> ActionDigest {
        ActionDigest::of(ActionFields {
            request_key: &self.request_key,
            harness: &self.harness,
            tool: &self.tool,
            folder: &self.folder,
            sub_agent: self.sub_agent.as_deref(),
            input,
        })
    }
}

/// One line of a ledger.
#[derive(Clone, Debug)]
pub struct Effect {
    pub by: By,
    pub ran: bool,
    /// Claude: the input as it ran. Demo: the line.
    pub what: String,
    pub reason: Option<String>,
    /// Milliseconds since 1970, where it is known.
    pub at: Option<u64>,
}

/// What joins a line of a ledger to an approval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The id of the request: of the scripted Claude.
    Request(String),
    /// The mark in what was written: of the demo agent.
    Mark(String),
}

/// A line of the scripted Claude's ledger.
pub fn of_claude(line: &str) -> Option<Effect> {
    #[derive(Deserialize)]
    struct Line<'a> {
        became: String,
        request_id: Option<String>,
        #[serde(borrow)]
        input: &'a RawValue,
        reason: Option<String>,
        at: u64,
    }
    let line: Line<'_> = serde_json::from_str(line).ok()?;
    Some(Effect {
        by: By::Request(line.request_id?),
        ran: line.became == "ran",
        what: line.input.get().to_owned(),
        reason: line.reason,
        at: Some(line.at),
    })
}

/// A line the demo agent wrote: a mark, and the time where a command wrote it.
pub fn of_demo(line: &str) -> Effect {
    let (mark, at) = match line.split_once(' ') {
        Some((mark, at)) => (mark, at.parse().ok()),
        None => (line, None),
    };
    Effect { by: By::Mark(mark.to_owned()), ran: true, what: line.to_owned(), reason: None, at }
}

/// What the demo agent is told, for a mark: to write it, or to run a command that does.
pub fn demo_step(mark: &str) -> String {
    if mark.starts_with("run") {
        format!("run: {}", demo_command(mark))
    } else {
        format!("append ledger.txt: {mark}")
    }
}

fn demo_command(mark: &str) -> String {
    format!("echo \"{mark} $(date +%s%3N)\" >> ledger.txt")
}

/// The mark a demo agent's request would write, if it is one it was told.
fn mark_of(input: &[u8]) -> Option<String> {
    let input: Value = serde_json::from_slice(input).ok()?;
    if let Some(content) = input["content"].as_str() {
        return content.strip_suffix('\n').map(str::to_owned);
    }
    let command = input["command"].as_str()?;
    let mark = command.strip_prefix("echo \"")?.split(' ').next()?.to_owned();
    (command == demo_command(&mark)).then_some(mark)
}

/// The mark in the command a scripted Claude asks for.
fn mark_of_claude(input: &[u8]) -> Option<String> {
    let input: Value = serde_json::from_slice(input).ok()?;
    if let Some(question) = input["questions"][0]["question"].as_str() {
        return question.strip_prefix("Which of ")?.strip_suffix('?').map(str::to_owned);
    }
    input["command"].as_str()?.strip_prefix("touch ")?.split(' ').next().map(str::to_owned)
}

/// A question that holds a mark, as an input.
pub fn question(mark: &str) -> String {
    format!(
        r#"{{"questions":[{{"question":"Which of {mark}?","header":"Which","multiSelect":false,"options":[{{"label":"Left","description":"The left one"}},{{"label":"Right","description":"The right one"}}]}}]}}"#
    )
}

/// What is wrong, with whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    pub kind: Kind,
    pub approval: Option<Uuid>,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lost,
    Doubled,
    Misapplied,
    AfterRefusal,
    /// Unknown, although the process was not killed.
    Unexplained,
}

/// The counts and whatever is wrong.
#[derive(Debug, Default)]
pub struct Compared {
    pub decided: u64,
    /// Of those, by the demo agent's requests.
    pub by_demo: u64,
    pub applied: u64,
    pub effect: u64,
    pub not_applied: u64,
    pub unknown: u64,
    /// Decided in one life of the worker and acted on in a later one.
    pub reattached: u64,
    pub ran: u64,
    pub edited: u64,
    pub answered: u64,
    /// Refused because nobody decided in time.
    pub expired: u64,
    pub offenders: Vec<Offender>,
}

impl Compared {
    fn wrong(&mut self, kind: Kind, approval: Option<Uuid>, what: impl Into<String>) {
        self.offenders.push(Offender { kind, approval, what: what.into() });
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.offenders.iter().filter(|o| o.kind == kind).count()
    }

    pub fn json(&self) -> Value {
        json!({
            "decided": self.decided, "by_demo": self.by_demo, "applied": self.applied, "effect": self.effect,
            "not_applied": self.not_applied, "unknown": self.unknown, "reattached": self.reattached,
            "ran": self.ran, "edited": self.edited, "answered": self.answered, "expired": self.expired,
            "lost": self.count(Kind::Lost), "doubled": self.count(Kind::Doubled),
            "misapplied": self.count(Kind::Misapplied), "after_refusal": self.count(Kind::AfterRefusal),
            "unexplained": self.count(Kind::Unexplained),
        })
    }
}

/// What the comparison needs besides the books.
#[derive(Debug, Default)]
pub struct Known {
    /// Incarnations whose process was killed, or told to die.
    pub killed: HashSet<Uuid>,
    /// When each worker was started, in milliseconds since 1970.
    pub lives: HashMap<Uuid, Vec<u64>>,
    /// The stock words of the product where a person gave none.
    pub without_words: &'static str,
}

impl Known {
    fn life(&self, worker: Uuid, at: u64) -> usize {
        self.lives.get(&worker).map_or(0, |starts| starts.iter().filter(|s| **s <= at).count())
    }
}

/// Compares the three.
pub fn compare(approvals: &[Approval], attempts: &[Attempt], effects: &[Effect], known: &Known) -> Compared {
    let mut all = Compared::default();
    let mut by_approval: HashMap<Uuid, Vec<&Attempt>> = HashMap::new();
    for attempt in attempts {
        by_approval.entry(attempt.approval).or_default().push(attempt);
    }
    let mut by_line: HashMap<&By, Vec<&Effect>> = HashMap::new();
    for effect in effects {
        by_line.entry(&effect.by).or_default().push(effect);
    }
    let mut marks: HashMap<By, Uuid> = HashMap::new();
    let mut prompted = HashSet::new();
    for approval in approvals {
        let by = if approval.harness == "claude" {
            let mark = mark_of_claude(&approval.input);
            if mark.is_none_or(|mark| !prompted.insert(mark)) {
                all.wrong(
                    Kind::Doubled,
                    Some(approval.id),
                    "what it asks for was prompted once and asked twice",
                );
            }
            By::Request(approval.native_id().to_owned())
        } else {
            let Some(mark) = mark_of(&approval.input) else {
                all.wrong(Kind::Misapplied, Some(approval.id), "what is stored was never asked for");
                continue;
            };
            By::Mark(mark)
        };
        if let Some(other) = marks.insert(by.clone(), approval.id) {
            all.wrong(Kind::Doubled, Some(approval.id), format!("the same was asked as in {other}"));
        }
        let lines = by_line.get(&by).map(Vec::as_slice).unwrap_or_default();
        let of_people = by_approval.remove(&approval.id).unwrap_or_default();
        one(&mut all, approval, &of_people, lines, known);
    }
    for (id, attempts) in by_approval {
        if attempts.iter().any(|a| a.told == Told::Stored) {
            all.wrong(Kind::Lost, Some(id), "decided, and the approval is not stored");
        }
    }
    for (by, lines) in by_line {
        if lines.iter().any(|l| l.ran) && !marks.contains_key(by) {
            all.wrong(Kind::AfterRefusal, None, format!("{by:?} ran and was never stored"));
        }
    }
    all
}

fn one(all: &mut Compared, approval: &Approval, people: &[&Attempt], lines: &[&Effect], known: &Known) {
    let id = Some(approval.id);
    let ran: Vec<&&Effect> = lines.iter().filter(|l| l.ran).collect();
    let refused: Vec<&&Effect> = lines.iter().filter(|l| !l.ran).collect();
    if ran.len() > 1 {
        all.wrong(Kind::Doubled, id, format!("it ran {} times", ran.len()));
    }
    let stored: Vec<&&Attempt> = people.iter().filter(|a| a.told == Told::Stored).collect();
    if stored.len() > 1 {
        all.wrong(Kind::Doubled, id, "two decisions were said to be stored");
    }
    let Some(decision) = approval.decision.as_ref() else {
        if !stored.is_empty() {
            all.wrong(Kind::Lost, id, "a decision was said to be stored and is not");
        }
        if !ran.is_empty() {
            all.wrong(Kind::AfterRefusal, id, format!("it ran without a decision ({})", approval.status));
        }
        if approval.status == "pending" {
            all.wrong(Kind::Lost, id, "it still waits after everything was over");
        }
        return;
    };
    // Between the two books of decisions.
    if decision.by_person {
        all.decided += 1;
        all.by_demo += u64::from(approval.harness == "demo");
        all.applied += u64::from(decision.applied);
        let fits = |a: &&&Attempt| meant(&a.meant, decision, known) && a.digest == hex(&approval.digest);
        let candidates: Vec<&&Attempt> = if stored.is_empty() {
            people.iter().filter(|a| a.told == Told::Unsure).collect()
        } else {
            stored
        };
        if !candidates.iter().any(fits) {
            all.wrong(Kind::Misapplied, id, format!("nobody decided what is stored: {decision:?}"));
        }
        match decision.delivery.as_str() {
            "effect" => all.effect += 1,
            "not_applied" | "void" => all.not_applied += 1,
            "outcome_unknown" => all.unknown += 1,
            open => all.wrong(Kind::Lost, id, format!("its decision ended as {open}")),
        }
    } else if stored.is_empty() {
        all.expired += 1;
    } else {
        all.wrong(Kind::Misapplied, id, "it expired after a decision was said to be stored");
    }
    if decision.delivery == "outcome_unknown" && !known.killed.contains(&approval.incarnation) {
        all.wrong(
            Kind::Unexplained,
            id,
            format!("unknown, and its process was not killed: {:?}", decision.note),
        );
    }
    // Between the decision and the ledger.
    let approved = decision.outcome == "approve";
    let delivered = !matches!(decision.delivery.as_str(), "not_applied" | "void");
    if !ran.is_empty() && !approved {
        all.wrong(Kind::AfterRefusal, id, "it ran although it was refused");
    }
    if !ran.is_empty() && approved && !delivered {
        all.wrong(Kind::Misapplied, id, format!("it ran, and the receipt says {}", decision.delivery));
    }
    let note = decision.note.as_deref().unwrap_or_default();
    if approved && decision.delivery == "effect" && note == "It ran." && ran.is_empty() {
        all.wrong(Kind::Lost, id, "the receipt says that it ran, and the ledger has nothing");
    }
    for line in &ran {
        all.ran += 1;
        all.edited += u64::from(decision.edited_input.is_some());
        all.answered += u64::from(decision.content.is_some());
        if !same(approval, decision, &line.what) {
            all.wrong(Kind::Misapplied, id, format!("another thing ran: {}", line.what));
        }
        if let Some(at) = line.at
            && known.life(approval.worker, decision.at) < known.life(approval.worker, at)
        {
            all.reattached += 1;
        }
    }
    for line in refused {
        let reason = line.reason.as_deref().unwrap_or_default();
        let in_words = !approved && decision.message.as_deref() == Some(reason);
        let by_the_way = ["interrupted", "The request was taken back."].contains(&reason);
        if delivered && !in_words && !by_the_way {
            all.wrong(Kind::Misapplied, id, format!("it was refused in other words: {reason}"));
        }
    }
}

/// Whether a decision is the one a person meant.
fn meant(meant: &Meant, decision: &Decided, known: &Known) -> bool {
    let words = match (&meant.message, meant.approve) {
        (None, false) => Some(known.without_words),
        (message, _) => message.as_deref(),
    };
    let edit = |text: &str| {
        let input: Value = serde_json::from_str(text).unwrap_or_default();
        input["command"].as_str().map(str::to_owned)
    };
    (decision.outcome == "approve") == meant.approve
        && decision.stop == meant.stop
        && decision.message.as_deref() == words
        && decision.edited_input.as_deref().and_then(edit) == meant.edit
        && decision.content.as_deref().and_then(picked) == meant.pick
}

/// The one answer in answers to questions.
fn picked(content: &str) -> Option<String> {
    let content: Value = serde_json::from_str(content).ok()?;
    content["answers"].as_object()?.values().next()?.as_str().map(str::to_owned)
}

/// Whether what ran is byte for byte what was decided.
fn same(approval: &Approval, decision: &Decided, what: &str) -> bool {
    if approval.harness != "claude" {
        let Some(mark) = mark_of(&approval.input) else { return false };
        return what == mark
            || what.strip_prefix(&format!("{mark} ")).is_some_and(|at| at.parse::<u64>().is_ok());
    }
    if decision.content.is_some() {
        // The input with the answers added, and nothing else changed.
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let (mut ran, asked) = (read(what), read(&String::from_utf8_lossy(&approval.input)));
        let answers = ran.as_object_mut().and_then(|ran| ran.remove("answers")).unwrap_or_default();
        let given = read(decision.content.as_deref().unwrap_or_default());
        return ran == asked && answers == given["answers"];
    }
    match &decision.edited_input {
        Some(edited) => edited == what,
        None => approval.digest_of(what.as_bytes()).0.as_slice() == approval.digest,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &[u8] = br#"{"command": "touch one", "n":9007199254740993}"#;

    fn approval(outcome: Option<(&str, &str)>) -> Approval {
        let incarnation = Uuid::from_u128(7);
        let mut approval = Approval {
            id: Uuid::from_u128(1),
            worker: Uuid::from_u128(2),
            incarnation,
            request_key: format!("{incarnation}/r"),
            harness: "claude".into(),
            tool: "Bash".into(),
            folder: "/w".into(),
            sub_agent: None,
            input: INPUT.to_vec(),
            digest: Vec::new(),
            status: "approved".into(),
            decision: None,
        };
        approval.digest = approval.digest_of(INPUT).0.to_vec();
        approval.decision = outcome.map(|(outcome, delivery)| Decided {
            by_person: true,
            outcome: outcome.into(),
            message: (outcome != "approve").then(|| "no".into()),
            stop: false,
            edited_input: None,
            content: None,
            delivery: delivery.into(),
            note: Some("It ran.".into()),
            at: 15,
            applied: true,
        });
        approval
    }

    fn attempt(approve: bool, told: Told) -> Attempt {
        let message = (!approve).then(|| "no".to_owned());
        Attempt {
            approval: Uuid::from_u128(1),
            digest: hex(&approval(None).digest),
            meant: Meant { approve, message, edit: None, pick: None, stop: false },
            told,
        }
    }

    fn line(ran: bool, input: &[u8], reason: Option<&str>) -> Effect {
        Effect {
            by: By::Request("r".into()),
            ran,
            what: String::from_utf8_lossy(input).into_owned(),
            reason: reason.map(str::to_owned),
            at: Some(25),
        }
    }

    fn kinds(approval: Approval, attempts: &[Attempt], effects: &[Effect]) -> Vec<Kind> {
        let lives = HashMap::from([(Uuid::from_u128(2), vec![10, 20])]);
        let known = Known { lives, without_words: "stock", ..Known::default() };
        let all = compare(&[approval], attempts, effects, &known);
        all.offenders.iter().map(|o| o.kind).collect()
    }

    #[test]
    fn books_that_agree_have_no_offenders() {
        let ok = attempt(true, Told::Stored);
        let late = attempt(false, Told::Refused("first".into()));
        let ran = line(true, INPUT, None);
        assert_eq!(
            kinds(approval(Some(("approve", "effect"))), &[ok.clone(), late], std::slice::from_ref(&ran)),
            []
        );
        let unsure = attempt(true, Told::Unsure);
        assert_eq!(kinds(approval(Some(("approve", "effect"))), &[unsure], &[ran]), []);
        let refused = line(false, INPUT, Some("no"));
        assert_eq!(
            kinds(approval(Some(("reject", "effect"))), &[attempt(false, Told::Stored)], &[refused]),
            []
        );
    }

    #[test]
    fn each_kind_of_wrong_is_seen() {
        let ok = [attempt(true, Told::Stored)];
        let no = [attempt(false, Told::Stored)];
        let ran = line(true, INPUT, None);
        let approved = || approval(Some(("approve", "effect")));
        assert_eq!(kinds(approved(), &ok, &[ran.clone(), ran.clone()]), [Kind::Doubled]);
        assert_eq!(kinds(approved(), &ok, &[]), [Kind::Lost]);
        assert_eq!(kinds(approval(Some(("approve", "sent"))), &ok, &[]), [Kind::Lost]);
        assert_eq!(kinds(approval(None), &ok, &[]), [Kind::Lost]);
        assert_eq!(kinds(approval(None), &[], std::slice::from_ref(&ran)), [Kind::AfterRefusal]);
        assert_eq!(
            kinds(approval(Some(("reject", "effect"))), &no, std::slice::from_ref(&ran)),
            [Kind::AfterRefusal]
        );
        assert_eq!(kinds(approved(), &no, std::slice::from_ref(&ran)), [Kind::Misapplied]);
        let other = line(true, br#"{"command": "touch one", "n":9007199254740992}"#, None);
        assert_eq!(kinds(approved(), &ok, &[other]), [Kind::Misapplied]);
        assert_eq!(kinds(approval(Some(("approve", "not_applied"))), &ok, &[ran]), [Kind::Misapplied]);
        assert_eq!(kinds(approval(Some(("approve", "outcome_unknown"))), &ok, &[]), [Kind::Unexplained]);
        let words = line(false, INPUT, Some("other words"));
        assert_eq!(kinds(approval(Some(("reject", "effect"))), &no, &[words]), [Kind::Misapplied]);
    }

    #[test]
    fn a_decision_acted_on_in_a_later_life_is_counted() {
        let lives = HashMap::from([(Uuid::from_u128(2), vec![10, 20])]);
        let known = Known { lives, ..Known::default() };
        let of = |at| Effect { at: Some(at), ..line(true, INPUT, None) };
        let ok = [attempt(true, Told::Stored)];
        let count = |at| compare(&[approval(Some(("approve", "effect")))], &ok, &[of(at)], &known).reattached;
        assert_eq!((count(18), count(25)), (0, 1));
    }

    #[test]
    fn ledger_lines_read_back() {
        let text = r#"{"became":"ran","tool_use_id":"t","request_id":"r","tool":"Bash","input":{"a": 1},"reason":null,"pid":1,"at":5}"#;
        let effect = of_claude(text).unwrap();
        assert_eq!((effect.by, effect.what.as_str()), (By::Request("r".into()), r#"{"a": 1}"#));
        assert_eq!(of_demo("run-1 123").at, Some(123));
        let command = json!({"command": demo_command("run-1")}).to_string();
        assert_eq!(mark_of(command.as_bytes()).as_deref(), Some("run-1"));
        assert_eq!(mark_of(br#"{"path":"/x","content":"m\n"}"#).as_deref(), Some("m"));
        assert_eq!(mark_of(br#"{"command":"rm -rf /"}"#), None);
    }
}
