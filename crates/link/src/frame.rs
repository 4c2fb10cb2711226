//! JSON-RPC 2.0 frames. Bodies stay raw until the method says what they are.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

/// The largest frame either side accepts, in bytes. A larger action is refused
/// natively, in words.
pub const MAX_FRAME: usize = 8 * 1024 * 1024;

/// The protocol versions this crate speaks.
pub const PROTOCOL_VERSIONS: &[u32] = &[1];

/// A request nobody here knows.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Parameters that do not fit the method.
pub const INVALID_PARAMS: i32 = -32602;
/// The request could not be carried out; try again later.
pub const UNAVAILABLE: i32 = -32000;
/// The sender is not, or no longer, allowed to.
pub const REFUSED: i32 = -32001;

/// Websocket close codes of `/link`.
pub mod close {
    /// The token is unknown, revoked or for another worker.
    pub const UNAUTHORIZED: u16 = 4401;
    /// A newer link of the same data folder has taken over.
    pub const SUPERSEDED: u16 = 4409;
    /// Another data folder holds the lease.
    pub const LEASED: u16 = 4423;
    /// No protocol version in common.
    pub const VERSION: u16 = 4426;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 4400;
}

/// What an id of a call may be: our own sides use numbers.
pub type CallId = u64;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    pub code: i32,
    pub message: String,
}

impl RpcError {
    pub fn new(code: i32, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RpcError>,
}

/// A frame, told apart.
#[derive(Debug)]
pub enum Frame {
    Call { id: CallId, method: String, params: Box<RawValue> },
    Notify { method: String, params: Box<RawValue> },
    Answer { id: CallId, result: Result<Box<RawValue>, RpcError> },
}

/// A message with a fixed method name; `Reply` is `()` for notifications.
pub trait Message: Serialize + DeserializeOwned {
    const METHOD: &'static str;
    type Reply: Serialize + DeserializeOwned;
}

fn raw<T: Serialize>(value: &T) -> Box<RawValue> {
    // Our own types hold text, numbers and lists: they always serialise.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl Frame {
    pub fn call<M: Message>(id: CallId, message: &M) -> Self {
        Self::Call { id, method: M::METHOD.to_owned(), params: raw(message) }
    }

    pub fn notify<M: Message<Reply = ()>>(message: &M) -> Self {
        Self::Notify { method: M::METHOD.to_owned(), params: raw(message) }
    }

    pub fn answer<T: Serialize>(id: CallId, result: Result<T, RpcError>) -> Self {
        Self::Answer { id, result: result.map(|value| raw(&value)) }
    }

    pub fn to_text(self) -> String {
        let mut envelope = Envelope {
            jsonrpc: "2.0".to_owned(),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
        };
        match self {
            Self::Call { id, method, params } => {
                (envelope.id, envelope.method, envelope.params) = (Some(id), Some(method), Some(params));
            }
            Self::Notify { method, params } => {
                (envelope.method, envelope.params) = (Some(method), Some(params));
            }
            Self::Answer { id, result } => {
                envelope.id = Some(id);
                match result {
                    Ok(value) => envelope.result = Some(value),
                    Err(error) => envelope.error = Some(error),
                }
            }
        }
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    pub fn parse(text: &str) -> Result<Self, RpcError> {
        let bad = |why: &str| RpcError::new(-32600, why);
        if text.len() > MAX_FRAME {
            return Err(bad("the frame is over 8 MiB"));
        }
        let e: Envelope = serde_json::from_str(text).map_err(|e| RpcError::new(-32700, e))?;
        if e.jsonrpc != "2.0" {
            return Err(bad("jsonrpc is not \"2.0\""));
        }
        let params = || RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned());
        match (e.id, e.method, e.result, e.error) {
            (Some(id), Some(method), None, None) => {
                Ok(Self::Call { id, method, params: e.params.unwrap_or_else(params) })
            }
            (None, Some(method), None, None) => {
                Ok(Self::Notify { method, params: e.params.unwrap_or_else(params) })
            }
            (Some(id), None, result, None) => {
                // `"result": null` reads as absent.
                Ok(Self::Answer { id, result: Ok(result.unwrap_or_else(|| RawValue::NULL.to_owned())) })
            }
            (Some(id), None, None, Some(error)) => Ok(Self::Answer { id, result: Err(error) }),
            _ => Err(bad("neither a request, a notification nor an answer")),
        }
    }
}

/// Reads the body of a message.
pub fn body<T: DeserializeOwned>(raw: &RawValue) -> Result<T, RpcError> {
    serde_json::from_str(raw.get()).map_err(|e| RpcError::new(INVALID_PARAMS, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"link/hello","params":{"a":1.0}}"#,
            r#"{"jsonrpc":"2.0","method":"link/heartbeat","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":9007199254740993}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#,
        ] {
            assert_eq!(Frame::parse(text).map(Frame::to_text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn batches_other_versions_and_mixtures_are_refused() {
        for text in [
            r#"[{"jsonrpc":"2.0","method":"x"}]"#,
            r#"{"jsonrpc":"1.0","method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
            r#"{"jsonrpc":"2.0"}"#,
            "",
        ] {
            assert!(Frame::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_null_result_is_an_answer() {
        let frame = Frame::parse(r#"{"jsonrpc":"2.0","id":4,"result":null}"#);
        assert!(matches!(frame, Ok(Frame::Answer { id: 4, result: Ok(_) })));
    }
}
