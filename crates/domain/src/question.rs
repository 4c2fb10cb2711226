//! Questions a harness asks a person (Claude's `AskUserQuestion`), and their answers.
//!
//! The shape is the one Claude Code 2.1 sends: `{"questions":[{"question","header",
//! "multiSelect","options":[{"label","description"}]}]}`. Its answer is the same input
//! with `"answers": {"<question>": "<label>"}` added: several labels are joined by
//! `", "`, and free text may stand instead of a label.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{decision::MESSAGE_MAX, failure::Failure};

/// A question with the answers it offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The question itself; names its answer.
    pub question: String,
    /// A short heading.
    #[serde(default)]
    pub header: String,
    /// Whether more than one choice may be taken.
    #[serde(default, rename = "multiSelect")]
    pub multi: bool,
    #[serde(default, rename = "options")]
    pub choices: Vec<Choice>,
}

/// One answer a question offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub label: String,
    #[serde(default)]
    pub description: String,
}

/// The questions of one request. Never empty; no two are the same text, since the text
/// names the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions(Vec<Question>);

/// What a person filled in. Questions are named `q0`, `q1`, …
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled<'a> {
    /// `q0` → the number of the one choice taken; `q0c2` → that choice is ticked.
    pub picks: BTreeMap<&'a str, &'a str>,
    /// `q0` → the answer in the person's own words.
    pub own: BTreeMap<&'a str, &'a str>,
}

#[derive(Deserialize)]
struct Input {
    questions: Vec<Question>,
}

/// What [`Questions::content`] writes and a driver adds to the input.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    pub answers: BTreeMap<String, String>,
}

impl Questions {
    /// Reads the questions of an input. Nothing where it has another shape: then a
    /// person cannot answer it here, only refuse it.
    pub fn read(input: &[u8]) -> Option<Self> {
        let Input { questions } = serde_json::from_slice(input).ok()?;
        let mut texts: Vec<&str> = questions.iter().map(|q| q.question.as_str()).collect();
        texts.sort_unstable();
        let distinct = texts.windows(2).all(|w| w[0] != w[1]);
        let whole = !questions.is_empty() && texts.iter().all(|t| !t.trim().is_empty());
        (distinct && whole).then_some(Self(questions))
    }

    pub fn all(&self) -> &[Question] {
        &self.0
    }

    /// The content of an answer, as JSON text. Every question must be answered; own
    /// words win over a choice that was made as well.
    pub fn content(&self, filled: &Filled<'_>) -> Result<String, Failure> {
        let mut answers = BTreeMap::new();
        for (i, question) in self.0.iter().enumerate() {
            let name = format!("q{i}");
            let own = filled.own.get(name.as_str()).map(|t| t.trim()).filter(|t| !t.is_empty());
            let picked = |at: usize, choice: &Choice| {
                let taken = if question.multi {
                    filled.picks.contains_key(format!("{name}c{at}").as_str())
                } else {
                    filled.picks.get(name.as_str()).is_some_and(|n| *n == at.to_string())
                };
                taken.then(|| choice.label.clone())
            };
            let picks: Vec<String> =
                question.choices.iter().enumerate().filter_map(|(at, c)| picked(at, c)).collect();
            let answer = match (own, picks.is_empty()) {
                // Beside ticked choices own words are one more answer.
                (Some(own), false) if question.multi => format!("{}, {own}", picks.join(", ")),
                (Some(own), _) => own.to_owned(),
                (None, false) => picks.join(", "),
                (None, true) => {
                    return Err(Failure::invalid("answer", "Answer every question, or reject the request."));
                }
            };
            if answer.len() > MESSAGE_MAX {
                return Err(Failure::invalid("answer", "An answer is longer than 8 KiB."));
            }
            if answer.contains('\0') {
                return Err(Failure::invalid("answer", "An answer holds a null character."));
            }
            answers.insert(question.question.clone(), answer);
        }
        serde_json::to_string(&Content { answers }).map_err(|e| Failure::invalid("answer", &e.to_string()))
    }

    /// Whether `content` answers exactly these questions.
    pub fn are_answered_by(&self, content: &str) -> bool {
        serde_json::from_str::<Content>(content).is_ok_and(|content| {
            content.answers.len() == self.0.len()
                && self.0.iter().all(|q| content.answers.get(&q.question).is_some_and(|a| !a.is_empty()))
        })
    }
}

/// The answers in `content`, with their questions, for people.
pub fn answers_in(content: &str) -> Vec<(String, String)> {
    serde_json::from_str::<Content>(content).map(|c| c.answers.into_iter().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &[u8] = br#"{"questions":[
        {"question":"Which?","header":"H","options":[{"label":"A","description":"a"},{"label":"B"}],"multiSelect":false},
        {"question":"Many?","header":"M","options":[{"label":"X"},{"label":"Y"}],"multiSelect":true}]}"#;

    fn filled<'a>(picks: &[(&'a str, &'a str)], own: &[(&'a str, &'a str)]) -> Filled<'a> {
        Filled { picks: picks.iter().copied().collect(), own: own.iter().copied().collect() }
    }

    #[test]
    fn choices_and_own_words_become_answers_by_question() {
        let questions = Questions::read(INPUT).unwrap();
        let content =
            questions.content(&filled(&[("q0", "1"), ("q1c0", "on"), ("q1c1", "on")], &[])).unwrap();
        assert_eq!(content, r#"{"answers":{"Many?":"X, Y","Which?":"B"}}"#);
        assert!(questions.are_answered_by(&content));
        let own = filled(&[("q0", "1"), ("q1c0", "on")], &[("q0", " neither "), ("q1", "Z")]);
        assert_eq!(questions.content(&own).unwrap(), r#"{"answers":{"Many?":"X, Z","Which?":"neither"}}"#);
    }

    #[test]
    fn a_question_left_out_is_not_an_answer() {
        let questions = Questions::read(INPUT).unwrap();
        assert!(questions.content(&filled(&[("q0", "0")], &[])).is_err());
        assert!(questions.content(&filled(&[("q0", "7"), ("q1c0", "on")], &[("q0", " ")])).is_err());
        assert!(!questions.are_answered_by(r#"{"answers":{"Which?":"A"}}"#));
        assert!(!questions.are_answered_by(r#"{"answers":{"Which?":"A","Many?":"X"},"response":"y"}"#));
        assert!(!questions.are_answered_by(r#"{"answers":{"Which?":"A","Other?":"X"}}"#));
    }

    #[test]
    fn another_shape_is_not_read() {
        for input in [
            &b"{}"[..],
            br#"{"questions":[]}"#,
            br#"{"questions":[{"question":" "}]}"#,
            br#"{"questions":[{"question":"a"},{"question":"a"}]}"#,
            br#"{"questions":"a"}"#,
        ] {
            assert_eq!(Questions::read(input), None);
        }
    }
}
