//! Three books compared: what people decided, as the deciding side noted it; what the
//! product has stored; what the harnesses really did, as their ledgers say.

use std::collections::{HashMap, HashSet};

use domain::{
    decision::{NOBODY_ANSWERED, REJECTED_WITHOUT_WORDS},
    digest::{ActionDigest, ActionFields},
};
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
    pub applied_at: Option<u64>,
}

impl Decided {
    /// It was never handed over, as the product says.
    fn came_to_nothing(&self) -> bool {
        ["not_applied", "void"].contains(&self.delivery.as_str())
    }
}

/// An approval as it is stored.
#[derive(Clone, Debug)]
pub struct Approval {
    pub id: Uuid,
    pub run: Uuid,
    /// When the run had ended, and its stop, where one was asked for, was confirmed.
    pub run_over: Option<u64>,
    /// Why the run ended as it did.
    pub run_detail: Option<String>,
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
    pub closed_reason: Option<String>,
    /// It waits so shortly for people that a worker without a link may have to give it up.
    pub is_short: bool,
    /// In the order they were made.
    pub decisions: Vec<Decided>,
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

    fn is_claude(&self) -> bool {
        self.harness == "claude"
    }

    /// Whether the worker stopped the run because one of its requests was not stored in time.
    fn is_given_up(&self) -> bool {
        self.is_short && self.run_detail.as_deref().is_some_and(|detail| detail.contains(NOT_STORED))
    }

    /// The decision that counts; where none does, the last that did.
    fn decision(&self) -> Option<&Decided> {
        self.decisions.iter().find(|d| d.delivery != "void").or(self.decisions.last())
    }
}

/// One line of a ledger.
#[derive(Clone, Debug)]
pub struct Effect {
    pub by: By,
    pub became: Became,
    /// Claude: the input as it ran. Demo: the line.
    pub what: String,
    pub reason: Option<String>,
    /// Milliseconds since 1970, where it is known.
    pub at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Ran,
    Refused,
    /// The harness ended as its script said, with this open or its result not told.
    Died,
}

/// What joins a line of a ledger to an approval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The id of the request: of the scripted Claude.
    Request(String),
    /// The mark in what was written: of the demo agent.
    Mark(String),
    /// Nothing: nobody was asked, or the line cannot be read.
    Nothing(String),
}

/// A line of the scripted Claude's ledger. One that cannot be read counts as something
/// that ran without being asked.
pub fn of_claude(line: &str) -> Effect {
    #[derive(Deserialize)]
    struct Line<'a> {
        became: Became,
        request_id: Option<String>,
        #[serde(borrow)]
        input: &'a RawValue,
        reason: Option<String>,
        at: u64,
    }
    let nothing = || By::Nothing(line.to_owned());
    match serde_json::from_str::<Line<'_>>(line) {
        Ok(read) => Effect {
            by: read.request_id.map_or_else(nothing, By::Request),
            became: read.became,
            what: read.input.get().to_owned(),
            reason: read.reason,
            at: Some(read.at),
        },
        Err(_) => {
            Effect { by: nothing(), became: Became::Ran, what: line.to_owned(), reason: None, at: None }
        }
    }
}

/// A line the demo agent wrote: a mark, and the time where a command wrote it.
pub fn of_demo(line: &str) -> Effect {
    let (mark, at) = match line.split_once(' ') {
        Some((mark, at)) => (mark, at.parse().ok()),
        None => (line, None),
    };
    Effect { by: By::Mark(mark.to_owned()), became: Became::Ran, what: line.to_owned(), reason: None, at }
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

/// A life of a worker, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub from: u64,
    /// Until it was killed.
    pub to: Option<u64>,
}

/// What the comparison needs besides the books.
#[derive(Debug, Default)]
pub struct Known {
    /// When the process of an incarnation was killed by us.
    pub killed: HashMap<Uuid, u64>,
    /// Runs that people cancelled.
    pub cancelled: HashSet<Uuid>,
    /// The lives of each worker.
    pub lives: HashMap<Uuid, Vec<Life>>,
}

impl Known {
    /// Which life of the worker this was in, if in one.
    fn life(&self, worker: Uuid, at: u64) -> Option<usize> {
        let lives = self.lives.get(&worker)?;
        lives.iter().position(|life| life.from <= at && life.to.is_none_or(|to| at <= to))
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
    let stops = |a: &&Approval| a.is_given_up() || a.decision().is_some_and(|d| d.by_person && d.stop);
    let stopped: HashSet<Uuid> =
        approvals.iter().filter(stops).map(|a| a.run).chain(known.cancelled.iter().copied()).collect();
    let mut marks: HashMap<By, Uuid> = HashMap::new();
    let mut prompted = HashSet::new();
    for approval in approvals {
        let by = if approval.is_claude() {
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
        let of = |became| {
            let lines = by_line.get(&by).into_iter().flatten();
            lines.copied().filter(|l| l.became == became).collect::<Vec<_>>()
        };
        let case = Case {
            approval,
            people: by_approval.remove(&approval.id).unwrap_or_default(),
            ran: of(Became::Ran),
            refused: of(Became::Refused),
            died: !of(Became::Died).is_empty(),
            stopped: stopped.contains(&approval.run),
            known,
        };
        case.compare(&mut all);
    }
    for (id, attempts) in by_approval {
        if attempts.iter().any(|a| a.told == Told::Stored) {
            all.wrong(Kind::Lost, Some(id), "decided, and the approval is not stored");
        }
    }
    for (by, lines) in by_line {
        if lines.iter().any(|l| l.became == Became::Ran) && !marks.contains_key(by) {
            all.wrong(Kind::AfterRefusal, None, format!("{by:?} ran and was never stored"));
        }
    }
    all
}

/// Words of a ledger for a call that no decision refused.
const TAKEN_BACK: &str = "The request was taken back.";
const INTERRUPTED: &str = "interrupted";
const STOPPED: &str = "The run is being stopped, so this was not allowed.";
const INPUT_CLOSED: &str =
    "Tool permission request failed: AbortError: Tool permission stream closed before response received";
/// What a worker says where a request could not be stored in time, to people and to the harness.
const NOT_STORED: &str = "could not be stored";

/// All that is known of one approval.
struct Case<'a> {
    approval: &'a Approval,
    people: Vec<&'a Attempt>,
    ran: Vec<&'a Effect>,
    refused: Vec<&'a Effect>,
    /// Its harness ended by its script with this open.
    died: bool,
    /// Its run was stopped: people cancelled it or stopped it by a decision, or the worker
    /// gave it up.
    stopped: bool,
    known: &'a Known,
}

impl Case<'_> {
    /// Whether its process ended by what was done to it, before its run was over.
    fn is_gone(&self) -> bool {
        let killed = self.known.killed.get(&self.approval.incarnation);
        self.died || killed.is_some_and(|at| self.approval.run_over.is_some_and(|over| *at <= over))
    }

    /// Whether something outside the product explains that a request came to nothing.
    fn is_excused(&self) -> bool {
        self.is_gone() || self.stopped || self.refused.iter().any(|l| self.is_beside(l))
    }

    /// Whether a call was refused by what happened beside every decision.
    fn is_beside(&self, line: &Effect) -> bool {
        let reason = line.reason.as_deref().unwrap_or_default();
        match reason {
            TAKEN_BACK => true,
            INTERRUPTED | STOPPED => self.stopped,
            INPUT_CLOSED => self.is_gone(),
            _ => self.approval.is_short && self.stopped && reason.contains(NOT_STORED),
        }
    }

    fn compare(&self, all: &mut Compared) {
        let Self { approval, ran, refused, .. } = self;
        let id = Some(approval.id);
        if ran.len() + refused.len() > 1 {
            let (ran, refused) = (ran.len(), refused.len());
            all.wrong(Kind::Doubled, id, format!("it ran {ran} times and was refused {refused} times"));
        }
        let stored = self.people.iter().filter(|a| a.told == Told::Stored).count();
        if stored > 1 {
            all.wrong(Kind::Doubled, id, "two decisions were said to be stored");
        }
        let counting = approval.decisions.iter().filter(|d| d.delivery != "void").count();
        let of_people = approval.decisions.iter().filter(|d| d.by_person).count();
        if counting > 1 || of_people > 1 {
            all.wrong(Kind::Doubled, id, format!("{counting} decisions count, {of_people} are of people"));
        }
        for decision in &approval.decisions {
            self.stored(all, decision, stored > 0);
        }
        let Some(decision) = approval.decision() else {
            self.undecided(all, stored > 0);
            return;
        };
        let status = match decision.outcome.as_str() {
            "approve" => "approved",
            "reject" => "rejected",
            _ => "expired",
        };
        if approval.status != status {
            let what = format!("it is {}, and the decision is {}", approval.status, decision.outcome);
            all.wrong(Kind::Misapplied, id, what);
        }
        if stored > 0 && of_people == 0 {
            all.wrong(Kind::Misapplied, id, "it expired after a decision was said to be stored");
        }
        if decision.delivery == "effect" {
            self.effect(all, decision);
        }
        self.lines(all, decision);
    }

    /// Nobody decided it.
    fn undecided(&self, all: &mut Compared, was_stored: bool) {
        let Approval { id, status, closed_reason, .. } = self.approval;
        let id = Some(*id);
        if was_stored {
            all.wrong(Kind::Lost, id, "a decision was said to be stored and is not");
        }
        if !self.ran.is_empty() {
            all.wrong(Kind::AfterRefusal, id, format!("it ran without a decision ({status})"));
        }
        if status == "pending" {
            all.wrong(Kind::Lost, id, "it still waits after everything was over");
        } else if status != "cancelled" {
            all.wrong(Kind::Misapplied, id, format!("it is {status}, and nobody decided it"));
        } else if !self.is_excused() {
            all.wrong(Kind::Lost, id, format!("it was closed without a cause: {closed_reason:?}"));
        }
        for line in self.refused.iter().filter(|l| !self.is_beside(l)) {
            all.wrong(Kind::Lost, id, format!("it was refused without a decision: {:?}", line.reason));
        }
    }

    /// Between the two books of decisions: whose it is, and how it ended.
    fn stored(&self, all: &mut Compared, decision: &Decided, was_stored: bool) {
        let approval = self.approval;
        let id = Some(approval.id);
        if decision.by_person {
            all.decided += 1;
            all.by_demo += u64::from(!approval.is_claude());
            all.applied += u64::from(decision.applied_at.is_some());
            let told = if was_stored { Told::Stored } else { Told::Unsure };
            let fits = |a: &&&Attempt| {
                a.told == told && meant(&a.meant, approval, decision) && a.digest == hex(&approval.digest)
            };
            if !self.people.iter().any(|a| fits(&a)) {
                all.wrong(Kind::Misapplied, id, format!("nobody decided what is stored: {decision:?}"));
            }
            match decision.delivery.as_str() {
                "effect" => all.effect += 1,
                "not_applied" | "void" => all.not_applied += 1,
                "outcome_unknown" => all.unknown += 1,
                _ => {}
            }
        } else {
            all.expired += 1;
            if decision.outcome != "expire" || decision.message.as_deref() != Some(NOBODY_ANSWERED) {
                all.wrong(Kind::Misapplied, id, format!("nobody is said to have decided: {decision:?}"));
            }
        }
        let note = decision.note.as_deref();
        match decision.delivery.as_str() {
            "effect" => {}
            "void" if note == Some(NOT_CONTINUED) && approval.status == "expired" => {}
            "not_applied" | "void" => {
                if !self.is_excused() {
                    all.wrong(Kind::Lost, id, format!("it was dropped without a cause: {note:?}"));
                }
            }
            "outcome_unknown" => {
                if !self.is_gone() {
                    let what = format!("unknown, and its process was not killed: {note:?}");
                    all.wrong(Kind::Unexplained, id, what);
                }
            }
            open => all.wrong(Kind::Lost, id, format!("its decision ended as {open}")),
        }
    }

    /// What the receipt says was seen, beside the ledger.
    fn effect(&self, all: &mut Compared, decision: &Decided) {
        let id = Some(self.approval.id);
        let note = decision.note.as_deref().unwrap_or_default();
        let beside = if self.approval.is_claude() {
            self.refused.iter().any(|l| self.is_beside(l))
        } else {
            // It keeps no book of what it left.
            self.stopped
        };
        if decision.outcome != "approve" {
            if self.approval.is_claude() && self.refused.is_empty() {
                all.wrong(Kind::Lost, id, format!("its refusal never arrived ({note})"));
            }
        } else if self.ran.is_empty() && note == RAN {
            all.wrong(Kind::Lost, id, "the receipt says that it ran, and the ledger has nothing");
        } else if self.ran.is_empty() && !beside {
            all.wrong(Kind::Misapplied, id, format!("it was approved and did not run ({note})"));
        }
    }

    /// Between the decision and the ledger.
    fn lines(&self, all: &mut Compared, decision: &Decided) {
        let approval = self.approval;
        let id = Some(approval.id);
        let approved = decision.outcome == "approve";
        for line in &self.ran {
            all.ran += 1;
            all.edited += u64::from(decision.edited_input.is_some());
            all.answered += u64::from(decision.content.is_some());
            all.reattached += u64::from(self.was_reattached(decision, line));
            if !approved {
                all.wrong(Kind::AfterRefusal, id, "it ran although it was refused");
            } else if decision.came_to_nothing() {
                let what = format!("it ran, and the receipt says {}", decision.delivery);
                all.wrong(Kind::Misapplied, id, what);
            }
            if !same(approval, decision, &line.what) {
                all.wrong(Kind::Misapplied, id, format!("another thing ran: {}", line.what));
            }
        }
        for line in &self.refused {
            let in_words = !approved && decision.message == line.reason && !decision.came_to_nothing();
            all.reattached += u64::from(in_words && self.was_reattached(decision, line));
            if !in_words && !self.is_beside(line) {
                all.wrong(Kind::Misapplied, id, format!("it was refused in other words: {:?}", line.reason));
            }
        }
    }

    /// Whether it was decided in one life of the worker and had been handed over in a
    /// later one. The ledger's line may be late by what the call took, the receipt by a
    /// lost link: the earlier of the two is nearer.
    fn was_reattached(&self, decision: &Decided, line: &Effect) -> bool {
        let life = |at| self.known.life(self.approval.worker, at);
        let handed_over = line.at.map(|at| decision.applied_at.map_or(at, |applied| applied.min(at)));
        match (life(decision.at), handed_over.and_then(life)) {
            (Some(decided), Some(acted)) => decided < acted,
            _ => false,
        }
    }
}

/// Notes of the product on a receipt.
const RAN: &str = "It ran.";
const NOT_CONTINUED: &str = "Nobody continued the run in time.";

/// Whether a decision is the one a person meant.
fn meant(meant: &Meant, approval: &Approval, decision: &Decided) -> bool {
    let words = match (&meant.message, meant.approve) {
        (None, false) => Some(REJECTED_WITHOUT_WORDS),
        (message, _) => message.as_deref(),
    };
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default();
    // The input asked for with the command typed over it, and nothing else changed.
    let edit = meant.edit.as_ref().map(|command| {
        let mut input = read(&approval.input);
        if let Some(members) = input.as_object_mut() {
            members.insert("command".to_owned(), json!(command));
        }
        input
    });
    (decision.outcome == "approve") == meant.approve
        && decision.stop == meant.stop
        && decision.message.as_deref() == words
        && decision.edited_input.as_deref().map(|text| read(text.as_bytes())) == edit
        && decision.content.as_deref().and_then(picked) == meant.pick
}

/// The one answer in answers to questions.
fn picked(content: &str) -> Option<String> {
    let content: Value = serde_json::from_str(content).ok()?;
    content["answers"].as_object()?.values().next()?.as_str().map(str::to_owned)
}

/// Whether what ran is byte for byte what was decided.
fn same(approval: &Approval, decision: &Decided, what: &str) -> bool {
    if !approval.is_claude() {
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
    const RUN: Uuid = Uuid::from_u128(3);
    const INCARNATION: Uuid = Uuid::from_u128(7);

    fn decided(outcome: &str, delivery: &str) -> Decided {
        Decided {
            by_person: outcome != "expire",
            outcome: outcome.into(),
            message: match outcome {
                "approve" => None,
                "reject" => Some("no".into()),
                _ => Some(NOBODY_ANSWERED.into()),
            },
            stop: false,
            edited_input: None,
            content: None,
            delivery: delivery.into(),
            note: (delivery == "effect").then(|| RAN.into()),
            at: 15,
            applied_at: Some(26),
        }
    }

    fn asked(input: &[u8], status: &str) -> Approval {
        let mut approval = Approval {
            id: Uuid::from_u128(1),
            run: RUN,
            run_over: Some(30),
            run_detail: None,
            worker: Uuid::from_u128(2),
            incarnation: INCARNATION,
            request_key: format!("{INCARNATION}/r"),
            harness: "claude".into(),
            tool: "Bash".into(),
            folder: "/w".into(),
            sub_agent: None,
            input: input.to_vec(),
            digest: Vec::new(),
            status: status.into(),
            closed_reason: None,
            is_short: false,
            decisions: Vec::new(),
        };
        approval.digest = approval.digest_of(input).0.to_vec();
        approval
    }

    fn approval(outcome: &str, delivery: &str) -> Approval {
        let status = match outcome {
            "approve" => "approved",
            "reject" => "rejected",
            _ => "expired",
        };
        Approval { decisions: vec![decided(outcome, delivery)], ..asked(INPUT, status) }
    }

    fn of_demo_agent(outcome: &str, note: &str) -> Approval {
        let mut approval = approval(outcome, "effect");
        approval.harness = "demo".into();
        approval.input = br#"{"path":"/x","content":"append-1\n"}"#.to_vec();
        approval.digest = approval.digest_of(&approval.input).0.to_vec();
        approval.decisions[0].note = Some(note.into());
        approval
    }

    fn attempt(approve: bool, told: Told) -> Attempt {
        let message = (!approve).then(|| "no".to_owned());
        Attempt {
            approval: Uuid::from_u128(1),
            digest: hex(&asked(INPUT, "").digest),
            meant: Meant { approve, message, edit: None, pick: None, stop: false },
            told,
        }
    }

    fn line(became: Became, reason: Option<&str>) -> Effect {
        Effect {
            by: By::Request("r".into()),
            became,
            what: String::from_utf8_lossy(INPUT).into_owned(),
            reason: reason.map(str::to_owned),
            at: Some(25),
        }
    }

    fn ran() -> Effect {
        line(Became::Ran, None)
    }

    fn refused(reason: &str) -> Effect {
        line(Became::Refused, Some(reason))
    }

    fn all(approval: &Approval, attempts: &[Attempt], effects: &[Effect], known: &Known) -> Compared {
        compare(std::slice::from_ref(approval), attempts, effects, known)
    }

    fn kinds(approval: &Approval, attempts: &[Attempt], effects: &[Effect], known: &Known) -> Vec<Kind> {
        all(approval, attempts, effects, known).offenders.iter().map(|o| o.kind).collect()
    }

    /// Whoever decided meant what is stored.
    fn of(approval: &Approval, effects: &[Effect], known: &Known) -> Vec<Kind> {
        let approve = approval.decisions.first().is_some_and(|d| d.outcome == "approve");
        let mut attempt = attempt(approve, Told::Stored);
        attempt.digest = hex(&approval.digest);
        attempt.meant.stop = approval.decisions.first().is_some_and(|d| d.stop);
        let by_people = approval.decisions.iter().any(|d| d.by_person);
        kinds(approval, &if by_people { vec![attempt] } else { vec![] }, effects, known)
    }

    fn nothing() -> Known {
        Known::default()
    }

    fn killed(at: u64) -> Known {
        Known { killed: HashMap::from([(INCARNATION, at)]), ..nothing() }
    }

    fn cancelled() -> Known {
        Known { cancelled: HashSet::from([RUN]), ..nothing() }
    }

    #[test]
    fn books_that_agree_have_no_offenders() {
        let ok = attempt(true, Told::Stored);
        let late = attempt(false, Told::Refused("first".into()));
        assert_eq!(kinds(&approval("approve", "effect"), &[ok, late], &[ran()], &nothing()), []);
        let unsure = attempt(true, Told::Unsure);
        assert_eq!(kinds(&approval("approve", "effect"), &[unsure], &[ran()], &nothing()), []);
        assert_eq!(of(&approval("reject", "effect"), &[refused("no")], &nothing()), []);
        assert_eq!(of(&approval("expire", "effect"), &[refused(NOBODY_ANSWERED)], &nothing()), []);
    }

    #[test]
    fn what_is_doubled_is_seen() {
        let approved = approval("approve", "effect");
        assert_eq!(of(&approved, &[ran(), ran()], &nothing()), [Kind::Doubled]);
        let also = of(&approved, &[ran(), refused(TAKEN_BACK)], &nothing());
        assert_eq!(also, [Kind::Doubled]);
        let ok = attempt(true, Told::Stored);
        let twice = kinds(&approved, &[ok.clone(), ok.clone()], &[ran()], &nothing());
        assert_eq!(twice, [Kind::Doubled]);
        let mut two = approved;
        two.decisions.push(decided("approve", "void"));
        assert!(kinds(&two, &[ok], &[ran()], &cancelled()).contains(&Kind::Doubled));
    }

    #[test]
    fn another_decision_than_the_one_made_is_seen() {
        let no = [attempt(false, Told::Stored)];
        assert_eq!(kinds(&approval("approve", "effect"), &no, &[ran()], &nothing()), [Kind::Misapplied]);
        let other = Effect { what: r#"{"command": "touch one", "n":9007199254740992}"#.into(), ..ran() };
        assert_eq!(of(&approval("approve", "effect"), &[other], &nothing()), [Kind::Misapplied]);
        let words = of(&approval("reject", "effect"), &[refused("other words")], &nothing());
        assert_eq!(words, [Kind::Misapplied]);
        let shown_otherwise = Approval { status: "rejected".into(), ..approval("approve", "effect") };
        assert_eq!(of(&shown_otherwise, &[ran()], &nothing()), [Kind::Misapplied]);
        let mut as_a_refusal = approval("expire", "effect");
        as_a_refusal.decisions[0].message = Some("no".into());
        assert_eq!(of(&as_a_refusal, &[refused("no")], &nothing()), [Kind::Misapplied]);
        assert_eq!(
            kinds(&approval("expire", "effect"), &no, &[refused(NOBODY_ANSWERED)], &nothing()),
            [Kind::Misapplied]
        );
    }

    #[test]
    fn an_edit_changes_the_command_alone() {
        let run = |edited: &str| {
            let mut approval = approval("approve", "effect");
            approval.decisions[0].edited_input = Some(edited.into());
            let mut ok = attempt(true, Told::Stored);
            ok.meant.edit = Some("touch two".into());
            let ran = Effect { what: edited.into(), ..ran() };
            kinds(&approval, &[ok], &[ran], &nothing())
        };
        assert_eq!(run(r#"{"command":"touch two","n":9007199254740993}"#), []);
        assert_eq!(run(r#"{"command":"touch two","n":9007199254740992}"#), [Kind::Misapplied]);
        assert_eq!(run(r#"{"command":"touch two"}"#), [Kind::Misapplied]);
        assert_eq!(run(r#"{"command":"touch three","n":9007199254740993}"#), [Kind::Misapplied]);
    }

    #[test]
    fn a_decision_without_an_end_is_lost() {
        let ok = [attempt(true, Told::Stored)];
        assert_eq!(kinds(&approval("approve", "sent"), &ok, &[], &nothing()), [Kind::Lost]);
        assert_eq!(kinds(&asked(INPUT, "cancelled"), &ok, &[], &cancelled()), [Kind::Lost]);
        assert_eq!(of(&asked(INPUT, "pending"), &[], &nothing()), [Kind::Lost]);
        assert_eq!(of(&approval("expire", "queued"), &[], &nothing()), [Kind::Lost]);
        // Two decisions, and the one that counts is under way.
        let mut both = approval("expire", "sent");
        both.decisions.insert(0, Decided { note: Some(NOT_CONTINUED.into()), ..decided("approve", "void") });
        assert_eq!(of(&both, &[], &nothing()), [Kind::Lost]);
        both.decisions[1].delivery = "effect".into();
        assert_eq!(of(&both, &[refused(NOBODY_ANSWERED)], &nothing()), []);
    }

    #[test]
    fn a_decision_that_came_to_nothing_needs_a_cause() {
        for outcome in ["approve", "reject", "expire"] {
            for delivery in ["not_applied", "void"] {
                let case = approval(outcome, delivery);
                assert_eq!(of(&case, &[], &nothing()), [Kind::Lost], "{outcome} {delivery}");
                assert_eq!(of(&case, &[], &cancelled()), []);
                assert_eq!(of(&case, &[], &killed(30)), []);
                assert_eq!(of(&case, &[], &killed(31)), [Kind::Lost], "killed after its run was over");
                assert_eq!(of(&case, &[line(Became::Died, None)], &nothing()), []);
                assert_eq!(of(&case, &[refused(TAKEN_BACK)], &nothing()), []);
                for words in [INTERRUPTED, STOPPED] {
                    assert_eq!(of(&case, &[refused(words)], &cancelled()), []);
                    let spurious = of(&case, &[refused(words)], &nothing());
                    assert_eq!(spurious, [Kind::Lost, Kind::Misapplied], "nobody stopped the run");
                }
            }
        }
        let mut not_continued = approval("approve", "void");
        not_continued.decisions[0].note = Some(NOT_CONTINUED.into());
        assert_eq!(of(&not_continued, &[], &nothing()), [Kind::Lost], "and it has not expired");
    }

    #[test]
    fn a_run_may_be_given_up_only_where_its_time_is_short() {
        let mut case = approval("approve", "not_applied");
        case.run_detail = Some("The request could not be stored in time.".into());
        for words in ["This request could not be stored, so nobody was asked.", INTERRUPTED] {
            assert_eq!(of(&case, &[refused(words)], &nothing()), [Kind::Lost, Kind::Misapplied]);
            let short = Approval { is_short: true, ..case.clone() };
            assert_eq!(of(&short, &[refused(words)], &nothing()), []);
        }
    }

    #[test]
    fn a_request_closed_without_a_decision_needs_a_cause() {
        let case = asked(INPUT, "cancelled");
        assert_eq!(of(&case, &[], &nothing()), [Kind::Lost]);
        assert_eq!(of(&case, &[], &cancelled()), []);
        assert_eq!(of(&case, &[refused(TAKEN_BACK)], &nothing()), []);
        assert_eq!(of(&case, &[refused("The worker says no.")], &cancelled()), [Kind::Lost]);
        assert_eq!(of(&asked(INPUT, "approved"), &[], &cancelled()), [Kind::Misapplied]);
    }

    #[test]
    fn what_ran_against_the_decision_is_seen() {
        assert_eq!(of(&asked(INPUT, "cancelled"), &[ran()], &cancelled()), [Kind::AfterRefusal]);
        assert_eq!(of(&approval("reject", "effect"), &[ran()], &nothing()), [Kind::Lost, Kind::AfterRefusal]);
        assert_eq!(of(&approval("approve", "not_applied"), &[ran()], &cancelled()), [Kind::Misapplied]);
        let unasked = Effect { by: By::Nothing("x".into()), ..ran() };
        assert_eq!(of(&approval("approve", "effect"), &[ran(), unasked], &nothing()), [Kind::AfterRefusal]);
        let other = Effect { by: By::Request("other".into()), ..ran() };
        assert_eq!(of(&approval("approve", "effect"), &[ran(), other], &nothing()), [Kind::AfterRefusal]);
    }

    #[test]
    fn an_approval_must_run() {
        assert_eq!(of(&approval("approve", "effect"), &[], &nothing()), [Kind::Lost]);
        let mut failed = approval("approve", "effect");
        failed.decisions[0].note = Some("It ran and failed.".into());
        assert_eq!(of(&failed, &[], &nothing()), [Kind::Misapplied]);
        assert_eq!(of(&failed, &[refused(TAKEN_BACK)], &nothing()), []);
        assert_eq!(of(&failed, &[refused(INTERRUPTED)], &cancelled()), []);
        // The demo agent calls a refusal a failure.
        let failed = of_demo_agent("approve", "It ran and failed.");
        assert_eq!(of(&failed, &[], &nothing()), [Kind::Misapplied]);
        assert_eq!(of(&failed, &[], &cancelled()), []);
        assert_eq!(of(&of_demo_agent("approve", RAN), &[], &cancelled()), [Kind::Lost]);
        assert_eq!(of(&of_demo_agent("approve", RAN), &[super::of_demo("append-1")], &nothing()), []);
    }

    #[test]
    fn a_refusal_must_arrive() {
        for outcome in ["reject", "expire"] {
            assert_eq!(of(&approval(outcome, "effect"), &[], &nothing()), [Kind::Lost], "{outcome}");
        }
        // The one that stops its run may be overtaken by the stop.
        let mut stops = approval("reject", "effect");
        assert_eq!(of(&stops, &[refused(INTERRUPTED)], &nothing()), [Kind::Misapplied]);
        stops.decisions[0].stop = true;
        assert_eq!(of(&stops, &[refused(INTERRUPTED)], &nothing()), []);
    }

    #[test]
    fn what_is_unknown_needs_a_process_that_was_killed_before_its_run_was_over() {
        let case = approval("approve", "outcome_unknown");
        assert_eq!(of(&case, &[], &nothing()), [Kind::Unexplained]);
        assert_eq!(of(&case, &[], &cancelled()), [Kind::Unexplained]);
        assert_eq!(of(&case, &[], &killed(30)), []);
        assert_eq!(of(&case, &[], &killed(31)), [Kind::Unexplained]);
        assert_eq!(of(&case, &[line(Became::Died, None)], &nothing()), []);
    }

    #[test]
    fn a_decision_handed_over_in_a_later_life_is_counted() {
        let lives = vec![Life { from: 10, to: Some(18) }, Life { from: 20, to: None }];
        let known = Known { lives: HashMap::from([(Uuid::from_u128(2), lives)]), ..nothing() };
        let count = |decided: u64, acted: u64, applied: u64| {
            let mut case = approval("approve", "effect");
            case.decisions[0].at = decided;
            case.decisions[0].applied_at = Some(applied);
            let line = Effect { at: Some(acted), ..ran() };
            all(&case, &[attempt(true, Told::Stored)], &[line], &known).reattached
        };
        assert_eq!(count(15, 25, 26), 1);
        assert_eq!(count(15, 17, 26), 0, "it had run before");
        assert_eq!(count(15, 25, 17), 0, "it had been handed over before");
        assert_eq!(count(19, 25, 26), 0, "no worker lived");
    }

    #[test]
    fn ledger_lines_read_back() {
        let text = r#"{"became":"ran","tool_use_id":"t","request_id":"r","tool":"Bash","input":{"a": 1},"reason":null,"pid":1,"at":5}"#;
        let effect = of_claude(text);
        assert_eq!((effect.by, effect.what.as_str()), (By::Request("r".into()), r#"{"a": 1}"#));
        let unasked = of_claude(&text.replace(r#""r""#, "null"));
        assert!(matches!(unasked.by, By::Nothing(_)));
        let torn = of_claude(&text[..40]);
        assert!(matches!(torn.by, By::Nothing(_)) && torn.became == Became::Ran);
        assert_eq!(of_demo("run-1 123").at, Some(123));
        let command = json!({"command": demo_command("run-1")}).to_string();
        assert_eq!(mark_of(command.as_bytes()).as_deref(), Some("run-1"));
        assert_eq!(mark_of(br#"{"path":"/x","content":"m\n"}"#).as_deref(), Some("m"));
        assert_eq!(mark_of(br#"{"command":"rm -rf /"}"#), None);
    }
}
