//! Ids. Each noun has its own type, so one cannot be passed for another.
//! All are UUIDs; version 7 where the row's age orders a list.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }
    )*};
}

id! {
    /// A person with an account.
    UserId;
    /// A signed-in browser.
    LoginId;
    /// A process beside harnesses, known by its token.
    WorkerId;
    /// A configured harness a person can talk to.
    AgentId;
    /// A conversation with an agent.
    SessionId;
    /// One prompt and all that follows until the harness is idle.
    RunId;
    /// One native permission request, stored.
    ApprovalId;
    /// A person's decision on an approval.
    DecisionId;
    /// One life of one harness process. Made when it is started; outlives the worker.
    Incarnation;
    /// An entry of the audit.
    AuditId;
}
