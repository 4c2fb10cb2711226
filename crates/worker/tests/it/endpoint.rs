//! A scripted model: an endpoint of the Messages API on loopback. It plays the turns
//! written in the newest prompt after `SCRIPT:`, as JSON; which turn it is, is the number
//! of its answers since. Without a script it says "ok".

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// What the model was asked.
#[derive(Clone, Debug)]
pub struct Heard {
    /// `x-api-key`.
    pub key: Option<String>,
    /// `authorization`.
    pub bearer: Option<String>,
    pub body: Value,
}

impl Heard {
    /// Everything in its messages, as text.
    pub fn text(&self) -> String {
        self.body["messages"].to_string()
    }
}

/// The endpoint.
#[derive(Clone)]
pub struct Endpoint {
    pub port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Endpoint {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Self { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
        let heard = Arc::clone(&endpoint.heard);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&heard)));
            }
        });
        endpoint
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, heard: Arc<Mutex<Vec<Heard>>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut key, mut bearer, mut line) = (0, None, None, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            let value = |name: &str| {
                let (head, value) = line.split_once(':')?;
                head.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            };
            key = value("x-api-key").or(key);
            bearer = value("authorization").or(bearer);
            if line.trim().is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.ok()?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let answer = turn(&body);
        let streams = body["stream"] == true;
        if streams {
            heard.lock().unwrap().push(Heard { key, bearer, body });
        }
        if let Some(status) = answer.iter().find_map(|b| b["status"].as_u64()) {
            let text = format!(
                "HTTP/1.1 {status} Failed\r\nconnection: keep-alive\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{OVERLOADED}",
                OVERLOADED.len()
            );
            stream.get_mut().write_all(text.as_bytes()).await.ok()?;
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nrequest-id: req_test\r\n";
        let text = if streams {
            let events = events(&answer);
            format!(
                "{head}content-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
                events.len()
            )
        } else {
            format!("{head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}")
        };
        stream.get_mut().write_all(text.as_bytes()).await.ok()?;
    }
}

/// What a block `{"status": 529}` answers with.
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"scripted"}}"#;

fn texts(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|b| b["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

/// What the model says next, as content blocks.
fn turn(body: &Value) -> Vec<Value> {
    let empty = Vec::new();
    let messages = body["messages"].as_array().unwrap_or(&empty);
    for (i, message) in messages.iter().enumerate().rev() {
        let text = texts(message);
        let Some((_, script)) = text.split_once("SCRIPT:").filter(|_| message["role"] == "user") else {
            continue;
        };
        let script = script.lines().next().unwrap_or_default();
        let turns: Vec<Vec<Value>> = serde_json::from_str(script).unwrap_or_default();
        let n = messages[i + 1..].iter().filter(|m| m["role"] == "assistant").count();
        return turns.get(n).cloned().unwrap_or_else(|| vec![json!({"text": "over"})]);
    }
    vec![json!({"text": "ok"})]
}

fn events(blocks: &[Value]) -> String {
    let mut all = Vec::new();
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let id = uuid::Uuid::new_v4().simple().to_string();
    let calls = blocks.iter().any(|b| b["tool"].is_string());
    all.push(json!({"type": "message_start", "message": {"id": format!("msg_{id}"), "type": "message",
        "role": "assistant", "model": "test", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}}));
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = if let Some(tool) = block["tool"].as_str() {
            (
                json!({"type": "tool_use", "id": format!("toolu_{}_{index}", &id[..12]), "name": tool, "input": {}}),
                json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}),
            )
        } else {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]}))
        };
        all.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        all.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        all.push(json!({"type": "content_block_stop", "index": index}));
    }
    let stop = if calls { "tool_use" } else { "end_turn" };
    all.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 1}}));
    all.push(json!({"type": "message_stop"}));
    let lines: Vec<String> =
        all.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap())).collect();
    lines.concat()
}
