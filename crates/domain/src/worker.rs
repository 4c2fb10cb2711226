//! Workers: processes beside the harnesses.

use serde::{Deserialize, Serialize};

use crate::{
    agent::{Asks, Mode},
    id::WorkerId,
    time::Timestamp,
};

/// What a harness can do, as its driver states it. Absent means unsupported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    pub permissions: Option<Permissions>,
    pub questions: Option<Supported>,
    pub cancel: Option<Supported>,
    pub resume: Option<Supported>,
    pub journal: Option<Supported>,
    pub steer: Option<Supported>,
}

/// A capability that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supported {}

/// How a harness asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Permissions {
    /// It asks by itself, and waits.
    pub native: bool,
    /// The request outlives the worker.
    pub held: bool,
    pub updated_input: bool,
    /// Words of a refusal reach the model.
    pub message: bool,
    /// It suggests what to allow until its process ends.
    pub session_grants: bool,
    pub persistent_grants: bool,
    /// It can be told to ask also for what it thinks needs no permission.
    pub everything: bool,
}

/// A harness a worker offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HarnessOffer {
    /// `demo`, `claude`, …: what agents name.
    pub id: String,
    /// For people: `Claude Code`.
    pub title: String,
    pub version: String,
    pub capabilities: Capabilities,
    pub modes: Vec<Mode>,
    pub default_mode: String,
    /// The folder a new agent gets.
    pub default_folder: String,
    /// Why it cannot be used, as a sentence with what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl HarnessOffer {
    /// Why an agent in this mode must not be started, as a sentence: its policy is to ask,
    /// and the harness has no way to.
    pub fn cannot_ask(&self, mode: &str) -> Option<String> {
        let native = self.capabilities.permissions.as_ref().is_some_and(|p| p.native);
        // A mode nobody knows is taken to ask.
        let asks = self.modes.iter().find(|m| m.id == mode).is_none_or(|m| m.asks != Asks::Never);
        (asks && !native).then(|| {
            format!(
                "{} cannot ask for permission, so it is not started in a mode that asks. Use a version that can.",
                self.title
            )
        })
    }
}

/// A worker as its page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    pub id: WorkerId,
    pub name: String,
    pub linked: bool,
    /// Since when it is linked, or not; absent if it never was.
    pub since: Option<Timestamp>,
    /// Milliseconds since the last heartbeat, on the server's clock.
    pub heartbeat_ms: Option<i64>,
    pub version: Option<String>,
    /// `local`, `docker` or `agentcore`.
    pub environment: Option<String>,
    pub offers: Vec<HarnessOffer>,
    /// Approvals that wait on it.
    pub waiting: u32,
    pub revoked: bool,
    pub created_at: Timestamp,
}
