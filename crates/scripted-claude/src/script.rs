//! What a prompt tells this program to do.

use std::{fmt, path::PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

/// What stands before the script in a prompt, at the beginning of a line. The script
/// is the rest of that line.
pub const MARKER: &str = "script:";

/// A whole prompt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Where effects and refusals of its calls are counted.
    #[serde(default)]
    pub ledger: Option<PathBuf>,
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Ask for one call and wait for what becomes of it.
    Ask(Box<Ask>),
    /// Ask for several calls at the same moment.
    Asks(Vec<Ask>),
    /// A call that needs no permission, unless everything is asked for.
    Run(Box<Ask>),
    /// A line of the assistant.
    Say(String),
    /// So many lines of the assistant, numbered.
    Burst(u64, String),
    /// One line of the assistant of at least so many bytes.
    Huge(usize),
    /// Silence, in milliseconds. Lines of the client are read meanwhile.
    Wait(u64),
    /// A line exactly as given, be it JSON or not.
    Line(String),
    /// So many `api_retry` lines.
    Retry(u64),
    /// A change of the permission mode that nobody ordered.
    Mode(String),
    /// The end of the process.
    Die(Death),
    /// The turn ends with an error of these words.
    Fail(String),
    /// These steps go on after `result`, as a background sub-agent does.
    Background(Vec<Step>),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Death {
    /// With this exit status.
    Exit(i32),
    /// By SIGKILL.
    Kill(Kill),
}

/// The word for a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kill {
    Kill,
}

/// When in the life of a call something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The call is shown, nothing was asked.
    Before,
    /// The request was written.
    Asked,
    /// The answer was read, nothing was done.
    Answered,
    /// The effect is in the ledger, its result was not told.
    Effect,
}

/// When a request is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withdraw {
    AfterMs(u64),
    /// With the so-manieth line of the client that is read from now on.
    OnLine(u64),
}

/// One call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ask {
    /// `Bash` if it is left out.
    pub tool: Option<String>,
    /// Short for `{"command": …}` as the input.
    pub command: Option<String>,
    /// The input, byte for byte as it is asked.
    pub input: Option<Box<RawValue>>,
    /// The request's id; a new one if it is left out.
    pub id: Option<String>,
    /// The call's id; a new one if it is left out.
    pub call: Option<String>,
    /// Asked by this sub-agent.
    pub agent: Option<String>,
    /// `permission_suggestions`, as they are.
    pub suggestions: Option<Box<RawValue>>,
    pub withdraw: Option<Withdraw>,
    /// The request is written so many times more.
    pub again: u64,
    /// The process ends at this moment of the call.
    pub die: Option<(Moment, Death)>,
    /// Milliseconds the call itself takes.
    pub takes: u64,
}

impl Ask {
    pub fn tool(&self) -> &str {
        self.tool.as_deref().unwrap_or("Bash")
    }

    /// The input's JSON text.
    pub fn input(&self) -> String {
        match (&self.input, &self.command) {
            (Some(raw), _) => raw.get().to_owned(),
            (None, Some(command)) => serde_json::json!({ "command": command }).to_string(),
            (None, None) => "{}".to_owned(),
        }
    }

    pub fn dies(&self, moment: Moment) -> Option<Death> {
        self.die.filter(|(at, _)| *at == moment).map(|(_, death)| death)
    }
}

/// A prompt whose script cannot be read.
#[derive(Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The script cannot be read: {}.", self.0)
    }
}

/// The script of a prompt, if it has one.
pub fn read(prompt: &str) -> Result<Option<Script>, Unreadable> {
    let line = prompt.lines().find_map(|line| line.trim_start().strip_prefix(MARKER));
    line.map(|text| serde_json::from_str(text).map_err(|e| Unreadable(e.to_string()))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Step> {
        read(&format!("Please do this.\nscript: {text}\nThank you.")).unwrap().unwrap().steps
    }

    #[test]
    fn a_prompt_without_a_script_has_none_and_a_wrong_one_says_why() {
        assert!(read("a script: {}").unwrap().is_none());
        assert!(read("script: {\"do\":[{\"dance\":1}]}").unwrap_err().to_string().contains("dance"));
        assert!(read("script: {\"do\":[],\"more\":1}").is_err());
        assert!(read("script: {\"do\":[{\"ask\":{\"tol\":1}}]}").is_err());
    }

    #[test]
    fn the_input_is_kept_byte_for_byte() {
        let all = steps(r#"{"do":[{"ask":{"input":{"a": 9007199254740993, "a":1e2}}}]}"#);
        match &all[0] {
            Step::Ask(ask) => assert_eq!(ask.input(), r#"{"a": 9007199254740993, "a":1e2}"#),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_step_can_be_written() {
        let all = steps(
            r#"{"ledger":"/tmp/l","do":[{"asks":[{"command":"a","agent":"x"},{"tool":"Read","withdraw":{"after_ms":5}}]},
            {"run":{"command":"ls"}},{"say":"hi"},{"burst":[3,"x"]},{"huge":10},{"wait":1},{"line":"{"},{"retry":2},
            {"mode":"plan"},{"die":3},{"die":"kill"},{"fail":"no"},{"background":[{"say":"later"}]},
            {"ask":{"die":["effect","kill"],"withdraw":{"on_line":2},"again":1,"takes":5,"id":"i","call":"c","suggestions":[]}}]}"#
                .replace('\n', " ")
                .as_str(),
        );
        assert_eq!(all.len(), 14);
        match &all[13] {
            Step::Ask(ask) => {
                assert_eq!(ask.dies(Moment::Effect), Some(Death::Kill(Kill::Kill)));
                assert_eq!(ask.dies(Moment::Asked), None);
            }
            other => panic!("{other:?}"),
        }
    }
}
