//! A person's decision, the answer it becomes, and how far the answer has come.

use serde::{Deserialize, Serialize};

use crate::{action::ActionView, id::DecisionId, text_enum::text_enum, time::Timestamp};

text_enum! {
    /// What was decided. `Expire` is a refusal nobody made.
    Outcome {
        Approve = "approve",
        Reject = "reject",
        Expire = "expire",
    }
}

/// The answer a worker writes to the harness. Every field is in the answer digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub outcome: Outcome,
    /// One of the options the harness offered, verbatim, where it offers any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Input that replaces the one asked for, as JSON text. Needs the capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_input: Option<String>,
    /// The answers to the questions asked, as JSON text: see [`crate::question::Content`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What else is allowed until the agent's process ends: the harness's own
    /// suggestions, verbatim ([`crate::approval::Grant::native`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Words for the model; always there with a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// End the run after the refusal.
    #[serde(default)]
    pub stop: bool,
}

impl Answer {
    /// An answer of that outcome and nothing else.
    pub const fn plain(outcome: Outcome) -> Self {
        Self {
            outcome,
            option_id: None,
            edited_input: None,
            content: None,
            grants: Vec::new(),
            message: None,
            stop: false,
        }
    }
}

/// The longest message to a model, in bytes.
pub const MESSAGE_MAX: usize = 8 * 1024;

/// What a refusal without words says to the model.
pub const REJECTED_WITHOUT_WORDS: &str = "The person asked did not allow this.";

/// What an expiry says to the model. It must not read as a person's refusal.
pub const NOBODY_ANSWERED: &str =
    "Nobody answered this permission request in time, so it was not allowed. No person refused it.";

text_enum! {
    /// How far a decision has come, apart from the approval's own status.
    Delivery {
        /// Stored, not yet sent to the worker.
        Queued = "queued",
        Sent = "sent",
        /// The answer was written to the harness.
        Applied = "applied",
        /// Its result, or its refusal, was seen.
        Effect = "effect",
        /// The run was cancelled, or nobody continued it in time, before it was sent.
        Void = "void",
        /// It can no longer be applied; `why` says so.
        NotApplied = "not_applied",
        /// The process is gone after the answer may have been written.
        OutcomeUnknown = "outcome_unknown",
    }
}

impl Delivery {
    /// Whether nothing more is expected.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Effect | Self::Void | Self::NotApplied | Self::OutcomeUnknown)
    }

    /// The transitions. A later report wins over an earlier step; an effect proves
    /// that the answer was applied, whatever was thought before.
    pub const fn may_become(self, next: Delivery) -> bool {
        match self {
            Self::Queued => !matches!(next, Self::Queued),
            Self::Sent => !matches!(next, Self::Queued | Self::Sent | Self::Void),
            Self::Applied => matches!(next, Self::Effect | Self::OutcomeUnknown),
            Self::OutcomeUnknown => matches!(next, Self::Effect),
            Self::Effect | Self::Void | Self::NotApplied => false,
        }
    }
}

/// The steps of a decision with their times, as people see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub decision: DecisionId,
    pub outcome: Outcome,
    /// The option of the harness that was chosen, by its own name.
    pub option_name: Option<String>,
    /// The words sent with it.
    pub message: Option<String>,
    /// What ran instead of what was asked, as a card shows it.
    pub edited: Option<ActionView>,
    /// Questions with their answers.
    pub answers: Vec<(String, String)>,
    /// What was allowed besides until the agent's process ends, in words.
    pub grants: Vec<String>,
    /// Nobody where it expired.
    pub by: Option<String>,
    pub delivery: Delivery,
    pub decided_at: Timestamp,
    /// When *Continue Run* released it; the same as `decided_at` where that is automatic.
    pub continued_at: Option<Timestamp>,
    pub sent_at: Option<Timestamp>,
    pub applied_at: Option<Timestamp>,
    pub effect_at: Option<Timestamp>,
    /// What the effect was (`ran`, `failed`, `refused`), or why there is none.
    pub note: Option<String>,
    /// Milliseconds since the last step, on the server's clock; absent when settled.
    pub waiting_ms: Option<i64>,
}

impl Receipt {
    /// A step is late when the next one has not come ten seconds after it.
    pub const LATE_MS: i64 = 10_000;

    pub fn is_late(&self) -> bool {
        self.waiting_ms.is_some_and(|ms| ms >= Self::LATE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_decision_cannot_be_called_void() {
        assert!(Delivery::Queued.may_become(Delivery::Void));
        assert!(!Delivery::Sent.may_become(Delivery::Void));
    }

    #[test]
    fn what_is_settled_stays_but_for_a_late_effect() {
        for &from in Delivery::ALL {
            for &to in Delivery::ALL {
                if from.is_settled() && from.may_become(to) {
                    assert_eq!((from, to), (Delivery::OutcomeUnknown, Delivery::Effect));
                }
            }
        }
    }
}
