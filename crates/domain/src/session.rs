//! A session: a conversation with an agent.

use serde::{Deserialize, Serialize};

use crate::{
    agent::AgentView,
    approval::ApprovalDetail,
    event::EventBody,
    id::SessionId,
    run::{RunStatus, RunView},
    time::Timestamp,
};

/// A session as the side list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub id: SessionId,
    pub title: String,
    pub agent: String,
    /// The status of its latest run.
    pub status: Option<RunStatus>,
    pub waiting: u32,
    pub private: bool,
    pub updated_at: Timestamp,
}

/// One thing in a transcript, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Event { seq: i64, at: Timestamp, body: EventBody },
    Approval { approval: Box<ApprovalDetail> },
}

/// One run with what happened in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub run: RunView,
    pub items: Vec<Item>,
    /// Events before the first one shown, left out.
    pub left_out: u64,
}

/// A session with its newest turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDetail {
    pub row: SessionRow,
    pub owner: String,
    pub agent: AgentView,
    pub turns: Vec<Turn>,
    /// Where older turns go on, if there are any.
    pub earlier: Option<String>,
    /// Whether the caller may write in it.
    pub may_prompt: bool,
}

/// The longest title, in characters. A session is named by its first prompt.
pub const TITLE_MAX: usize = 80;

/// A title made of a prompt: its first line with words, cut.
pub fn title_of(prompt: &str) -> String {
    let line = prompt.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("Untitled");
    if line.chars().count() <= TITLE_MAX {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE_MAX - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_with_words() {
        assert_eq!(title_of("\n  \nFix it\nnow"), "Fix it");
        assert_eq!(title_of(" "), "Untitled");
        assert_eq!(title_of(&"é".repeat(200)).chars().count(), TITLE_MAX);
    }
}
