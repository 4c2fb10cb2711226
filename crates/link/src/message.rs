//! Every message of the link. W→S is from the worker, S→W from the server.

use domain::{
    agent::AgentSpec,
    approval::{AskOption, Grant, RequestKey},
    decision::Answer,
    digest::{ActionDigest, AnswerDigest},
    event::EventBody,
    id::{ApprovalId, DecisionId, Incarnation, RunId, SessionId},
    time::Timestamp,
    worker::HarnessOffer,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::frame::Message;

/// Issued by the server at hello; grows with each link of a worker.
pub type Epoch = i64;

/// Seconds the server waits for a sign of life before it ends a link.
pub const LEASE_TTL_S: u64 = 45;
/// Seconds between two heartbeats.
pub const HEARTBEAT_S: u64 = 15;
/// Events a worker may have sent without acknowledgement. Further ones wait in its journal.
pub const WINDOW: usize = 256;

macro_rules! message {
    ($($(#[$doc:meta])* $name:ident = $method:literal -> $reply:ty { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        impl Message for $name {
            const METHOD: &'static str = $method;
            type Reply = $reply;
        }
    )*};
}

message! {
    /// W→S, the first call of every link.
    Hello = "link/hello" -> Welcome {
        protocol_versions: Vec<u32>,
        worker: WorkerSelf,
        environment: Environment,
        harnesses: Vec<HarnessOffer>,
        /// Every session with a live holder or something not yet acknowledged.
        sessions: Vec<HeldSession>,
    }

    /// Both ways, every [`HEARTBEAT_S`].
    Heartbeat = "link/heartbeat" -> () {}

    /// S→W: everything up to `seq` of the session is stored.
    Acknowledge = "link/ack" -> () {
        key: SessionId,
        seq: i64,
    }

    /// S→W: the server ends; hold on and link again.
    Drain = "link/drain" -> () {}

    /// S→W. Starts the session's harness if none lives, then hands it the prompt.
    /// Idempotent by run: a prompt is journalled before it is written and never written twice.
    Prompt = "session/prompt" -> PromptReply {
        key: SessionId,
        epoch: Epoch,
        run: RunId,
        agent: AgentSpec,
        text: String,
        /// The native session to resume if a new process must be started.
        native_session: Option<String>,
    }

    /// S→W. Stops the run, also while it is paused. Handled before anything queued.
    Cancel = "session/cancel" -> CancelReply {
        key: SessionId,
        epoch: Epoch,
        run: RunId,
    }

    /// S→W. A next message waits: ends the run if nothing of it goes on but work in the
    /// background.
    Finish = "session/finish" -> () {
        key: SessionId,
        epoch: Epoch,
        run: RunId,
    }

    /// S→W. Ends the session's harness properly.
    Close = "session/close" -> () {
        key: SessionId,
        epoch: Epoch,
    }

    /// W→S, in sequence, inside the window.
    SessionEvent = "session/event" -> () {
        key: SessionId,
        epoch: Epoch,
        /// From 1 on, without gaps, over the whole life of the session.
        seq: i64,
        run: RunId,
        at: Timestamp,
        body: EventBody,
    }

    /// W→S. Answered only after the approval is stored; repeated until then.
    /// Idempotent by request key: the same key with other input is refused.
    PermissionRequest = "permission/request" -> PermissionStored {
        key: SessionId,
        epoch: Epoch,
        run: RunId,
        request_key: RequestKey,
        /// The last event before it: its place in the transcript.
        after_seq: i64,
        harness: String,
        tool: String,
        folder: String,
        sub_agent: Option<String>,
        /// What the sub-agent is called and was told to do, where the harness says it.
        sub_agent_title: Option<String>,
        /// The native id of the call, joining its result.
        call_id: Option<String>,
        mode: String,
        /// The native input's bytes as received, as base64.
        input: Bytes,
        action_digest: ActionDigest,
        /// The agent's own words about it.
        words: Option<String>,
        options: Vec<AskOption>,
        /// What the harness suggests to allow besides, until its process ends.
        grants: Vec<Grant>,
        /// When the harness itself gives up waiting, as a duration.
        native_deadline_ms: Option<i64>,
    }

    /// S→W. Idempotent by decision; sent again until settled.
    Resolve = "permission/resolve" -> ResolveReply {
        key: SessionId,
        epoch: Epoch,
        approval: ApprovalId,
        request_key: RequestKey,
        decision: DecisionId,
        action_digest: ActionDigest,
        answer_digest: AnswerDigest,
        answer: Answer,
        /// For the worker's log; nobody where it expired.
        decided_by: Option<String>,
    }

    /// W→S. The native request is gone: no answer can reach it any more.
    Withdrawn = "permission/withdrawn" -> () {
        key: SessionId,
        epoch: Epoch,
        request_key: RequestKey,
        /// A sentence for people.
        reason: String,
        /// The process that asked is gone.
        execution_gone: bool,
    }

    /// W→S. What became of an answer after it was applied.
    Effect = "permission/effect" -> () {
        key: SessionId,
        epoch: Epoch,
        request_key: RequestKey,
        effect: EffectKind,
    }
}

/// What the harness showed after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// The tool ran and gave a result.
    Ran,
    /// The call's result is an error: the tool failed, or could not run.
    Failed,
    /// The refusal reached the model.
    Refused,
    /// The process was gone after the answer may have been written, with neither seen.
    Unknown,
    /// The process goes on, and what came of the answer was not seen.
    Unseen,
    /// The process was gone before the answer was written.
    NotApplied,
}

/// Bytes as base64 text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        s.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD
            .decode(String::deserialize(d)?)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// The worker about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSelf {
    /// Kept in the data folder, which the worker holds under a file lock.
    pub data_folder_id: Uuid,
    /// This life of the worker process.
    pub instance: Uuid,
    /// The machine's name, for people.
    pub host: String,
    pub version: String,
}

/// Where the worker runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// `local`, `docker` or `agentcore`.
    pub kind: String,
}

/// A session the worker holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldSession {
    pub key: SessionId,
    /// The harness process that lives, if one does.
    pub incarnation: Option<Incarnation>,
    /// The run it is on.
    pub run: Option<RunId>,
    /// The last event made.
    pub sent_seq: i64,
    /// The last event known to be stored.
    pub acked_seq: i64,
    /// Every native request that still waits.
    pub pending: Vec<PendingRequest>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    pub request_key: RequestKey,
    pub action_digest: ActionDigest,
}

/// The server's answer to hello.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub protocol_version: u32,
    pub epoch: Epoch,
    /// The worker's name, given by an admin.
    pub worker_name: String,
    pub lease_ttl_s: u64,
    pub heartbeat_s: u64,
    pub max_frame: usize,
    pub window: usize,
    pub sessions: Vec<SessionVerdict>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionVerdict {
    pub key: SessionId,
    pub verdict: Verdict,
    /// The last event stored; the worker goes on after it.
    pub acked_seq: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Resume,
    /// The session belongs to another worker: write nothing more to its harness.
    Fenced,
    /// The server has no such session: end its harness.
    Unknown,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptReply {
    pub outcome: PromptOutcome,
    /// A sentence for people, where it was refused.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptOutcome {
    /// Journalled; it will be written, or its failure reported as an event.
    Accepted,
    /// Journalled before.
    AlreadyAccepted,
    /// It was not and will not be written.
    Refused,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelReply {
    pub outcome: CancelOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelOutcome {
    /// The harness was told; the run's end follows as an event.
    Stopping,
    /// Nothing of that run is alive here.
    NotRunning,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionStored {
    pub approval: ApprovalId,
    /// Time until it expires. The worker does not answer by itself even then.
    pub remaining_ms: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolveReply {
    pub outcome: ResolveOutcome,
    /// A sentence for people, where it was not applied.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolveOutcome {
    Applied,
    AlreadyApplied,
    /// The request held natively is not the one decided on.
    DigestMismatch,
    /// The harness no longer waits for it.
    NativeGone,
    /// The epoch is not the worker's.
    Fenced,
    /// No such request was ever asked here.
    Unknown,
    /// The process is gone and the answer may have been written.
    OutcomeUnknown,
}
