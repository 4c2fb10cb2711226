//! The conversations on disk: as much of a transcript as resuming needs. One begins to
//! exist with its first prompt, as the real one does.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::flags::Flags;

/// One conversation.
#[derive(Debug)]
pub struct Conversation {
    pub id: String,
    file: PathBuf,
}

/// Where conversations are kept: in `CLAUDE_CONFIG_DIR`, or below the home folder.
pub fn folder() -> PathBuf {
    let named = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|f| !f.is_empty()).map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".claude");
    named.unwrap_or_else(home).join("scripted-sessions")
}

/// Takes up or begins the conversation the flags name. The error is for standard error.
pub fn open(flags: &Flags, folder: &Path) -> Result<Conversation, String> {
    let at = |id: &str| folder.join(format!("{}.jsonl", id.replace(['/', '.'], "_")));
    if let Some(id) = &flags.resume {
        if !at(id).is_file() {
            return Err(format!("No conversation found with session ID: {id}"));
        }
        if !flags.fork {
            return Ok(Conversation { id: id.clone(), file: at(id) });
        }
    }
    let id = flags.session.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if at(&id).exists() {
        return Err(format!("Error: Session ID {id} is already in use."));
    }
    Ok(Conversation { file: at(&id), id })
}

impl Conversation {
    /// Keeps a prompt. What cannot be kept cannot be resumed, which shows then.
    pub fn keep(&self, prompt: &str) {
        if let Some(folder) = self.file.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let line = format!("{}\n", serde_json::Value::from(prompt));
        if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&self.file) {
            let _ = file.write_all(line.as_bytes());
        }
    }
}
