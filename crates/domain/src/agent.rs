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
    /// Ask also for what the harness thinks needs no permission.
    #[serde(default)]
    pub asks_everything: bool,
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
    /// Whether the harness can be told to ask for everything.
    pub can_ask_everything: bool,
    pub asks_everything: bool,
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
    pub asks_everything: bool,
    /// The person has confirmed that a mode which never asks is meant.
    pub never_asks_confirmed: bool,
    pub hitl_timeout_s: i64,
    pub waits_for_continue: bool,
}

impl AgentEdit {
    /// Checks each field; `modes` are those the harness offers, `was` the mode it has.
    pub fn check(&self, modes: &[Mode], was: &str, can_ask_everything: bool) -> Result<(), Failure> {
        crate::user::check_name(&self.name)?;
        if !self.folder.is_empty() && !self.folder.starts_with('/') {
            return Err(Failure::invalid("folder", "Give the whole path of the folder, from / on."));
        }
        if self.folder.len() > 4096 || self.folder.contains('\0') {
            return Err(Failure::invalid("folder", "This is not a path."));
        }
        let Some(mode) = modes.iter().find(|m| m.id == self.mode) else {
            return Err(Failure::invalid("mode", "The harness does not offer this permission mode."));
        };
        if mode.asks == Asks::Never && self.mode != was && !self.never_asks_confirmed {
            return Err(Failure::invalid(
                "mode",
                "In this mode the agent never asks, and nobody can stop what it does. Tick the box below to confirm that it is meant.",
            ));
        }
        if self.asks_everything && !can_ask_everything {
            return Err(Failure::invalid(
                "asks_everything",
                "This harness cannot be told to ask for everything.",
            ));
        }
        if self.asks_everything && mode.asks == Asks::Never {
            return Err(Failure::invalid(
                "asks_everything",
                "A mode that never asks and \"ask for everything\" exclude each other. Choose one.",
            ));
        }
        if !HITL_TIMEOUT_RANGE_S.contains(&self.hitl_timeout_s) {
            return Err(Failure::invalid("hitl_timeout_s", "Give a time from 10 seconds to 7 days."));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(mode: &str) -> AgentEdit {
        AgentEdit {
            name: "A".into(),
            folder: "/w".into(),
            mode: mode.into(),
            asks_everything: false,
            never_asks_confirmed: false,
            hitl_timeout_s: 900,
            waits_for_continue: false,
        }
    }

    #[test]
    fn a_mode_that_never_asks_is_taken_only_when_confirmed() {
        let mode = |id: &str, asks| Mode { id: id.into(), title: id.into(), asks };
        let modes = [mode("ask", Asks::AsNeeded), mode("auto", Asks::Never)];
        assert!(edit("ask").check(&modes, "ask", true).is_ok());
        assert!(edit("auto").check(&modes, "ask", true).is_err());
        assert!(edit("auto").check(&modes, "auto", true).is_ok());
        assert!(AgentEdit { never_asks_confirmed: true, ..edit("auto") }.check(&modes, "ask", true).is_ok());
        let both = AgentEdit { never_asks_confirmed: true, asks_everything: true, ..edit("auto") };
        assert!(both.check(&modes, "ask", true).is_err());
        let everything = AgentEdit { asks_everything: true, ..edit("ask") };
        assert!(everything.check(&modes, "ask", true).is_ok());
        assert!(everything.check(&modes, "ask", false).is_err());
        assert!(edit("other").check(&modes, "ask", true).is_err());
    }
}
