//! What the beginning of a line tells, where the rest was too long to keep or cannot be
//! read: enough to refuse a permission request, which would otherwise wait for ever.

use serde_json::{Deserializer, value::RawValue};

/// The members of an object, as far as they are whole.
#[derive(Debug, Default)]
pub struct Head<'a> {
    whole: Vec<(String, &'a RawValue)>,
}

impl<'a> Head<'a> {
    /// Reads as far as `text` goes.
    pub fn read(text: &'a str) -> Self {
        let mut head = Self::default();
        let Some(mut rest) = text.trim_start().strip_prefix('{') else { return head };
        while let Some((name, value)) = named(rest) {
            let mut values = Deserializer::from_str(value).into_iter::<&RawValue>();
            let whole = values.next().and_then(Result::ok);
            let after = value[values.byte_offset().min(value.len())..].trim_start();
            // A number may go on behind the cut.
            match (whole, after.chars().next()) {
                (Some(whole), Some(',')) => {
                    head.whole.push((name, whole));
                    rest = &after[1..];
                }
                (Some(whole), Some(_)) => {
                    head.whole.push((name, whole));
                    break;
                }
                _ => break,
            }
        }
        head
    }

    /// The value of a member as its JSON text; the last one of that name, as everybody reads it.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        self.whole.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.get())
    }

    /// The value of a member, where it is a text.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.raw(name)?).ok()
    }
}

/// The next name, and the text from its value on.
fn named(text: &str) -> Option<(String, &str)> {
    let mut names = Deserializer::from_str(text).into_iter::<String>();
    let name = names.next()?.ok()?;
    let rest = text.get(names.byte_offset()..)?.trim_start().strip_prefix(':')?;
    Some((name, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_up_to_the_cut() {
        let text = r#" {"type":"control_request","request_id":"a\"b","request":{"subtype":"can_use_tool","input":{"command":"xxxx"#;
        let head = Head::read(text);
        assert_eq!(head.text("type").as_deref(), Some("control_request"));
        assert_eq!(head.text("request_id").as_deref(), Some("a\"b"));
        assert_eq!(head.raw("request"), None);
    }

    #[test]
    fn a_number_that_may_go_on_is_no_id() {
        assert_eq!(Head::read(r#"{"id":12"#).raw("id"), None);
        assert_eq!(Head::read(r#"{"id":12,"x"#).raw("id"), Some("12"));
        assert_eq!(Head::read(r#"{"id":12}"#).raw("id"), Some("12"));
        assert_eq!(Head::read(r#"{"id":1,"id":"2","x":"#).raw("id"), Some("\"2\""));
        assert_eq!(Head::read("nonsense").raw("id"), None);
    }
}
