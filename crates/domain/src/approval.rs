//! One native permission request, stored.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    action::{ActionKind, ActionView},
    decision::{Answer, Delivery, MESSAGE_MAX, NOBODY_ANSWERED, Outcome, REJECTED_WITHOUT_WORDS, Receipt},
    digest::{ActionDigest, Fingerprint},
    edit,
    failure::Failure,
    id::{ApprovalId, Incarnation, RunId, SessionId},
    question::{Filled, Question, Questions},
    text_enum::text_enum,
    time::Timestamp,
};

text_enum! {
    /// Where an approval stands. Everything but `Pending` is final.
    ApprovalStatus {
        Pending = "pending",
        Approved = "approved",
        Rejected = "rejected",
        Expired = "expired",
        Cancelled = "cancelled",
    }
}

impl ApprovalStatus {
    /// The status as people read it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pending => "Waiting",
            Self::Approved => "Approved",
            Self::Rejected => "Rejected",
            Self::Expired => "Expired",
            Self::Cancelled => "Cancelled",
        }
    }
}

impl From<Outcome> for ApprovalStatus {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Approve => Self::Approved,
            Outcome::Reject => Self::Rejected,
            Outcome::Expire => Self::Expired,
        }
    }
}

/// What names one native request for good: the life of the process that asked,
/// and its own id for the request. The idempotency key of `permission/request`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    pub incarnation: Incarnation,
    pub native_id: String,
}

impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.native_id)
    }
}

/// A text that is not a request key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a request key: incarnation, a slash and the native id are expected")]
pub struct NotARequestKey;

impl FromStr for RequestKey {
    type Err = NotARequestKey;
    fn from_str(text: &str) -> Result<Self, NotARequestKey> {
        let (incarnation, native_id) = text.split_once('/').ok_or(NotARequestKey)?;
        if native_id.is_empty() {
            return Err(NotARequestKey);
        }
        Ok(Self {
            incarnation: incarnation.parse().map_err(|_| NotARequestKey)?,
            native_id: native_id.to_owned(),
        })
    }
}

impl Serialize for RequestKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One of the answers a harness offers, verbatim. `kind` is a hint for order and
/// icons only: risk is never read from it (`exit-plan-bypass` is an `allow_always`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskOption {
    pub id: String,
    pub name: String,
    pub kind: String,
}

/// The option that stands for a plain *Approve* or *Reject*: the first that acts once.
/// A request without options needs none. A request that offers options but none that
/// acts once can only be answered by naming one.
pub fn plain_option(options: &[AskOption], outcome: Outcome) -> Result<Option<String>, Failure> {
    if options.is_empty() {
        return Ok(None);
    }
    let kind = if outcome == Outcome::Approve { "allow_once" } else { "reject_once" };
    match options.iter().find(|o| o.kind == kind) {
        Some(option) => Ok(Some(option.id.clone())),
        // A refusal can always be given: the worker answers `cancelled`.
        None if outcome != Outcome::Approve => Ok(None),
        None => Err(Failure::invalid("option", "Choose one of the answers the agent offers.")),
    }
}

/// What a harness suggests to allow besides, until its process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The suggestion exactly as the answer will carry it, as JSON text.
    pub native: String,
    /// What it allows, in words, with the rule verbatim.
    pub words: String,
}

/// The most grants one request may carry, and the bytes of one.
pub const GRANTS_MAX: usize = 16;
/// The longest native text of a grant, in bytes.
pub const GRANT_MAX: usize = 4096;

text_enum! {
    /// What kind of answer a request takes.
    Reply {
        /// Yes or no.
        Decision = "decision",
        /// Answers to its questions: a plain yes would tell the model that nobody answered.
        Answers = "answers",
        /// A plan: yes, or back with comments.
        Plan = "plan",
        /// Questions in a shape that cannot be shown: it can only be refused, with words.
        Refusal = "refusal",
    }
}

impl Reply {
    /// What a request of this kind takes from a harness that can be given answers, or not.
    pub fn of(kind: ActionKind, input: &[u8], answers_questions: bool) -> Self {
        match kind {
            ActionKind::Question if answers_questions && Questions::read(input).is_some() => Self::Answers,
            ActionKind::Question if answers_questions => Self::Refusal,
            ActionKind::Plan if answers_questions => Self::Plan,
            _ => Self::Decision,
        }
    }
}

/// A person's decision as a form gives it. What it means for one request is said by
/// [`answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub outcome: Outcome,
    /// One of the answers the harness offers, by its id.
    pub option: Option<String>,
    pub message: Option<String>,
    pub stop: bool,
    /// Texts typed over the request's own: see [`crate::edit`]. Empty: none.
    pub edit: BTreeMap<String, String>,
    /// Choices and own words for questions: see [`crate::question::Filled`].
    pub picks: BTreeMap<String, String>,
    pub own: BTreeMap<String, String>,
    /// The grants ticked, by their place in the request: `g0`, `g1`, …
    pub grants: BTreeMap<String, String>,
}

impl Given {
    /// A decision of that outcome and nothing else.
    pub const fn plain(outcome: Outcome) -> Self {
        Self {
            outcome,
            option: None,
            message: None,
            stop: false,
            edit: BTreeMap::new(),
            picks: BTreeMap::new(),
            own: BTreeMap::new(),
            grants: BTreeMap::new(),
        }
    }
}

/// What a request offers and takes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub reply: Reply,
    pub options: &'a [AskOption],
    pub grants: &'a [Grant],
    /// Whether the harness takes another input than the one it asked for.
    pub takes_edit: bool,
    pub input: &'a [u8],
}

/// The answer a decision becomes for one request, or why it cannot be given to it.
pub fn answer(asked: Asked<'_>, given: &Given) -> Result<Answer, Failure> {
    let approves = given.outcome == Outcome::Approve;
    if given.outcome == Outcome::Expire {
        return Err(Failure::invalid("outcome", "A person approves or rejects; expiry comes by itself."));
    }
    if given.message.as_ref().is_some_and(|m| m.len() > MESSAGE_MAX) {
        return Err(Failure::invalid("message", "The words are longer than 8 KiB."));
    }
    if given.message.as_ref().is_some_and(|m| m.contains('\0')) {
        return Err(Failure::invalid("message", "The words hold a null character, which cannot be stored."));
    }
    if approves && given.stop {
        return Err(Failure::invalid("stop", "Only a refusal can stop the run."));
    }
    if !approves && !given.edit.is_empty() {
        return Err(Failure::invalid("edit", "Only an approval can change the request."));
    }
    if !approves && !given.grants.is_empty() {
        return Err(Failure::invalid("grants", "Only an approval can allow more."));
    }
    let option_id = match &given.option {
        Some(id) if asked.options.iter().any(|o| o.id == *id) => Some(id.clone()),
        Some(_) => return Err(Failure::invalid("option", "The agent did not offer this answer.")),
        None => plain_option(asked.options, given.outcome)?,
    };
    let filled = Filled {
        picks: given.picks.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect(),
        own: given.own.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect(),
    };
    let content = match asked.reply {
        Reply::Answers if approves => match Questions::read(asked.input) {
            Some(questions) => Some(questions.content(&filled)?),
            None => return Err(Failure::invalid("answer", "The questions cannot be read.")),
        },
        Reply::Refusal if approves => {
            return Err(Failure::invalid(
                "outcome",
                "These questions have a shape that cannot be answered here. Reject the request with words for the agent.",
            ));
        }
        _ => None,
    };
    if asked.reply != Reply::Decision && !given.edit.is_empty() {
        return Err(Failure::invalid("edit", "Questions and plans are answered, not edited."));
    }
    let edited_input = match given.edit.is_empty() {
        true => None,
        false if !asked.takes_edit => {
            return Err(Failure::invalid("edit", "This agent takes no changed request, only yes or no."));
        }
        false => Some(edit::apply(asked.input, &given.edit)?),
    };
    let mut grants = Vec::new();
    for name in given.grants.keys() {
        let grant = name.strip_prefix('g').and_then(|n| n.parse::<usize>().ok());
        match grant.and_then(|n| asked.grants.get(n)) {
            Some(grant) => grants.push(grant.native.clone()),
            None => return Err(Failure::invalid("grants", "The agent did not suggest this rule.")),
        }
    }
    let message = match given.outcome {
        Outcome::Approve => None,
        Outcome::Reject => Some(given.message.clone().unwrap_or_else(|| REJECTED_WITHOUT_WORDS.to_owned())),
        Outcome::Expire => Some(NOBODY_ANSWERED.to_owned()),
    };
    Ok(Answer { outcome: given.outcome, option_id, edited_input, content, grants, message, stop: given.stop })
}

/// An approval as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    pub id: ApprovalId,
    pub status: ApprovalStatus,
    pub kind: ActionKind,
    pub tool: String,
    /// The action in one line, hidden characters marked.
    pub title: String,
    pub agent: String,
    /// The sub-agent that asks, by what it is called and what it was told to do, or else
    /// by its id.
    pub sub_agent: Option<String>,
    pub folder: String,
    pub session: SessionId,
    pub session_title: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Time left on the server's clock when this was read; 0 when over.
    pub left_ms: i64,
    /// Findings in the action that a person should read first.
    pub findings: u32,
    pub checked: bool,
    /// Who decided; nobody while pending or expired.
    pub decided_by: Option<String>,
    pub delivery: Option<Delivery>,
}

/// How many approvals each tab of the inbox holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalCounts {
    pub pending: u64,
    pub decided: u64,
    pub expired: u64,
    pub cancelled: u64,
}

/// One approval in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDetail {
    pub row: ApprovalRow,
    pub run: RunId,
    pub harness: String,
    pub worker: String,
    pub worker_linked: bool,
    /// The agent's permission mode when it asked.
    pub mode: String,
    pub action: ActionView,
    /// What a decision is bound to.
    pub digest: ActionDigest,
    pub fingerprint: Fingerprint,
    /// The agent's own words about it. Not part of what runs.
    pub words: Option<String>,
    pub options: Vec<AskOption>,
    pub reply: Reply,
    /// The questions, where it takes answers.
    pub questions: Vec<Question>,
    /// What the harness suggests to allow besides, until its process ends.
    pub grants: Vec<Grant>,
    /// The texts a person may change before approving; none where it is not pending, not
    /// theirs to decide, or the harness takes no other input.
    pub editable: Vec<edit::Field>,
    /// Time allowed in all, for the bar of the clock.
    pub timeout_ms: i64,
    pub receipt: Option<Receipt>,
    /// Why it was cancelled, as a sentence.
    pub closed_reason: Option<String>,
    /// Whether words of a refusal reach the model.
    pub takes_message: bool,
    /// Whether *Continue Run* is a step of its own for this agent.
    pub waits_for_continue: bool,
    /// Whether the caller may decide it.
    pub may_decide: bool,
    /// How many earlier requests the same run made, this one included.
    pub number_in_run: u32,
    pub history: Vec<HistoryLine>,
}

/// One line of an approval's history, from the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    pub at: Timestamp,
    /// Who did it; nobody for what happened by itself.
    pub by: Option<String>,
    /// What was done, as a phrase that follows the name: `approved it`.
    pub what: String,
    pub words: Option<String>,
}

/// The default of an agent's `hitl_timeout`, in seconds.
pub const HITL_TIMEOUT_DEFAULT_S: i64 = 900;
/// The range of `hitl_timeout`, in seconds: ten seconds to seven days.
pub const HITL_TIMEOUT_RANGE_S: std::ops::RangeInclusive<i64> = 10..=604_800;
/// What *Extend* adds, in seconds.
pub const EXTEND_S: i32 = 900;

#[cfg(test)]
mod tests {
    use super::*;

    fn option(id: &str, kind: &str) -> AskOption {
        AskOption { id: id.into(), name: id.into(), kind: kind.into() }
    }

    #[test]
    fn a_plain_approve_never_picks_a_lasting_option() {
        let lasting = [option("exit-plan-bypass", "allow_always"), option("no", "reject_once")];
        assert!(plain_option(&lasting, Outcome::Approve).is_err());
        assert_eq!(plain_option(&lasting, Outcome::Reject), Ok(Some("no".into())));
        let both = [option("always", "allow_always"), option("once", "allow_once")];
        assert_eq!(plain_option(&both, Outcome::Approve), Ok(Some("once".into())));
        assert_eq!(plain_option(&both, Outcome::Expire), Ok(None));
    }

    const QUESTION: &[u8] =
        br#"{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}"#;

    fn asked(reply: Reply, input: &[u8]) -> Asked<'_> {
        Asked { reply, options: &[], grants: &[], takes_edit: true, input }
    }

    fn map(name: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_plain_approve_of_a_question_is_refused() {
        let question = asked(Reply::Answers, QUESTION);
        assert!(answer(question, &Given::plain(Outcome::Approve)).is_err());
        let given = Given { picks: map("q0", "1"), ..Given::plain(Outcome::Approve) };
        assert_eq!(
            answer(question, &given).unwrap().content.as_deref(),
            Some(r#"{"answers":{"Which?":"B"}}"#)
        );
        assert!(answer(question, &Given::plain(Outcome::Reject)).unwrap().message.is_some());
        assert!(answer(asked(Reply::Refusal, b"{}"), &given).is_err());
        assert!(answer(asked(Reply::Refusal, b"{}"), &Given::plain(Outcome::Reject)).is_ok());
    }

    #[test]
    fn what_kind_of_answer_is_taken_comes_from_the_request_and_the_harness() {
        assert_eq!(Reply::of(ActionKind::Question, QUESTION, true), Reply::Answers);
        assert_eq!(Reply::of(ActionKind::Question, b"{}", true), Reply::Refusal);
        assert_eq!(Reply::of(ActionKind::Question, QUESTION, false), Reply::Decision);
        assert_eq!(Reply::of(ActionKind::Plan, b"{}", true), Reply::Plan);
        assert_eq!(Reply::of(ActionKind::Command, b"{}", true), Reply::Decision);
    }

    #[test]
    fn an_edit_needs_an_approval_of_a_harness_that_takes_it() {
        let command = asked(Reply::Decision, br#"{"command":"ls"}"#);
        let given = Given { edit: map("command", "ls -l"), ..Given::plain(Outcome::Approve) };
        let made = answer(command, &given).unwrap();
        assert_eq!(made.edited_input.as_deref(), Some(r#"{"command":"ls -l"}"#));
        assert!(answer(Asked { takes_edit: false, ..command }, &given).is_err());
        assert!(answer(command, &Given { outcome: Outcome::Reject, ..given.clone() }).is_err());
        assert!(answer(Asked { reply: Reply::Plan, ..command }, &given).is_err());
    }

    #[test]
    fn only_what_was_suggested_can_be_granted() {
        let grants = [Grant { native: "{\"a\":1}".into(), words: "A".into() }];
        let request = Asked { grants: &grants, ..asked(Reply::Decision, b"{}") };
        let given = |name: &str| Given { grants: map(name, "on"), ..Given::plain(Outcome::Approve) };
        assert_eq!(answer(request, &given("g0")).unwrap().grants, ["{\"a\":1}"]);
        assert!(answer(request, &given("g1")).is_err());
        assert!(answer(request, &given("0")).is_err());
        assert!(answer(request, &Given { outcome: Outcome::Reject, ..given("g0") }).is_err());
    }

    #[test]
    fn nobody_decides_that_nobody_answered() {
        assert!(answer(asked(Reply::Decision, b"{}"), &Given::plain(Outcome::Expire)).is_err());
    }

    #[test]
    fn a_request_key_reads_back_with_any_native_id() {
        let key = RequestKey { incarnation: Incarnation(uuid::Uuid::nil()), native_id: "a/b 7".into() };
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("x".parse::<RequestKey>().is_err());
    }
}
