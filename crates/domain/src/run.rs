//! A run: one prompt and all that follows until the harness is idle.

use serde::{Deserialize, Serialize};

use crate::{id::RunId, text_enum::text_enum, time::Timestamp};

text_enum! {
    /// Where a run stands. Moves only as [`RunStatus::may_become`] says.
    RunStatus {
        /// Accepted, not yet handed to the worker.
        Pending = "pending",
        Running = "running",
        /// At least one approval is open, or decided and waiting for *Continue Run*.
        Paused = "paused",
        Completed = "completed",
        Cancelled = "cancelled",
        Error = "error",
    }
}

impl RunStatus {
    /// Whether nothing more can happen in the run.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Error)
    }

    /// The transitions. A run that is over stays as it is.
    pub const fn may_become(self, next: RunStatus) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Running | Self::Cancelled | Self::Error),
            Self::Running => !matches!(next, Self::Pending | Self::Running),
            Self::Paused => !matches!(next, Self::Pending | Self::Paused),
            Self::Completed | Self::Cancelled | Self::Error => false,
        }
    }

    /// The status as people read it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pending => "Queued",
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Completed => "Done",
            Self::Cancelled => "Cancelled",
            Self::Error => "Error",
        }
    }
}

/// A run as pages see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    pub id: RunId,
    pub status: RunStatus,
    pub prompt: String,
    /// Who wrote the prompt.
    pub by: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Why it ended, or why it has not started, as a sentence.
    pub detail: Option<String>,
    /// Someone asked to stop it and the worker has not confirmed that yet.
    pub stop_unconfirmed: bool,
    /// Approvals that wait for a person.
    pub open_approvals: u32,
    /// Decisions that wait for *Continue Run*.
    pub held_decisions: u32,
}

/// The longest prompt, in bytes.
pub const PROMPT_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_over() {
        for &from in RunStatus::ALL {
            for &to in RunStatus::ALL {
                if from.is_over() {
                    assert!(!from.may_become(to));
                }
            }
        }
    }

    #[test]
    fn a_paused_run_can_go_on_end_or_be_cancelled() {
        assert!(RunStatus::Paused.may_become(RunStatus::Running));
        assert!(RunStatus::Paused.may_become(RunStatus::Cancelled));
        assert!(!RunStatus::Paused.may_become(RunStatus::Pending));
    }
}
