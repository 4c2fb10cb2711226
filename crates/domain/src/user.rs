//! People: roles and what each may do.

use serde::{Deserialize, Serialize};

use crate::{failure::Failure, id::UserId, text_enum::text_enum, time::Timestamp};

text_enum! {
    /// What a person may do. Each includes the one before.
    Role {
        /// Reads.
        Viewer = "viewer",
        /// Resolves approvals and chats.
        Approver = "approver",
        /// Agents, workers, users, tokens.
        Admin = "admin",
    }
}

impl Role {
    const fn rank(self) -> u8 {
        match self {
            Self::Viewer => 0,
            Self::Approver => 1,
            Self::Admin => 2,
        }
    }

    /// Whether this role includes `needed`.
    pub const fn covers(self, needed: Role) -> bool {
        self.rank() >= needed.rank()
    }

    /// The role as a label: `Admin`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Viewer => "Viewer",
            Self::Approver => "Approver",
            Self::Admin => "Admin",
        }
    }

    /// What the role is for, in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Viewer => "Reads everything that is not private.",
            Self::Approver => "Also chats and decides requests.",
            Self::Admin => "Also manages agents, workers and people.",
        }
    }
}

/// The signed-in person, as every page and server function sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub id: UserId,
    pub name: String,
    pub role: Role,
}

impl Caller {
    /// Refuses unless the caller's role covers `needed`.
    pub fn require(&self, needed: Role) -> Result<(), Failure> {
        if self.role.covers(needed) { Ok(()) } else { Err(Failure::Forbidden { needed }) }
    }
}

/// A person as the users page lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRow {
    pub id: UserId,
    pub name: String,
    pub role: Role,
    /// Set while the account cannot sign in.
    pub disabled_at: Option<Timestamp>,
    /// False until the person has used their first link.
    pub has_password: bool,
    /// The latest request of any of their sessions.
    pub last_seen_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Signed-in browsers.
    pub logins: u32,
}

/// A secret an admin has just made. It is stored hashed; the plain text is shown to
/// that admin for a minute.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "made", rename_all = "snake_case")]
pub enum Made {
    /// A worker's token, with the server's address as workers reach it.
    Token { name: String, token: String, server: String },
    /// A one-time link for a person.
    Link { name: String, url: String, hours: i64 },
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Token { .. } => "Made::Token(..)",
            Self::Link { .. } => "Made::Link(..)",
        })
    }
}

/// The longest name a person can have, in characters.
pub const NAME_MAX: usize = 64;
/// The least and the most characters of a password. The upper bound keeps
/// hashing cheap to ask for.
pub const PASSWORD_MIN: usize = 10;
pub const PASSWORD_MAX: usize = 256;

/// A name someone signs in with: trimmed, compared without case.
pub fn check_name(name: &str) -> Result<String, Failure> {
    let name = name.trim();
    let reason = if name.is_empty() {
        "Enter a name."
    } else if name.chars().count() > NAME_MAX {
        "The name is longer than 64 characters."
    } else if !name.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_' | '@' | '\'')) {
        "Use letters, digits, spaces and . - _ @ ' only."
    } else {
        return Ok(name.to_owned());
    };
    Err(Failure::invalid("name", reason))
}

/// A password long enough to be worth hashing.
pub fn check_password(password: &str) -> Result<(), Failure> {
    let n = password.chars().count();
    if n < PASSWORD_MIN {
        Err(Failure::invalid("password", "The password needs at least 10 characters."))
    } else if n > PASSWORD_MAX {
        Err(Failure::invalid("password", "The password is longer than 256 characters."))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_the_one_before() {
        assert!(Role::Admin.covers(Role::Approver));
        assert!(Role::Approver.covers(Role::Viewer));
        assert!(!Role::Viewer.covers(Role::Approver));
        assert!(!Role::Approver.covers(Role::Admin));
    }

    #[test]
    fn names_are_trimmed_and_plain() {
        assert_eq!(check_name("  Ana Ruka "), Ok("Ana Ruka".to_owned()));
        assert!(check_name("").is_err());
        assert!(check_name("a\u{202e}b").is_err());
        assert!(check_name(&"x".repeat(65)).is_err());
    }

    #[test]
    fn passwords_have_bounds() {
        assert!(check_password("short").is_err());
        assert!(check_password("correct horse").is_ok());
        assert!(check_password(&"x".repeat(257)).is_err());
    }
}
