//! What a worker should have and does not have yet: cancels, decisions, prompts.
//! A reconciler: it reads the tables and sends what is missing; what is under way is
//! kept so that it is not sent twice on one link.

use std::collections::{HashMap, HashSet};

use domain::{
    decision::Delivery,
    id::{DecisionId, RunId, WorkerId},
};
use link::{
    frame::{CallId, Frame, REFUSED, RpcError, UNAVAILABLE, body},
    message::{
        Cancel, Epoch, Finish, Prompt, PromptOutcome, PromptReply, Resolve, ResolveOutcome, ResolveReply,
    },
};
use serde_json::value::RawValue;
use store::{Store, decision, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Under {
    Prompt(RunId),
    Cancel(RunId),
    Finish(RunId),
    Resolve(DecisionId),
}

pub(super) struct Outbox {
    store: Store,
    worker: WorkerId,
    epoch: Epoch,
    next: CallId,
    calls: HashMap<CallId, Under>,
    under_way: HashSet<Under>,
    /// Something failed in a way that asks for another look at once.
    again: bool,
}

impl Outbox {
    pub fn new(store: Store, worker: WorkerId, epoch: Epoch) -> Self {
        Self { store, worker, epoch, next: 1, calls: HashMap::new(), under_way: HashSet::new(), again: false }
    }

    pub fn wants_look(&mut self) -> bool {
        std::mem::take(&mut self.again)
    }

    /// Everything due and not under way, cancels first, added to `frames`. With an error
    /// those already there are to be sent all the same: they count as under way.
    pub async fn due(&mut self, frames: &mut Vec<Frame>) -> store::Result<()> {
        for (run, key) in run::due_cancels(&self.store, self.worker).await? {
            if let Some(id) = self.call(Under::Cancel(run)) {
                frames.push(Frame::call(id, &Cancel { key, epoch: self.epoch, run }));
            }
        }
        let deciding: Vec<DecisionId> = self
            .under_way
            .iter()
            .filter_map(|u| if let Under::Resolve(decision) = u { Some(*decision) } else { None })
            .collect();
        for due in decision::take_due(&self.store, self.worker, self.epoch, &deciding).await? {
            if let Some(id) = self.call(Under::Resolve(due.decision)) {
                let resolve = Resolve {
                    key: due.session,
                    epoch: self.epoch,
                    approval: due.approval,
                    request_key: due.request_key,
                    decision: due.decision,
                    action_digest: due.action_digest,
                    answer_digest: due.answer_digest,
                    answer: due.answer,
                    decided_by: due.decided_by,
                };
                frames.push(Frame::call(id, &resolve));
            }
        }
        for (run, key) in run::due_finishes(&self.store, self.worker).await? {
            if let Some(id) = self.call(Under::Finish(run)) {
                frames.push(Frame::call(id, &Finish { key, epoch: self.epoch, run }));
            }
        }
        for due in run::due_prompts(&self.store, self.worker).await? {
            if let Some(id) = self.call(Under::Prompt(due.run)) {
                let prompt = Prompt {
                    key: due.session,
                    epoch: self.epoch,
                    run: due.run,
                    agent: due.agent,
                    text: due.text,
                    native_session: due.native_session,
                };
                frames.push(Frame::call(id, &prompt));
            }
        }
        Ok(())
    }

    fn call(&mut self, under: Under) -> Option<CallId> {
        self.under_way.insert(under).then(|| {
            let id = self.next;
            self.next += 1;
            self.calls.insert(id, under);
            id
        })
    }

    /// The worker's answer to one of our calls.
    pub async fn answered(
        &mut self,
        id: CallId,
        result: Result<Box<RawValue>, RpcError>,
    ) -> store::Result<()> {
        let Some(under) = self.calls.remove(&id) else { return Ok(()) };
        self.under_way.remove(&under);
        match under {
            Under::Prompt(run) => self.prompted(run, result).await,
            Under::Cancel(run) => match result.and_then(|raw| body(&raw)) {
                Ok(link::message::CancelReply { outcome: link::message::CancelOutcome::NotRunning }) => {
                    run::cancel_settled(&self.store, run).await
                }
                // The run's end follows as an event; until then it stays unconfirmed.
                Ok(_) => {
                    self.under_way.insert(under);
                    Ok(())
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "a worker refused to cancel");
                    // Its journal cannot be read: whatever ran there, it can stop nothing.
                    if error.code == REFUSED { run::cancel_settled(&self.store, run).await } else { Ok(()) }
                }
            },
            Under::Resolve(decision) => self.resolved(decision, result).await,
            // The run's end follows as an event; if it does not come, it is asked again.
            Under::Finish(_) => Ok(()),
        }
    }

    async fn prompted(&mut self, run: RunId, result: Result<Box<RawValue>, RpcError>) -> store::Result<()> {
        match result.and_then(|raw| body::<PromptReply>(&raw)) {
            Ok(PromptReply { outcome: PromptOutcome::Refused, why }) => {
                let why = why.unwrap_or_else(|| "The worker refused the message.".to_owned());
                run::refused(&self.store, run, &why).await
            }
            Ok(_) => run::prompted(&self.store, run).await,
            Err(error) if error.code == UNAVAILABLE => Ok(()),
            Err(error) => {
                run::refused(&self.store, run, &format!("The worker refused the message: {error}.")).await
            }
        }
    }

    async fn resolved(
        &mut self,
        decision: DecisionId,
        result: Result<Box<RawValue>, RpcError>,
    ) -> store::Result<()> {
        let reply = match result.and_then(|raw| body::<ResolveReply>(&raw)) {
            Ok(reply) => reply,
            // Its journal cannot be read: whether this was handed over before nobody knows.
            Err(error) if error.code == REFUSED => {
                let next = Delivery::OutcomeUnknown;
                let note = format!("The worker cannot tell: {}", error.message);
                return decision::settled(&self.store, self.worker, decision, next, Some(&note))
                    .await
                    .map(drop);
            }
            Err(error) => {
                // Back into the queue: a later look sends it again.
                tracing::warn!(%decision, %error, "a worker could not take a decision; it is sent again");
                return decision::unsend(&self.store, decision).await;
            }
        };
        let (next, why) = match reply.outcome {
            ResolveOutcome::Applied | ResolveOutcome::AlreadyApplied => (Delivery::Applied, None),
            ResolveOutcome::DigestMismatch => (
                Delivery::NotApplied,
                Some(
                    "The request held by the agent is not the one that was decided. Nothing was sent to it.",
                ),
            ),
            ResolveOutcome::NativeGone => (Delivery::NotApplied, Some("The agent no longer waits for it.")),
            ResolveOutcome::Unknown => (
                Delivery::NotApplied,
                Some("The worker does not know this request. Nothing was sent to the agent."),
            ),
            ResolveOutcome::OutcomeUnknown => (
                Delivery::OutcomeUnknown,
                Some("The process was gone after the answer may have been written."),
            ),
            // The link is closing; the decision goes again on the next one.
            ResolveOutcome::Fenced => return decision::unsend(&self.store, decision).await,
        };
        let note = reply.why.as_deref().or(why).filter(|_| next != Delivery::Applied);
        decision::settled(&self.store, self.worker, decision, next, note).await.map(drop)
    }
}
