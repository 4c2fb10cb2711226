//! What a harness asked for, and how it is shown: always from the stored bytes,
//! never from the agent's words about it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{question::Questions, text_enum::text_enum};

text_enum! {
    /// What kind of act it is; chooses the icon and the heading.
    ActionKind {
        Command = "command",
        Write = "write",
        Read = "read",
        Fetch = "fetch",
        Question = "question",
        Plan = "plan",
        Tool = "tool",
        /// The input could not be read; it is shown as it came.
        Unknown = "unknown",
    }
}

impl ActionKind {
    /// What approving does, as a heading.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Command => "Run a command",
            Self::Write => "Change a file",
            Self::Read => "Read a file",
            Self::Fetch => "Fetch from the network",
            Self::Question => "Answer a question",
            Self::Plan => "Agree to a plan",
            Self::Tool => "Use a tool",
            Self::Unknown => "An unknown request",
        }
    }
}

/// A stretch of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    Text {
        text: String,
    },
    /// A character that does not show, shown: its code and its name.
    Mark {
        code: String,
        name: String,
    },
}

/// A part of an action: a command, a file's content, an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is, where there is more than one: `Content`, `Old text`.
    pub label: Option<String>,
    pub lines: Vec<Vec<Piece>>,
    /// The exact text, for *Copy*.
    pub exact: String,
    pub chars: u64,
}

/// An action as a card shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionView {
    pub kind: ActionKind,
    pub tool: String,
    /// Beside the tool: a path, a host, a folder.
    pub place: Option<String>,
    pub parts: Vec<Part>,
    /// Every other argument, named, as text: nothing is hidden.
    pub also: Vec<(String, String)>,
    /// What was found that does not show by itself, as sentences.
    pub findings: Vec<String>,
    /// False where the input could not be read as JSON text.
    pub checked: bool,
}

impl ActionView {
    /// The action in one line, for lists and titles.
    pub fn title(&self) -> String {
        let text = match self.kind {
            ActionKind::Question => {
                let asked = self.parts.first().and_then(|part| Questions::read(part.exact.as_bytes()));
                asked.and_then(|q| q.all().first().map(|q| marked(q.question.trim())))
            }
            ActionKind::Command | ActionKind::Plan => self.parts.first().map(first_line),
            _ => self.place.clone().map(|p| marked(&p)),
        };
        let text = text.filter(|t| !t.is_empty()).unwrap_or_else(|| self.tool.clone());
        if text.chars().count() <= 160 {
            return text;
        }
        let cut: String = text.chars().take(159).collect();
        format!("{cut}…")
    }
}

fn first_line(part: &Part) -> String {
    part.lines.iter().find(|l| !l.is_empty()).map(|l| written(l)).unwrap_or_default().trim().to_owned()
}

/// A line as plain text, its marks as codes.
fn written(line: &[Piece]) -> String {
    line.iter()
        .map(|piece| match piece {
            Piece::Text { text } => text.clone(),
            Piece::Mark { code, .. } => format!("[{code}]"),
        })
        .collect()
}

/// `text` on one line with characters that do not show written as their codes.
pub fn marked(text: &str) -> String {
    lines(text).iter().map(|line| written(line)).collect::<Vec<_>>().join(" ")
}

/// A top-level member of a JSON object, its value as the bytes it came in.
pub(crate) type Members<'a> = Vec<(String, &'a RawValue)>;

/// Reads the members of an object in order, doubled keys included.
pub(crate) fn members(input: &str) -> Option<Members<'_>> {
    struct Seen<'a>(Members<'a>);
    impl<'de: 'a, 'a> Deserialize<'de> for Seen<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct V;
            impl<'de> serde::de::Visitor<'de> for V {
                type Value = Members<'de>;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Self::Value, A::Error> {
                    let mut all = Vec::new();
                    while let Some(entry) = map.next_entry::<String, &'de RawValue>()? {
                        all.push(entry);
                    }
                    Ok(all)
                }
            }
            d.deserialize_map(V).map(Seen)
        }
    }
    serde_json::from_str::<Seen<'_>>(input).ok().map(|s| s.0)
}

/// Takes the only member of that name, if it is a text.
fn take_text(all: &mut Members<'_>, name: &str) -> Option<String> {
    let mut places = all.iter().enumerate().filter(|(_, (n, _))| n == name).map(|(i, _)| i);
    let (Some(at), None) = (places.next(), places.next()) else { return None };
    let text = serde_json::from_str(all[at].1.get()).ok()?;
    all.remove(at);
    Some(text)
}

/// Makes the card's view of an action from the stored bytes. `words` of the model
/// that a harness puts into the input itself (Claude's Bash `description`) are left
/// out here and returned by [`words_in`].
pub fn view(tool: &str, folder: &str, input: &[u8]) -> ActionView {
    let readable = std::str::from_utf8(input).ok().and_then(|text| Some((text, members(text)?)));
    let Some((text, mut all)) = readable else {
        return unknown(tool, folder, input);
    };
    let doubled = has_doubled_keys(&all);
    let mut parts = Vec::new();
    let mut place = None;
    let has = |name: &str, all: &Members<'_>| all.iter().any(|(n, _)| n == name);
    let kind = if doubled {
        ActionKind::Tool
    } else if tool == "AskUserQuestion" {
        ActionKind::Question
    } else if tool == "ExitPlanMode" {
        if let Some(plan) = take_text(&mut all, "plan") {
            parts.push(part(None, plan));
        }
        ActionKind::Plan
    } else if has("command", &all)
        && let Some(command) = take_text(&mut all, "command")
    {
        // Words of the model, shown apart: see words_in.
        take_text(&mut all, "description");
        parts.push(part(None, command));
        place = Some(format!("in {}", take_text(&mut all, "cwd").unwrap_or_else(|| folder.to_owned())));
        ActionKind::Command
    } else if let Some(path) = ["file_path", "path", "notebook_path"]
        .iter()
        .find_map(|n| if has(n, &all) { take_text(&mut all, n) } else { None })
    {
        place = Some(path);
        for (name, label) in [
            ("content", "Content"),
            ("new_source", "Content"),
            ("old_string", "Text to replace"),
            ("new_string", "New text"),
        ] {
            if let Some(text) = take_text(&mut all, name) {
                parts.push(part(Some(label), text));
            }
        }
        if parts.is_empty() && matches!(tool, "Read" | "read") {
            ActionKind::Read
        } else if parts.is_empty() {
            ActionKind::Tool
        } else {
            ActionKind::Write
        }
    } else if has("url", &all)
        && let Some(url) = take_text(&mut all, "url")
    {
        place = Some(url);
        ActionKind::Fetch
    } else {
        ActionKind::Tool
    };
    // A plan that was sent without its text has nothing to show.
    let bare_plan = kind == ActionKind::Plan && all.is_empty();
    let also = if parts.is_empty() && place.is_none() && !bare_plan {
        parts.push(part(None, spread(text)));
        Vec::new()
    } else {
        all.iter().map(|(name, value)| (marked(name), marked(value.get()))).collect()
    };
    let mut findings = findings(&parts, place.as_deref());
    if doubled {
        findings.push(
            "An argument is given twice. Programs differ in which one they use, so the request is shown as it came.".into(),
        );
    }
    ActionView { kind, tool: marked(tool), place, parts, also, findings, checked: !doubled }
}

/// The model's own words that a harness carries inside the input.
pub fn words_in(input: &[u8]) -> Option<String> {
    let mut all = members(std::str::from_utf8(input).ok()?)?;
    all.iter().any(|(n, _)| n == "command").then_some(())?;
    take_text(&mut all, "description")
}

pub(crate) fn has_doubled_keys(all: &Members<'_>) -> bool {
    let mut names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
    names.sort_unstable();
    names.windows(2).any(|w| w[0] == w[1])
}

fn unknown(tool: &str, folder: &str, input: &[u8]) -> ActionView {
    let parts = vec![part(None, String::from_utf8_lossy(input).into_owned())];
    let mut findings = findings(&parts, None);
    findings.insert(0, "The request could not be read. It is shown as it came.".into());
    ActionView {
        kind: ActionKind::Unknown,
        tool: marked(tool),
        place: Some(format!("in {folder}")),
        parts,
        also: Vec::new(),
        findings,
        checked: false,
    }
}

fn part(label: Option<&str>, text: String) -> Part {
    let mut lines = lines(&text);
    // The line feed that ends the last line begins no further one.
    if text.ends_with('\n') {
        lines.pop();
    }
    Part { label: label.map(str::to_owned), lines, chars: text.chars().count() as u64, exact: text }
}

/// JSON text laid out over lines without touching any token: numbers and doubled
/// keys stay as they came. Text that laying out would make many times longer, because it
/// is nested for nothing, is left as it came: four kilobytes of brackets are megabytes of
/// indentation.
fn spread(json: &str) -> String {
    let most = json.len().saturating_mul(4).saturating_add(1024);
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0_usize, false, false);
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for c in json.chars() {
        if out.len() > most {
            return json.to_owned();
        }
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                depth += 1;
                out.push(c);
                indent(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                indent(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                indent(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// Splits at line feeds. Characters that do not show become marks; order stays logical.
fn lines(text: &str) -> Vec<Vec<Piece>> {
    text.split('\n')
        .map(|line| {
            let mut pieces: Vec<Piece> = Vec::new();
            for c in line.chars() {
                match (hidden(c), pieces.last_mut()) {
                    (Some(name), _) => pieces
                        .push(Piece::Mark { code: format!("U+{:04X}", u32::from(c)), name: name.to_owned() }),
                    (None, Some(Piece::Text { text })) => text.push(c),
                    (None, _) => pieces.push(Piece::Text { text: c.to_string() }),
                }
            }
            pieces
        })
        .collect()
}

/// The name of a character that does not show by itself, or changes how others show.
fn hidden(c: char) -> Option<&'static str> {
    Some(match c {
        '\t' => return None,
        '\u{0}' => "null",
        '\u{7}' => "bell",
        '\u{8}' => "backspace",
        '\r' => "carriage return",
        '\u{1b}' => "escape",
        '\u{7f}' => "delete",
        '\u{85}' => "next line",
        '\u{a0}' => "no-break space",
        '\u{ad}' => "soft hyphen",
        '\u{34f}' => "combining grapheme joiner",
        '\u{61c}' => "Arabic letter mark",
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => "Hangul filler",
        '\u{180e}' => "Mongolian vowel separator",
        '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => "odd space",
        '\u{200b}' => "zero-width space",
        '\u{200c}' => "zero-width non-joiner",
        '\u{200d}' => "zero-width joiner",
        '\u{200e}' => "left-to-right mark",
        '\u{200f}' => "right-to-left mark",
        '\u{2028}' => "line separator",
        '\u{2029}' => "paragraph separator",
        '\u{202a}' => "left-to-right embedding",
        '\u{202b}' => "right-to-left embedding",
        '\u{202c}' => "pop directional formatting",
        '\u{202d}' => "left-to-right override",
        '\u{202e}' => "right-to-left override",
        '\u{2060}'..='\u{2064}' => "invisible operator",
        '\u{2066}'..='\u{2069}' => "directional isolate",
        '\u{206a}'..='\u{206f}' => "deprecated format character",
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => "variation selector",
        '\u{feff}' => "byte order mark",
        '\u{fff9}'..='\u{fffb}' => "annotation character",
        '\u{e0000}'..='\u{e007f}' => "tag character",
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => "private-use character",
        c if c.is_control() => "control character",
        _ => return None,
    })
}

/// One sentence on the marks in all parts, with the first lines they stand on.
fn findings(parts: &[Part], place: Option<&str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut count = 0_u32;
    for part in parts {
        for (i, line) in part.lines.iter().enumerate() {
            for piece in line {
                if let Piece::Mark { name, .. } = piece {
                    count += 1;
                    if found.len() < 4 {
                        found.push(format!("{name} on line {}", i + 1));
                    }
                }
            }
        }
    }
    if place.is_some_and(|p| p.chars().any(|c| hidden(c).is_some())) {
        count += 1;
        found.push("hidden character in the path".into());
    }
    match count {
        0 => Vec::new(),
        1 => {
            vec![format!("1 character does not show by itself: {}. It is marked where it stands.", found[0])]
        }
        n => vec![format!(
            "{n} characters do not show by themselves: {}{}. Each is marked where it stands.",
            found.join(", "),
            if n as usize > found.len() { " and more" } else { "" }
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_shows_whole_and_its_description_stands_apart() {
        let input = br#"{"command":"echo ok\nrm -rf ~","description":"List files"}"#;
        let v = view("Bash", "/w", input);
        assert_eq!(v.kind, ActionKind::Command);
        assert_eq!(v.parts[0].exact, "echo ok\nrm -rf ~");
        assert_eq!(v.parts[0].lines.len(), 2);
        assert!(v.also.is_empty());
        assert_eq!(words_in(input).as_deref(), Some("List files"));
        assert_eq!(v.title(), "echo ok");
    }

    #[test]
    fn other_arguments_are_never_hidden() {
        let v = view("Bash", "/w", br#"{"command":"ls","timeout":9007199254740993}"#);
        assert_eq!(v.also, [("timeout".to_owned(), "9007199254740993".to_owned())]);
    }

    #[test]
    fn a_question_is_titled_by_its_words_and_a_plan_without_text_by_its_tool() {
        let asked =
            view("AskUserQuestion", "/w", br#"{"questions":[{"question":"Which day?","options":[]}]}"#);
        assert_eq!(asked.title(), "Which day?");
        assert_eq!(view("AskUserQuestion", "/w", b"{\"a\":1}").title(), "AskUserQuestion");
        let plan = view("ExitPlanMode", "/w", b"{}");
        assert!(plan.parts.is_empty() && plan.also.is_empty());
        assert_eq!(plan.title(), "ExitPlanMode");
        assert_eq!(view("ExitPlanMode", "/w", b"{\"plan\":\"# Move\"}").title(), "# Move");
    }

    #[test]
    fn characters_that_do_not_show_are_marked_and_counted() {
        let v = view("Bash", "/w", "{\"command\":\"rm /tmp/\u{200b}a\\r\\u0000\"}".as_bytes());
        assert_eq!(v.title(), "rm /tmp/[U+200B]a[U+000D][U+0000]");
        assert!(v.findings[0].starts_with("3 characters"));
        assert_eq!(v.parts[0].exact, "rm /tmp/\u{200b}a\r\0");
    }

    #[test]
    fn doubled_keys_are_shown_raw_and_cannot_be_checked() {
        let v = view("Bash", "/w", br#"{"command":"ls","command":"rm"}"#);
        assert!(!v.checked);
        assert_eq!(v.kind, ActionKind::Tool);
        assert!(v.parts[0].exact.contains("\"ls\"") && v.parts[0].exact.contains("\"rm\""));
    }

    #[test]
    fn what_cannot_be_read_is_shown_as_it_came() {
        let v = view("Bash", "/w", b"\xff{");
        assert_eq!((v.kind, v.checked), (ActionKind::Unknown, false));
        let v = view("Bash", "/w", b"");
        assert_eq!(v.kind, ActionKind::Unknown);
    }

    #[test]
    fn a_write_shows_path_and_content() {
        let v = view("Write", "/w", br#"{"file_path":"/w/a.txt","content":"hi\n"}"#);
        assert_eq!(v.kind, ActionKind::Write);
        assert_eq!(v.title(), "/w/a.txt");
        assert_eq!(v.parts[0].label.as_deref(), Some("Content"));
        assert_eq!((v.parts[0].lines.len(), v.parts[0].chars), (1, 3));
    }

    #[test]
    fn brackets_for_nothing_are_shown_as_they_came() {
        let input = format!(r#"{{"a":{}{}}}"#, "[".repeat(2000), "]".repeat(2000));
        assert_eq!(view("mcp__t__x", "/w", input.as_bytes()).parts[0].exact, input);
    }

    #[test]
    fn an_mcp_call_is_laid_out_without_touching_a_token() {
        let v = view("mcp__t__x", "/w", br#"{"a":[1.0,"x:,{"],"n":9007199254740993}"#);
        let flat: String = v.parts[0].exact.split_whitespace().collect();
        assert_eq!(flat, r#"{"a":[1.0,"x:,{"],"n":9007199254740993}"#);
    }
}
