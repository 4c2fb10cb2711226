//! The one error that crosses the wire to people. Richer errors stay inside the
//! server, logged whole; people get an id to quote.

use serde::{Deserialize, Serialize};

use crate::user::Role;

/// Why a request of a person, or of their browser, was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "failure", rename_all = "snake_case")]
pub enum Failure {
    /// There is no such thing, or it is not theirs to see: the two are not told apart.
    #[error("There is no such {what}, or it is not yours to see.")]
    NotFound { what: String },
    #[error("You are not signed in. Sign in and try again.")]
    Unauthenticated,
    #[error("This needs the role {}.", needed.label())]
    Forbidden { needed: Role },
    #[error("{message}")]
    Invalid { field: String, message: String },
    /// Somebody or something was first.
    #[error("{what}")]
    Conflict {
        /// Who was first, where it was a person.
        who: Option<String>,
        /// What they did, as a sentence.
        what: String,
    },
    #[error("Too many tries. Wait {seconds} s and try again.")]
    RateLimited { seconds: u64 },
    #[error("{what}")]
    Unavailable { what: String },
    #[error("Something went wrong on the server. The log has the details under {id}.")]
    Internal { id: String },
}

impl Failure {
    pub fn not_found(what: &str) -> Self {
        Self::NotFound { what: what.to_owned() }
    }

    pub fn invalid(field: &str, message: &str) -> Self {
        Self::Invalid { field: field.to_owned(), message: message.to_owned() }
    }

    /// The HTTP status it is answered with on fetch and API.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotFound { .. } => 404,
            Self::Unauthenticated => 401,
            Self::Forbidden { .. } => 403,
            Self::Invalid { .. } => 422,
            Self::Conflict { .. } => 409,
            Self::RateLimited { .. } => 429,
            Self::Unavailable { .. } => 503,
            Self::Internal { .. } => 500,
        }
    }
}
