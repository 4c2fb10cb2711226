//! One native permission request, stored.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    action::{ActionKind, ActionView},
    decision::{Delivery, Outcome, Receipt},
    digest::{ActionDigest, Fingerprint},
    failure::Failure,
    id::{ApprovalId, Incarnation, RunId, SessionId},
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
    pub sub_agent: Option<String>,
    pub action: ActionView,
    /// What a decision is bound to.
    pub digest: ActionDigest,
    pub fingerprint: Fingerprint,
    /// The agent's own words about it. Not part of what runs.
    pub words: Option<String>,
    pub options: Vec<AskOption>,
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

    #[test]
    fn a_request_key_reads_back_with_any_native_id() {
        let key = RequestKey { incarnation: Incarnation(uuid::Uuid::nil()), native_id: "a/b 7".into() };
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("x".parse::<RequestKey>().is_err());
    }
}
