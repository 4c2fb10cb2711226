//! Editing an action before it is approved. What a person typed replaces texts inside
//! the input; every other byte stays as the harness sent it. The edited input is kept
//! beside the original and is part of the answer digest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    action::{has_doubled_keys, members},
    failure::Failure,
};

/// The longest edited input, in bytes.
pub const EDIT_MAX: usize = 1024 * 1024;

/// The name of the field that stands for the whole input, as JSON text.
pub const WHOLE: &str = "input";

/// A text of an action that can be edited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The member of the input, or [`WHOLE`].
    pub name: String,
    /// What people call it.
    pub label: String,
    pub text: String,
}

/// The members whose text can be edited one by one, in the order they are shown.
const TEXTS: &[(&str, &str)] = &[
    ("command", "Command"),
    ("file_path", "File"),
    ("notebook_path", "File"),
    ("url", "Address"),
    ("prompt", "Prompt"),
    ("content", "Content"),
    ("new_source", "Content"),
    ("old_string", "Text to replace"),
    ("new_string", "New text"),
];

/// What can be edited in an input: its known texts, or else the whole of it. Nothing
/// where it cannot be read as an object, or is too large for a form.
pub fn fields(input: &[u8]) -> Vec<Field> {
    let Ok(text) = std::str::from_utf8(input) else { return Vec::new() };
    if input.len() > EDIT_MAX {
        return Vec::new();
    }
    let Some(all) = members(text).filter(|all| !has_doubled_keys(all)) else { return Vec::new() };
    let known: Vec<Field> = TEXTS
        .iter()
        .filter_map(|(name, label)| {
            let (_, value) = all.iter().find(|(n, _)| n == name)?;
            let text = serde_json::from_str::<String>(value.get()).ok()?;
            // A browser's text area keeps neither.
            let kept = !text.contains(['\r', '\0']);
            kept.then(|| Field { name: (*name).to_owned(), label: (*label).to_owned(), text })
        })
        .collect();
    if !known.is_empty() {
        return known;
    }
    vec![Field { name: WHOLE.to_owned(), label: "Input".to_owned(), text: text.to_owned() }]
}

/// The input with the texts of a form put in. Members keep their order and, where they
/// were not edited, their bytes.
pub fn apply(input: &[u8], form: &BTreeMap<String, String>) -> Result<String, Failure> {
    let refuse = |why: &str| Failure::invalid("edit", why);
    let offered = fields(input);
    if offered.is_empty() {
        return Err(refuse("This request cannot be edited."));
    }
    if form.keys().any(|name| !offered.iter().any(|f| f.name == *name)) {
        return Err(refuse("A field was edited that the request does not have."));
    }
    if form.values().any(|text| text.contains('\0')) {
        return Err(refuse("The edited request holds a null character."));
    }
    // Forms send line ends as CR LF; none of the texts on offer holds a CR of its own.
    let typed = |field: &Field| {
        let text = form.get(&field.name).map(|t| t.replace("\r\n", "\n"));
        text.filter(|t| *t != field.text)
    };
    let text = std::str::from_utf8(input).map_err(|_| refuse("This request cannot be edited."))?;
    let edited = if let [only] = offered.as_slice()
        && only.name == WHOLE
    {
        typed(only).ok_or_else(|| refuse(UNCHANGED))?
    } else {
        let mut changed = false;
        let members = members(text).unwrap_or_default();
        let mut out = String::with_capacity(text.len());
        for (name, value) in &members {
            out.push(if out.is_empty() { '{' } else { ',' });
            out.push_str(&quoted(name));
            out.push(':');
            match offered.iter().find(|f| f.name == *name).and_then(typed) {
                Some(new) => {
                    changed = true;
                    out.push_str(&quoted(&new));
                }
                None => out.push_str(value.get()),
            }
        }
        out.push('}');
        if !changed {
            return Err(refuse(UNCHANGED));
        }
        out
    };
    check(&edited)?;
    Ok(edited)
}

const UNCHANGED: &str = "Nothing was changed. Change the text, or approve it as it is.";

/// Whether a text can stand as an edited input: an object with something in it, no
/// member twice. An empty object would run the original input (seen with Claude Code).
pub fn check(edited: &str) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::invalid("edit", why);
    if edited.len() > EDIT_MAX {
        return Err(refuse("The edited request is larger than 1 MiB."));
    }
    if edited.contains('\0') {
        return Err(refuse("The edited request holds a null character, which cannot be stored."));
    }
    if let Err(error) = serde_json::from_str::<&RawValue>(edited) {
        return Err(refuse(&format!("The edited request is not JSON: {error}.")));
    }
    match members(edited) {
        None => Err(refuse("The edited request is not a JSON object.")),
        Some(all) if all.is_empty() => Err(refuse("The edited request is empty. The original would run.")),
        Some(all) if has_doubled_keys(&all) => Err(refuse("A member of the edited request is given twice.")),
        Some(_) => Ok(()),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect()
    }

    #[test]
    fn only_the_edited_text_changes() {
        let input = br#"{"command":"ls","timeout":9007199254740993,"description":"List"}"#;
        assert_eq!(fields(input).iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["command"]);
        let edited = apply(input, &form(&[("command", "ls -l\r\nwhoami")])).unwrap();
        assert_eq!(edited, r#"{"command":"ls -l\nwhoami","timeout":9007199254740993,"description":"List"}"#);
    }

    #[test]
    fn an_edit_that_changes_nothing_or_adds_something_is_refused() {
        let input = br#"{"command":"ls"}"#;
        assert!(apply(input, &form(&[("command", "ls")])).is_err());
        assert!(apply(input, &form(&[])).is_err());
        assert!(apply(input, &form(&[("command", "ls"), ("timeout", "1")])).is_err());
        assert!(apply(b"[1]", &form(&[("input", "{}")])).is_err());
    }

    #[test]
    fn another_input_is_edited_as_a_whole() {
        let input = br#"{"rows":[1.0]}"#;
        assert_eq!(fields(input)[0].name, WHOLE);
        assert_eq!(apply(input, &form(&[(WHOLE, r#"{"rows":[2]}"#)])).unwrap(), r#"{"rows":[2]}"#);
        for bad in ["{}", "[1]", "{", r#"{"a":1,"a":2}"#, "null"] {
            assert!(apply(input, &form(&[(WHOLE, bad)])).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_form_would_change_by_itself_is_not_offered() {
        assert_eq!(fields(b"{\"command\":\"a\\rb\"}")[0].name, WHOLE);
        assert!(fields(br#"{"a":1,"a":2}"#).is_empty());
    }
}
