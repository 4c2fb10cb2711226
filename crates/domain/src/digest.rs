//! Digests: what binds a decision to exactly one action, and an answer to exactly
//! one decision. Fields are length-prefixed, so no two different lists of fields
//! give the same bytes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::{
    decision::Answer,
    id::{ApprovalId, DecisionId},
    words::WORDS,
};

macro_rules! digest {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = NotADigest;
            fn from_str(text: &str) -> Result<Self, NotADigest> {
                let mut bytes = [0; 32];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest)?;
                Ok(Self(bytes))
            }
        }

        impl TryFrom<&[u8]> for $name {
            type Error = NotADigest;
            fn try_from(bytes: &[u8]) -> Result<Self, NotADigest> {
                bytes.try_into().map(Self).map_err(|_| NotADigest)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&hex::encode(self.0))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

digest! {
    /// What was asked, exactly. See [`ActionDigest::of`].
    ActionDigest;
    /// What was answered, exactly. See [`AnswerDigest::of`].
    AnswerDigest;
}

/// A text or byte string that is not 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: 64 hexadecimal digits are expected")]
pub struct NotADigest;

struct Fields(Sha256);

impl Fields {
    fn new(domain: &str) -> Self {
        let mut sha = Sha256::new();
        sha.update(domain.as_bytes());
        Self(sha)
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.0.update((field.len() as u64).to_be_bytes());
        self.0.update(field);
        self
    }

    /// Absent and empty differ.
    fn put_option(self, field: Option<&[u8]>) -> Self {
        match field {
            Some(bytes) => self.put(b"1").put(bytes),
            None => self.put(b"0"),
        }
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The fields an [`ActionDigest`] is taken over.
#[derive(Clone, Copy, Debug)]
pub struct ActionFields<'a> {
    /// Incarnation and native id: see [`crate::approval::RequestKey`].
    pub request_key: &'a str,
    pub harness: &'a str,
    pub tool: &'a str,
    pub folder: &'a str,
    /// The sub-agent that asks, as the harness names it.
    pub sub_agent: Option<&'a str>,
    /// The native input's bytes as received, never re-serialised.
    pub input: &'a [u8],
}

impl ActionDigest {
    /// SHA-256 over `countersign/action/1` and the length-prefixed fields.
    pub fn of(action: ActionFields<'_>) -> Self {
        Self(
            Fields::new("countersign/action/1")
                .put(action.request_key.as_bytes())
                .put(action.harness.as_bytes())
                .put(action.tool.as_bytes())
                .put(action.folder.as_bytes())
                .put_option(action.sub_agent.map(str::as_bytes))
                .put(action.input)
                .finish(),
        )
    }

    /// Four words and sixteen hexadecimal digits, for people to compare.
    /// Words and digits come from different bytes, so together they cover 96 bits.
    pub fn fingerprint(&self) -> Fingerprint {
        let b = &self.0;
        Fingerprint {
            words: (0..4).map(|i| WORDS[b[i] as usize]).collect::<Vec<_>>().join(" "),
            hex: (0..4).map(|i| hex::encode(&b[4 + 2 * i..6 + 2 * i])).collect::<Vec<_>>().join(" "),
        }
    }
}

/// An [`ActionDigest`] short enough to read aloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub words: String,
    pub hex: String,
}

impl AnswerDigest {
    /// SHA-256 over `countersign/answer/2` and every field of the answer.
    pub fn of(approval: ApprovalId, decision: DecisionId, action: ActionDigest, answer: &Answer) -> Self {
        let mut fields = Fields::new("countersign/answer/2")
            .put(approval.0.as_bytes())
            .put(decision.0.as_bytes())
            .put(&action.0)
            .put(answer.outcome.as_str().as_bytes())
            .put_option(answer.option_id.as_deref().map(str::as_bytes))
            .put_option(answer.edited_input.as_deref().map(str::as_bytes))
            .put_option(answer.content.as_deref().map(str::as_bytes))
            .put_option(answer.message.as_deref().map(str::as_bytes))
            .put(if answer.stop { b"1" } else { b"0" })
            .put(&(answer.grants.len() as u64).to_be_bytes());
        for grant in &answer.grants {
            fields = fields.put(grant.as_bytes());
        }
        Self(fields.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(input: &[u8]) -> ActionFields<'_> {
        ActionFields {
            request_key: "k",
            harness: "claude",
            tool: "Bash",
            folder: "/w",
            sub_agent: None,
            input,
        }
    }

    #[test]
    fn numbers_that_canonical_json_would_merge_differ() {
        let a = ActionDigest::of(fields(br#"{"n":9007199254740993}"#));
        let b = ActionDigest::of(fields(br#"{"n":9007199254740992}"#));
        assert_ne!(a, b);
    }

    #[test]
    fn doubled_keys_differ_from_the_last_one() {
        let a = ActionDigest::of(fields(br#"{"command":"ls","command":"rm"}"#));
        let b = ActionDigest::of(fields(br#"{"command":"rm"}"#));
        assert_ne!(a, b);
    }

    #[test]
    fn text_cannot_move_from_one_field_to_the_next() {
        let a = ActionDigest::of(ActionFields { tool: "Bash", folder: "/w", ..fields(b"{}") });
        let b = ActionDigest::of(ActionFields { tool: "Bas", folder: "h/w", ..fields(b"{}") });
        assert_ne!(a, b);
    }

    #[test]
    fn no_sub_agent_is_not_an_unnamed_one() {
        let a = ActionDigest::of(fields(b"{}"));
        let b = ActionDigest::of(ActionFields { sub_agent: Some(""), ..fields(b"{}") });
        assert_ne!(a, b);
    }

    #[test]
    fn every_field_of_an_answer_counts() {
        use crate::decision::Outcome;
        let of = |answer: &Answer| {
            let nil = uuid::Uuid::nil();
            AnswerDigest::of(ApprovalId(nil), DecisionId(nil), ActionDigest([0; 32]), answer)
        };
        let plain = Answer::plain(Outcome::Approve);
        let some = || Some("x".to_owned());
        let all = [
            plain.clone(),
            Answer::plain(Outcome::Reject),
            Answer { option_id: some(), ..plain.clone() },
            Answer { edited_input: some(), ..plain.clone() },
            Answer { content: some(), ..plain.clone() },
            Answer { message: some(), ..plain.clone() },
            Answer { stop: true, ..plain.clone() },
            Answer { grants: vec!["x".into()], ..plain.clone() },
            Answer { grants: vec!["x".into(), "x".into()], ..plain.clone() },
            Answer { grants: vec![String::new()], ..plain },
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(of(a), of(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_digest_reads_back_from_its_text() {
        let a = ActionDigest::of(fields(b"{}"));
        assert_eq!(a.to_string().parse(), Ok(a));
        assert_eq!("abc".parse::<ActionDigest>(), Err(NotADigest));
    }

    #[test]
    fn the_word_list_has_no_word_twice() {
        let mut words = WORDS.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 256);
    }
}
