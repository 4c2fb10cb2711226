//! What a worker reports of a run, in order. The transcript is these, stored.

use serde::{Deserialize, Serialize};

use crate::run::RunStatus;

/// One entry of a transcript. All text in it is the agent's or the harness's:
/// untrusted, drawn as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventBody {
    /// The prompt was written to the harness.
    Started {
        /// The harness's own session or thread id, where it has told one.
        native_session: Option<String>,
        pid: Option<u32>,
    },
    /// The agent's answer, or a part of it.
    Said { text: String, sub_agent: Option<String> },
    /// The agent's own account of its thinking.
    Thought { text: String },
    /// The agent calls a tool.
    Called {
        /// The harness's id of the call; joins the result.
        call_id: String,
        tool: String,
        /// The call in one line, made by the driver from the input.
        summary: String,
        /// The input as text.
        input: String,
        sub_agent: Option<String>,
    },
    /// The tool's result, or its refusal.
    Returned {
        call_id: String,
        output: String,
        is_error: bool,
        /// Bytes left out of `output`; 0 where it is whole.
        left_out: u64,
    },
    /// Something the driver has to say: a retry of the endpoint, an unreadable line.
    Notice { text: String, alarm: bool },
    /// The agent has ended its turn; this goes on in the background, and may ask again.
    Background { tasks: Vec<String> },
    /// The permission mode the harness reports.
    Mode { mode: String },
    /// The harness is idle, or gone: the run is over.
    Ended {
        /// `completed`, `cancelled` or `error`.
        status: RunStatus,
        /// Why, as a sentence, where there is more to say.
        detail: Option<String>,
    },
}

/// The most bytes of one text in an event. Longer texts are cut by the driver,
/// which says how much it left out.
pub const EVENT_TEXT_MAX: usize = 64 * 1024;

/// Cuts `text` at a character boundary. Returns the bytes left out.
pub fn cut(text: &mut String, most: usize) -> u64 {
    if text.len() <= most {
        return 0;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let left_out = text.len() - end;
    text.truncate(end);
    left_out as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_characters_whole() {
        let mut text = "aé".to_owned();
        assert_eq!(cut(&mut text, 2), 2);
        assert_eq!(text, "a");
        let mut text = "ab".to_owned();
        assert_eq!(cut(&mut text, 2), 0);
    }
}
