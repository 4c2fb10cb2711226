//! Secrets handed out: cookies, one-time links, worker tokens. Only their hash is stored.

use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// 244 random bits with a prefix that says what it is for. Never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new token from the system's random source.
    pub fn random(prefix: &str) -> Self {
        // Two version 4 UUIDs: 244 bits from getrandom.
        Self(format!("{prefix}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// A token somebody presented.
    pub fn presented(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// What is stored.
    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }

    /// The plain text, for the one who may have it.
    pub fn reveal(&self) -> String {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
