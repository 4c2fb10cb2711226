//! Agents: a configured harness a person can talk to.

use serde::{Deserialize, Serialize};

use crate::{
    approval::HITL_TIMEOUT_RANGE_S,
    failure::Failure,
    id::{AgentId, WorkerId},
    text_enum::text_enum,
};

text_enum! {
    /// How often a permission mode asks.
    Asks {
        /// Every call that the harness thinks needs permission.
        AsNeeded = "as_needed",
        /// Some kinds of calls run without asking.
        Partly = "partly",
        /// Never: the control plane sees nothing.
        Never = "never",
    }
}

/// A permission mode a harness offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mode {
    pub id: String,
    /// The mode in words.
    pub title: String,
    pub asks: Asks,
}

/// What the worker needs to know of an agent to start it. Sent with each prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    pub id: AgentId,
    pub name: String,
    /// A harness the worker offered in its hello.
    pub harness: String,
    /// Absolute folder on the worker's machine. Empty: the harness's own default.
    pub folder: String,
    pub mode: String,
    /// Seconds a request waits for people; the worker gives up asking after it.
    pub hitl_timeout_s: i64,
}

/// An agent as pages see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub id: AgentId,
    pub worker: WorkerId,
    pub worker_name: String,
    pub worker_linked: bool,
    pub name: String,
    pub harness: String,
    /// The harness's name and version, as the worker told it.
    pub harness_title: String,
    pub folder: String,
    pub mode: String,
    /// The modes the harness offers; empty while the worker has never linked.
    pub modes: Vec<Mode>,
    pub hitl_timeout_s: i64,
    pub waits_for_continue: bool,
    /// Why it cannot be used now, as a sentence.
    pub problem: Option<String>,
    /// Approvals of this agent that wait for a person.
    pub waiting: u32,
}

impl AgentView {
    /// How often the chosen mode asks; unknown modes are taken to ask as needed,
    /// since the worker refuses to start in a mode it cannot read back.
    pub fn asks(&self) -> Asks {
        self.modes.iter().find(|m| m.id == self.mode).map_or(Asks::AsNeeded, |m| m.asks)
    }
}

/// What an admin may change of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEdit {
    pub name: String,
    pub folder: String,
    pub mode: String,
    pub hitl_timeout_s: i64,
    pub waits_for_continue: bool,
}

impl AgentEdit {
    /// Checks each field; `modes` are those the harness offers.
    pub fn check(&self, modes: &[Mode]) -> Result<(), Failure> {
        crate::user::check_name(&self.name)?;
        if !self.folder.is_empty() && !self.folder.starts_with('/') {
            return Err(Failure::invalid("folder", "Give the whole path of the folder, from / on."));
        }
        if self.folder.len() > 4096 || self.folder.contains('\0') {
            return Err(Failure::invalid("folder", "This is not a path."));
        }
        if !modes.iter().any(|m| m.id == self.mode) {
            return Err(Failure::invalid("mode", "The harness does not offer this permission mode."));
        }
        if !HITL_TIMEOUT_RANGE_S.contains(&self.hitl_timeout_s) {
            return Err(Failure::invalid("hitl_timeout_s", "Give a time from 10 seconds to 7 days."));
        }
        Ok(())
    }
}
