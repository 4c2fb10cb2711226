//! One life of the link, as sessions use it: notifications and calls to the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use link::{
    frame::{CallId, Frame, Message, RpcError, body},
    message::Epoch,
};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// How long the server may take to answer a call. It is repeated afterwards.
const ANSWER: Duration = Duration::from_secs(15);

type Answer = Result<Box<RawValue>, RpcError>;

#[derive(Debug, Default)]
struct Calls {
    last: CallId,
    open: HashMap<CallId, oneshot::Sender<Answer>>,
}

/// The sending end of a link. Stays usable after the link is gone; nothing arrives then.
#[derive(Clone, Debug)]
pub struct Link {
    pub epoch: Epoch,
    out: mpsc::UnboundedSender<String>,
    calls: Arc<Mutex<Calls>>,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Refused(RpcError),
    #[error("the link is gone")]
    Gone,
    #[error("the server did not answer in time")]
    Late,
}

impl Link {
    /// A link that puts its frames into `out`.
    pub fn new(out: mpsc::UnboundedSender<String>) -> Self {
        Self { epoch: 0, out, calls: Arc::default() }
    }

    /// The same link under the epoch the server has issued.
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    pub fn notify<M: Message<Reply = ()>>(&self, message: &M) {
        self.send(Frame::notify(message));
    }

    pub fn send(&self, frame: Frame) {
        let _ = self.out.send(frame.to_text());
    }

    /// Sends a call at once, so that calls and notifications keep their order, and
    /// gives the future of its answer.
    pub fn call<M: Message>(
        &self,
        message: &M,
    ) -> impl Future<Output = Result<M::Reply, CallError>> + Send + use<M> {
        let (tell, told) = oneshot::channel();
        let id = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.last += 1;
            let id = calls.last;
            calls.open.insert(id, tell);
            id
        };
        self.send(Frame::call(id, message));
        let calls = Arc::clone(&self.calls);
        async move {
            let answer = timeout(ANSWER, told).await;
            calls.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&id);
            let raw = answer.map_err(|_| CallError::Late)?.map_err(|_| CallError::Gone)?;
            raw.and_then(|raw| body(&raw)).map_err(CallError::Refused)
        }
    }

    /// An answer has arrived.
    pub fn answered(&self, id: CallId, answer: Answer) {
        let waiting = self.calls.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// The link is over: whoever waits for an answer learns it.
    pub fn close(&self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).open.clear();
    }
}
