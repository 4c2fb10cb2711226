//! The lines of the protocol that hold bytes to be kept as they are.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A line of the client.
#[derive(Debug, Deserialize)]
pub struct Inbound<'a> {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub request_id: String,
    #[serde(default, borrow)]
    pub request: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub response: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub message: Option<&'a RawValue>,
    #[serde(default)]
    pub uuid: Option<String>,
}

/// The body of a control request of the client.
#[derive(Debug, Default, Deserialize)]
pub struct Order {
    #[serde(default)]
    pub subtype: String,
    #[serde(default)]
    pub mode: String,
}

/// An answer of the client.
#[derive(Debug, Deserialize)]
pub struct Answered {
    #[serde(default)]
    pub subtype: String,
    #[serde(default)]
    pub request_id: String,
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub response: Option<Box<RawValue>>,
}

/// What an answer to `can_use_tool` holds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    #[serde(default)]
    pub behavior: String,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub interrupt: bool,
    #[serde(default)]
    pub updated_input: Option<Box<RawValue>>,
    #[serde(default)]
    pub updated_permissions: Vec<Update>,
}

/// One change of the permissions that comes with an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub rules: Vec<Rule>,
    #[serde(default)]
    pub behavior: String,
    #[serde(default)]
    pub destination: String,
    #[serde(default)]
    pub mode: String,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub tool_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_content: Option<String>,
}

impl Rule {
    /// As settings files write it.
    pub fn written(&self) -> String {
        match &self.rule_content {
            Some(content) => format!("{}({content})", self.tool_name),
            None => self.tool_name.clone(),
        }
    }

    /// Whether a call needs no permission by this rule.
    pub fn covers(&self, tool: &str, input: &str) -> bool {
        let command = || {
            let input: serde_json::Value = serde_json::from_str(input).unwrap_or_default();
            input["command"].as_str().map(str::to_owned)
        };
        self.tool_name == tool
            && self.rule_content.as_ref().is_none_or(|content| command().as_ref() == Some(content))
    }
}

/// A request of this program.
#[derive(Debug, Serialize)]
pub struct Asked<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub request_id: &'a str,
    pub request: CanUseTool<'a>,
}

/// The body of a permission request.
#[derive(Debug, Serialize)]
pub struct CanUseTool<'a> {
    pub subtype: &'static str,
    pub tool_name: &'a str,
    pub display_name: &'a str,
    pub input: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_suggestions: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_user_interaction: Option<bool>,
    pub tool_use_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<&'a str>,
}

/// A line of the assistant with a call in it.
#[derive(Debug, Serialize)]
pub struct Called<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub message: CalledMessage<'a>,
    pub parent_tool_use_id: Option<String>,
    pub session_id: &'a str,
    pub uuid: String,
}

#[derive(Debug, Serialize)]
pub struct CalledMessage<'a> {
    pub role: &'static str,
    pub content: [ToolUse<'a>; 1],
}

#[derive(Debug, Serialize)]
pub struct ToolUse<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub id: &'a str,
    pub name: &'a str,
    pub input: &'a RawValue,
}
