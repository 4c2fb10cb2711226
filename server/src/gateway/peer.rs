//! One link, after hello: frames in, the outbox out, until it ends.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use axum::extract::ws::{Message, WebSocket};
use domain::{
    decision::Delivery,
    id::{SessionId, WorkerId},
};
use futures::{StreamExt as _, future::join_all, stream};
use link::{
    frame::{Frame, METHOD_NOT_FOUND, Message as _, REFUSED, RpcError, UNAVAILABLE, body, close},
    message::{
        Acknowledge, Drain, Effect, EffectKind, HEARTBEAT_S, Heartbeat, LEASE_TTL_S, PermissionRequest,
        PermissionStored, SessionEvent, Withdrawn,
    },
};
use store::{
    Topic, approval,
    event::{self, Arrived, Stored},
    worker,
};
use tokio::{sync::oneshot, time::Instant};

use super::{End, Welcomed, outbox::Outbox};
use crate::state::AppState;

/// Frames read at once before they are carried out.
const BATCH: usize = 256;
/// Permission requests stored at the same time.
const AT_ONCE: usize = 8;
/// How long the peer may say nothing.
const DEAD: Duration = Duration::from_secs(LEASE_TTL_S);
/// How long the outbox may wait without a wake: covers lost notifications.
const LOOK: Duration = Duration::from_secs(2);

pub(super) async fn run(
    socket: &mut WebSocket,
    state: &AppState,
    worker: WorkerId,
    welcomed: Welcomed,
    mut superseded: oneshot::Receiver<()>,
) -> End {
    let epoch = welcomed.epoch;
    let link = Link { state, worker, epoch, takes: welcomed.takes };
    let mut outbox = Outbox::new(state.store.clone(), worker, epoch);
    let mut changes = state.store.changes().subscribe();
    let mut ending = state.ending.clone();
    let mut heard = Instant::now();
    let mut beat = tokio::time::interval(Duration::from_secs(HEARTBEAT_S));
    let mut seen = *changes.borrow_and_update();
    let mut look = true;
    let mut next_look = Instant::now() + LOOK;
    loop {
        if look {
            let began = Instant::now();
            look = false;
            next_look = Instant::now() + LOOK;
            // A link that another one has replaced elsewhere hands out nothing more.
            match worker::is_current(&state.store, worker, epoch).await {
                Ok(true) => {
                    let mut frames = Vec::new();
                    if let Err(error) = outbox.due(&mut frames).await {
                        tracing::warn!(%worker, %error, "the outbox could not be read; trying again");
                    }
                    for frame in frames {
                        if let Err(end) = say(socket, frame).await {
                            return end;
                        }
                    }
                }
                Ok(false) => return link.why_not_current().await,
                Err(error) => tracing::warn!(%worker, %error, "the outbox could not be read; trying again"),
            }
            // While the database keeps this waiting, nobody listens: that is not the peer's silence.
            heard += began.elapsed();
        }
        tokio::select! {
            message = socket.recv() => {
                let mut batch = Vec::new();
                if let Some(end) = take(message, &mut batch) {
                    return end;
                }
                // Whatever has arrived by now is carried out together.
                while batch.len() < BATCH {
                    match futures::FutureExt::now_or_never(socket.recv()) {
                        Some(message) => if let Some(end) = take(message, &mut batch) {
                            link.carry_out(batch, &mut outbox).await;
                            return end;
                        },
                        None => break,
                    }
                }
                for reply in link.carry_out(batch, &mut outbox).await {
                    match reply {
                        Reply::Frame(frame) => if let Err(end) = say(socket, frame).await {
                            return end;
                        },
                        Reply::End(end) => return end,
                    }
                }
                heard = Instant::now();
                look = outbox.wants_look();
            }
            () = tokio::time::sleep_until(heard + DEAD) => {
                return End(close::PROTOCOL, "no sign of life for 45 s");
            }
            _ = beat.tick() => {
                match worker::heartbeat(&state.store, worker, epoch).await {
                    Ok(true) => {}
                    Ok(false) => return link.why_not_current().await,
                    Err(error) => tracing::warn!(%worker, %error, "a heartbeat could not be stored"),
                }
                if let Err(end) = say(socket, Frame::notify(&Heartbeat {})).await {
                    return end;
                }
            }
            changed = changes.changed() => {
                if changed.is_err() {
                    return End(1001, "the server ends");
                }
                let now = *changes.borrow_and_update();
                let moved = |topic: Topic| now[topic as usize] != seen[topic as usize];
                look = moved(Topic::Outbox);
                if moved(Topic::Access) && !matches!(worker::is_current(&state.store, worker, epoch).await, Ok(true) | Err(_)) {
                    return link.why_not_current().await;
                }
                seen = now;
            }
            () = tokio::time::sleep_until(next_look) => look = true,
            _ = &mut superseded => return End(close::SUPERSEDED, "a newer link of this worker took over"),
            _ = ending.changed() => {
                let _ = say(socket, Frame::notify(&Drain {})).await;
                return End(1001, "the server ends");
            }
        }
    }
}

/// Sends a frame. A peer that takes nothing is as gone as one that says nothing.
async fn say(socket: &mut WebSocket, frame: Frame) -> Result<(), End> {
    match tokio::time::timeout(DEAD, socket.send(Message::text(frame.to_text()))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End(1006, "the connection was lost")),
        Err(_) => Err(End(close::PROTOCOL, "nothing was taken for 45 s")),
    }
}

/// Adds a frame to the batch; an end of the socket ends the link.
fn take(message: Option<Result<Message, axum::Error>>, batch: &mut Vec<Frame>) -> Option<End> {
    match message {
        Some(Ok(Message::Text(text))) => match Frame::parse(&text) {
            Ok(frame) => {
                batch.push(frame);
                None
            }
            Err(_) => Some(End(close::PROTOCOL, "a frame could not be read")),
        },
        Some(Ok(Message::Binary(_))) => Some(End(close::PROTOCOL, "text frames are expected")),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
        Some(Ok(Message::Close(_))) | None => Some(End(1000, "the worker closed the link")),
        Some(Err(_)) => Some(End(1006, "the connection was lost")),
    }
}

enum Reply {
    Frame(Frame),
    End(End),
}

struct Link<'a> {
    state: &'a AppState,
    worker: WorkerId,
    epoch: i64,
    takes: HashMap<String, approval::Takes>,
}

impl Link<'_> {
    async fn why_not_current(&self) -> End {
        match worker::list(&self.state.store).await {
            Ok(all) if all.iter().any(|w| w.id == self.worker && w.revoked) => {
                End(close::UNAUTHORIZED, "the token is revoked")
            }
            _ => End(close::SUPERSEDED, "a newer link of this worker took over"),
        }
    }

    /// Carries out a batch: events first, those of a session in one transaction; then
    /// permission requests, several at a time; then the rest in order.
    async fn carry_out(&self, batch: Vec<Frame>, outbox: &mut Outbox) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut events: BTreeMap<SessionId, Vec<Arrived>> = BTreeMap::new();
        let mut asks = Vec::new();
        let mut rest = Vec::new();
        for frame in batch {
            match frame {
                Frame::Notify { method, params } if method == SessionEvent::METHOD => {
                    match body::<SessionEvent>(&params) {
                        Ok(e) if e.epoch == self.epoch => events.entry(e.key).or_default().push(Arrived {
                            seq: e.seq,
                            run: e.run,
                            at: e.at,
                            body: e.body,
                        }),
                        Ok(_) => {}
                        Err(error) => {
                            tracing::warn!(worker = %self.worker, %error, "an event could not be read");
                            return vec![Reply::End(End(close::PROTOCOL, "an event could not be read"))];
                        }
                    }
                }
                Frame::Call { id, method, params } if method == PermissionRequest::METHOD => {
                    match body::<PermissionRequest>(&params) {
                        Ok(ask) => asks.push((id, ask)),
                        Err(error) => replies.push(Reply::Frame(Frame::answer::<()>(id, Err(error)))),
                    }
                }
                other => rest.push(other),
            }
        }
        let stored = join_all(events.iter().map(|(session, events)| async move {
            (*session, event::store_all(&self.state.store, self.worker, self.epoch, *session, events).await)
        }))
        .await;
        for (key, stored) in stored {
            match stored {
                Ok(Stored::UpTo(seq)) => replies.push(Reply::Frame(Frame::notify(&Acknowledge { key, seq }))),
                Ok(Stored::Fenced) => {
                    replies.push(Reply::End(self.why_not_current().await));
                    return replies;
                }
                // Its verdict comes with the next hello.
                Ok(Stored::Unknown) => {
                    tracing::warn!(session = %key, "events of an unknown session were dropped");
                }
                Err(error) => {
                    // Not acknowledged: the worker sends them again on a new link.
                    tracing::warn!(session = %key, %error, "events could not be stored");
                    replies.push(Reply::End(End(1013, "the server cannot store now; try again")));
                    return replies;
                }
            }
        }
        let link = self;
        let mut answers =
            stream::iter(asks).map(|(id, ask)| async move { (id, link.pause(ask).await) }).buffered(AT_ONCE);
        while let Some((id, result)) = answers.next().await {
            match result {
                Ok(stored) => replies.push(Reply::Frame(Frame::answer(id, Ok(stored)))),
                Err(PauseError::Rpc(error)) => {
                    replies.push(Reply::Frame(Frame::answer::<()>(id, Err(error))));
                }
                Err(PauseError::Fenced) => {
                    replies.push(Reply::End(link.why_not_current().await));
                    return replies;
                }
            }
        }
        drop(answers);
        for frame in rest {
            if let Some(reply) = self.one(frame, outbox).await {
                replies.push(reply);
            }
        }
        replies
    }

    async fn pause(&self, ask: PermissionRequest) -> Result<PermissionStored, PauseError> {
        if ask.epoch != self.epoch {
            return Err(PauseError::Rpc(RpcError::new(REFUSED, "the epoch is old")));
        }
        let asked = approval::Asked {
            session: ask.key,
            run: ask.run,
            request_key: &ask.request_key,
            after_seq: ask.after_seq,
            harness: &ask.harness,
            tool: &ask.tool,
            folder: &ask.folder,
            sub_agent: ask.sub_agent.as_deref(),
            call_id: ask.call_id.as_deref(),
            mode: &ask.mode,
            input: &ask.input.0,
            action_digest: ask.action_digest,
            words: ask.words.as_deref(),
            options: &ask.options,
            sub_agent_title: ask.sub_agent_title.as_deref(),
            grants: &ask.grants,
            takes: self.takes.get(&ask.harness).copied().unwrap_or_default(),
            native_deadline_ms: ask.native_deadline_ms,
        };
        match approval::pause(&self.state.store, self.worker, self.epoch, asked).await {
            Ok(approval::Paused::Stored { approval, remaining_ms }) => {
                Ok(PermissionStored { approval, remaining_ms })
            }
            Ok(approval::Paused::Refused { why }) => Err(PauseError::Rpc(RpcError::new(REFUSED, why))),
            Ok(approval::Paused::Fenced) => Err(PauseError::Fenced),
            Err(error) => {
                tracing::warn!(run = %ask.run, %error, "a permission request could not be stored");
                Err(PauseError::Rpc(RpcError::new(UNAVAILABLE, "the request could not be stored")))
            }
        }
    }

    /// A frame that is neither an event nor a permission request.
    async fn one(&self, frame: Frame, outbox: &mut Outbox) -> Option<Reply> {
        match frame {
            Frame::Notify { method, .. } => {
                // Heartbeats count by having arrived; unknown notifications are ignored.
                tracing::trace!(%method, "a notification");
                None
            }
            Frame::Answer { id, result } => {
                if let Err(error) = outbox.answered(id, result).await {
                    tracing::warn!(worker = %self.worker, %error, "a worker's answer could not be stored");
                    return Some(Reply::End(End(1013, "the server cannot store now; try again")));
                }
                None
            }
            Frame::Call { id, method, params } => {
                let result = match method.as_str() {
                    Withdrawn::METHOD => match body::<Withdrawn>(&params) {
                        Ok(gone) => self.withdrawn(gone).await,
                        Err(error) => Err(error),
                    },
                    Effect::METHOD => match body::<Effect>(&params) {
                        Ok(seen) => self.effect(seen).await,
                        Err(error) => Err(error),
                    },
                    Heartbeat::METHOD => Ok(()),
                    _ => Err(RpcError::new(METHOD_NOT_FOUND, "unknown method")),
                };
                Some(Reply::Frame(Frame::answer(id, result)))
            }
        }
    }

    async fn withdrawn(&self, gone: Withdrawn) -> Result<(), RpcError> {
        self.check_epoch(gone.epoch).await?;
        approval::withdraw(
            &self.state.store,
            self.worker,
            &gone.request_key,
            &gone.reason,
            gone.execution_gone,
        )
        .await
        .map_err(unavailable)
    }

    async fn effect(&self, seen: Effect) -> Result<(), RpcError> {
        self.check_epoch(seen.epoch).await?;
        let (next, note) = match seen.effect {
            EffectKind::Ran => (Delivery::Effect, "It ran."),
            EffectKind::Failed => (Delivery::Effect, "Its result is an error."),
            EffectKind::Refused => (Delivery::Effect, "The refusal was seen."),
            EffectKind::Unknown => {
                (Delivery::OutcomeUnknown, "The process was gone after the answer may have been written.")
            }
            EffectKind::Unseen => {
                (Delivery::OutcomeUnknown, "The agent went on without telling what came of it.")
            }
            EffectKind::NotApplied => {
                (Delivery::NotApplied, "The process was gone before the answer was written.")
            }
        };
        store::decision::effect(&self.state.store, self.worker, &seen.request_key, next, note)
            .await
            .map(drop)
            .map_err(unavailable)
    }

    /// Whether what is said is of this link, and this link still the worker's. Another
    /// server may have taken the worker over a moment ago.
    async fn check_epoch(&self, epoch: i64) -> Result<(), RpcError> {
        let is_current = epoch == self.epoch
            && worker::is_current(&self.state.store, self.worker, epoch).await.map_err(unavailable)?;
        if is_current { Ok(()) } else { Err(RpcError::new(REFUSED, "the epoch is old")) }
    }
}

enum PauseError {
    Rpc(RpcError),
    Fenced,
}

fn unavailable(error: store::Error) -> RpcError {
    tracing::warn!(%error, "a worker's report could not be stored");
    RpcError::new(UNAVAILABLE, "the server cannot store now")
}
