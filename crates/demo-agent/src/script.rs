//! The language of prompts. One line is one step; anything else is a note.

use std::time::Duration;

/// The language, in words, for people.
pub const GUIDE: &str = "I am the demo agent. I need no model: I do what your message says, line by line.

- any text: I append it to notes.txt
- append FILE: TEXT
- run: COMMAND
- both: STEP && STEP (I ask for both at once)
- say TEXT
- wait SECONDS
- help

I write only in my own folder, and in the mode \"ask\" I ask before every write and every command.";

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Append { file: String, text: String },
    Run { command: String },
    Both(Vec<Step>),
    Say(String),
    Wait(Duration),
    Help,
}

/// The longest `wait`, so that a slip of the keyboard does not block a session for good.
const WAIT_MAX_S: f64 = 3600.0;

/// Reads a prompt. Lines that are no command are joined into one note.
pub fn read(prompt: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut note: Vec<&str> = Vec::new();
    for line in prompt.lines() {
        if let Some(step) = command(line.trim()) {
            close(&mut note, &mut steps);
            steps.push(step);
        } else {
            note.push(line);
        }
    }
    close(&mut note, &mut steps);
    steps
}

fn close(note: &mut Vec<&str>, steps: &mut Vec<Step>) {
    let text = note.join("\n").trim().to_owned();
    note.clear();
    if !text.is_empty() {
        steps.push(Step::Append { file: "notes.txt".to_owned(), text });
    }
}

fn command(line: &str) -> Option<Step> {
    if line.eq_ignore_ascii_case("help") {
        return Some(Step::Help);
    }
    if let Some(rest) = line.strip_prefix("append ") {
        let (file, text) = rest.split_once(':')?;
        return Some(Step::Append { file: file.trim().to_owned(), text: text.trim().to_owned() });
    }
    if let Some(command) = line.strip_prefix("run:") {
        return Some(Step::Run { command: command.trim().to_owned() });
    }
    if let Some(rest) = line.strip_prefix("both:") {
        let steps = rest
            .split(" && ")
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| match command(part) {
                Some(step @ (Step::Append { .. } | Step::Run { .. })) => step,
                _ => Step::Append { file: "notes.txt".to_owned(), text: part.to_owned() },
            })
            .collect();
        return Some(Step::Both(steps));
    }
    if let Some(text) = line.strip_prefix("say ") {
        return Some(Step::Say(text.trim().to_owned()));
    }
    let seconds: f64 = line.strip_prefix("wait ")?.trim().parse().ok()?;
    (0.0..=WAIT_MAX_S).contains(&seconds).then(|| Step::Wait(Duration::from_secs_f64(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(file: &str, text: &str) -> Step {
        Step::Append { file: file.into(), text: text.into() }
    }

    #[test]
    fn any_text_is_one_note() {
        assert_eq!(read("Buy milk\nand bread"), [append("notes.txt", "Buy milk\nand bread")]);
        assert_eq!(read(" \n "), []);
    }

    #[test]
    fn commands_and_notes_keep_their_order() {
        let steps = read("append a.txt: x: y\nhello\nrun: ls | wc -l\nwait 0.5\nsay hi\nwait for it");
        assert_eq!(
            steps,
            [
                append("a.txt", "x: y"),
                append("notes.txt", "hello"),
                Step::Run { command: "ls | wc -l".into() },
                Step::Wait(Duration::from_millis(500)),
                Step::Say("hi".into()),
                append("notes.txt", "wait for it"),
            ]
        );
    }

    #[test]
    fn both_asks_for_each_part() {
        let steps = read("both: append a: 1 && run: ls");
        assert_eq!(steps, [Step::Both(vec![append("a", "1"), Step::Run { command: "ls".into() }])]);
    }

    #[test]
    fn an_endless_wait_is_a_note() {
        assert_eq!(read("wait 1e99"), [append("notes.txt", "wait 1e99")]);
        assert_eq!(read("wait -1"), [append("notes.txt", "wait -1")]);
    }
}
