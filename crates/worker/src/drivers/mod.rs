//! Drivers: the native protocols, as state machines without I/O. Lines of the harness
//! go in, [`Step`]s come out. A driver's state is plain data and is journalled together
//! with what came out of each line, so that a new worker goes on exactly there.

pub mod acp;
pub mod claude;
mod head;

use domain::{
    approval::{AskOption, Grant},
    decision::{Answer, NOBODY_ANSWERED, Outcome, REJECTED_WITHOUT_WORDS},
    event::{EVENT_TEXT_MAX, EventBody, cut},
    id::{DecisionId, RunId},
    run::RunStatus,
};
use link::message::Bytes;
use serde::{Deserialize, Serialize};

use crate::journal::Intent;

/// What a line of a harness comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A line to hand to the harness.
    Write(String),
    Event(EventBody),
    Ask(Box<Ask>),
    /// Everything the harness waits for now: what is not in it is withdrawn.
    Listed(Vec<Ask>),
    Withdrawn {
        native_id: String,
        reason: String,
    },
    /// The harness has told its own id of the conversation.
    NativeSession(String),
    /// The handshake is done and the ordered mode was read back.
    Ready,
    /// Nothing goes on and nothing can ask any more.
    Idle {
        status: RunStatus,
        detail: Option<String>,
    },
    /// The harness must not go on; a sentence says why.
    Fatal(String),
}

/// A native permission request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The harness's own id of the request, as text.
    pub native_id: String,
    pub tool: String,
    /// The input's bytes, exactly as received.
    pub input: Bytes,
    pub sub_agent: Option<String>,
    /// The harness's id of the call; joins the result.
    pub call_id: Option<String>,
    /// The agent's own words about it.
    pub words: Option<String>,
    pub options: Vec<AskOption>,
    /// What the sub-agent is called and was told to do.
    #[serde(default)]
    pub sub_agent_title: Option<String>,
    /// What the harness suggests to allow besides, until its process ends.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// An answer as a harness takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub line: String,
    /// A line that follows it, for what the harness itself does not tell its model.
    pub follow_up: Option<String>,
    /// The permission modes this answer allows the harness to go over to.
    pub modes: Vec<String>,
}

impl From<String> for Answered {
    fn from(line: String) -> Self {
        Self { line, follow_up: None, modes: Vec::new() }
    }
}

/// The driver of one harness process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "driver", rename_all = "snake_case")]
pub enum Driver {
    Claude(claude::Claude),
    Acp(acp::Acp),
}

impl Driver {
    /// The first lines to a new process.
    pub fn start(&mut self) -> Vec<String> {
        match self {
            Self::Claude(d) => d.initialize(),
            Self::Acp(d) => d.start(),
        }
    }

    /// Lines to a process that an earlier worker had talked to.
    pub fn reattach(&mut self) -> Vec<String> {
        match self {
            Self::Claude(d) => d.initialize(),
            // ACP cannot list what it waits for: that comes from the journal.
            Self::Acp(_) => Vec::new(),
        }
    }

    /// Whether the handshake is over.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Claude(d) => d.is_ready(),
            Self::Acp(d) => d.is_ready(),
        }
    }

    pub fn line(&mut self, line: &str) -> Vec<Step> {
        match self {
            Self::Claude(d) => d.line(line),
            Self::Acp(d) => d.line(line),
        }
    }

    /// Whether text is held back to be told in larger pieces.
    pub fn holds_text(&self) -> bool {
        match self {
            Self::Claude(_) => false,
            Self::Acp(d) => d.holds_text(),
        }
    }

    /// Gives the text held back.
    pub fn flush(&mut self) -> Vec<Step> {
        match self {
            Self::Claude(_) => Vec::new(),
            Self::Acp(d) => d.flush(),
        }
    }

    /// The line that hands over a prompt. Asked again for the same run, before any
    /// line was read in between, it is the same line.
    pub fn prompt(&mut self, run: RunId, text: &str) -> String {
        match self {
            Self::Claude(d) => d.prompt(run, text),
            Self::Acp(d) => d.prompt(text),
        }
    }

    /// The answer to a request. The error is a sentence: why this answer cannot be given
    /// to this request.
    pub fn answer(&self, ask: &Ask, decision: DecisionId, answer: &Answer) -> Result<Answered, String> {
        match self {
            Self::Claude(d) => d.answer(ask, decision, answer),
            Self::Acp(_) => acp::answer(ask, answer).map(Answered::from),
        }
    }

    /// An answer is about to be handed over: what it allows and what follows it.
    pub fn answering(&mut self, intent: &Intent) {
        match self {
            Self::Claude(d) => d.answering(intent),
            Self::Acp(_) => {}
        }
    }

    /// Whether a refusal shows as the result of its call. Then a run is stopped only
    /// after that, so that the words of the refusal are kept.
    pub const fn shows_refusals(&self) -> bool {
        matches!(self, Self::Claude(_))
    }

    /// What is to be said of a run whose turn is over and whose background work has
    /// ended just now, unless the harness begins a turn by itself.
    pub fn settles(&self) -> Option<(RunStatus, Option<String>)> {
        match self {
            Self::Claude(d) => d.settles(),
            Self::Acp(_) => None,
        }
    }

    /// What is to be said of a run of which only background work goes on.
    pub fn in_background(&self) -> Option<(RunStatus, Option<String>)> {
        match self {
            Self::Claude(d) => d.in_background(),
            Self::Acp(_) => None,
        }
    }

    /// The run was ended while background work went on: nothing more of it is awaited.
    pub fn let_go(&mut self) {
        match self {
            Self::Claude(d) => d.let_go(),
            Self::Acp(_) => {}
        }
    }

    /// Whether nothing at all goes on, so that the process may be ended.
    pub fn rests(&self) -> bool {
        match self {
            Self::Claude(d) => d.rests(),
            Self::Acp(_) => true,
        }
    }

    /// Whether its process can take another prompt as it is: its permission mode is the
    /// ordered one, or one a person has granted.
    pub fn suits(&self) -> bool {
        match self {
            Self::Claude(d) => d.suits(),
            Self::Acp(_) => true,
        }
    }

    /// The line that refuses a request in the worker's own words.
    pub fn refuse(&self, native_id: &str, options: &[AskOption], words: &str) -> String {
        match self {
            Self::Claude(_) => claude::deny(native_id, words),
            Self::Acp(_) => acp::refuse(native_id, options),
        }
    }

    /// The line that refuses what a line asked for of which only the beginning is known;
    /// nothing where it asked for nothing.
    pub fn refuse_left_out(&self, head: &str) -> Option<String> {
        match self {
            Self::Claude(_) => claude::refuse_left_out(head, TOO_LARGE),
            Self::Acp(_) => acp::refuse_left_out(head, TOO_LARGE),
        }
    }

    /// Lines that stop the present turn; `open` are the requests not answered.
    pub fn cancel(&mut self, run: RunId, open: &[String]) -> Vec<String> {
        match self {
            Self::Claude(d) => d.cancel(run),
            Self::Acp(d) => d.cancel(open),
        }
    }

    /// Lines that end the process; none where closing its input does.
    pub fn end(&self) -> Vec<String> {
        match self {
            Self::Claude(_) => vec![claude::end_session()],
            Self::Acp(_) => Vec::new(),
        }
    }

    /// Whether the harness ends when its input is closed. Claude Code must not be ended
    /// that way: it goes on unattended.
    pub const fn ends_with_input(&self) -> bool {
        matches!(self, Self::Acp(_))
    }

    /// Whether a new process can take up an earlier conversation.
    pub const fn resumes(&self) -> bool {
        matches!(self, Self::Claude(_))
    }
}

/// What the model is told of a request that cannot be shown.
pub const TOO_LARGE: &str =
    "This request is too large to be shown to a person, so it was not allowed. Use smaller steps.";

/// What a refusal says to the model.
fn words_of(answer: &Answer) -> &str {
    match answer.message.as_deref().map(str::trim) {
        Some(words) if !words.is_empty() => words,
        _ if answer.outcome == Outcome::Expire => NOBODY_ANSWERED,
        _ => REJECTED_WITHOUT_WORDS,
    }
}

/// `text` as events that each hold as much as one may.
fn said(mut text: String, sub_agent: Option<&str>) -> Vec<Step> {
    let mut steps = Vec::new();
    while !text.is_empty() {
        let mut rest = String::new();
        if text.len() > EVENT_TEXT_MAX {
            let mut head = text.clone();
            cut(&mut head, EVENT_TEXT_MAX);
            rest = text.split_off(head.len());
        }
        steps.push(Step::Event(EventBody::Said { text, sub_agent: sub_agent.map(str::to_owned) }));
        text = rest;
    }
    steps
}

fn thought(mut text: String) -> Step {
    shorten(&mut text);
    Step::Event(EventBody::Thought { text })
}

/// Cuts a text that has no place to say how much was left out.
fn shorten(text: &mut String) {
    if cut(text, EVENT_TEXT_MAX - 4) > 0 {
        text.push('…');
    }
}

fn returned(call_id: String, mut output: String, is_error: bool) -> Step {
    let left_out = cut(&mut output, EVENT_TEXT_MAX);
    Step::Event(EventBody::Returned { call_id, output, is_error, left_out })
}

fn notice(text: impl Into<String>, alarm: bool) -> Step {
    let mut text = text.into();
    shorten(&mut text);
    Step::Event(EventBody::Notice { text, alarm })
}

/// A line that fits no message of the protocol.
fn unreadable() -> Step {
    notice("The agent sent a line that could not be read. It was left out.", true)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
