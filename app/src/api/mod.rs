//! Server functions, by noun. Each is short: who is asking, are they allowed, one
//! call of `store`, map the error. The rules are in `domain`, the SQL in `store`.
//!
//! They work the same for a hydrated page (fetch, JSON answer and status) and for a
//! plain form (303 back to the thing's own page, which draws the stored outcome).

pub mod agent;
pub mod approval;
pub mod form;
pub mod place;
pub mod run;
pub mod session;
pub mod user;
pub mod worker;

use std::fmt;

use domain::failure::Failure;
use leptos::{
    prelude::*,
    server_fn::{
        Bytes, ContentType, Decodes, Encodes, Format, FormatType, codec::Post, error::ServerFnErrorErr,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The error of every server function: [`Failure`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failed(pub Failure);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// How answers cross the wire: JSON, read as text. Resources read theirs as text too,
/// so the browser carries one deserialiser of each type, not two.
pub type Text = Post<JsonText>;

/// See [`Text`].
#[derive(Debug)]
pub struct JsonText;

impl ContentType for JsonText {
    const CONTENT_TYPE: &'static str = "application/json";
}

impl FormatType for JsonText {
    const FORMAT_TYPE: Format = Format::Text;
}

impl<T: Serialize> Encodes<T> for JsonText {
    type Error = serde_json::Error;

    fn encode(output: &T) -> Result<Bytes, Self::Error> {
        serde_json::to_vec(output).map(Bytes::from)
    }
}

impl<T: DeserializeOwned> Decodes<T> for JsonText {
    type Error = serde_json::Error;

    fn decode(bytes: Bytes) -> Result<T, Self::Error> {
        serde_json::from_str(
            std::str::from_utf8(&bytes).map_err(<serde_json::Error as serde::de::Error>::custom)?,
        )
    }
}

impl FromServerFnError for Failed {
    type Encoder = JsonText;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        Self(match error {
            ServerFnErrorErr::Request(_) => Failure::Unavailable {
                what: "The server could not be reached. Nothing was changed that it has not confirmed."
                    .into(),
            },
            ServerFnErrorErr::MissingArg(field) => {
                Failure::Invalid { message: format!("The field {field} is missing."), field }
            }
            ServerFnErrorErr::Args(reason) => Failure::Invalid {
                field: String::new(),
                message: format!("The request could not be read: {reason}."),
            },
            other => {
                Failure::Unavailable { what: format!("The server's answer could not be read: {other}.") }
            }
        })
    }
}

/// What every server function returns.
pub type Answer<T> = Result<T, Failed>;

#[cfg(feature = "ssr")]
pub mod desk {
    //! What the server hands to server functions and pages: the store and the caller.

    use domain::{
        failure::Failure,
        user::{Caller, Role},
    };
    use leptos::prelude::*;
    use leptos_axum::ResponseOptions;
    use store::Store;

    use super::Failed;

    /// The signed-in person of this request; put into the context by the server.
    #[derive(Clone, Debug)]
    pub struct Signed(pub Option<Caller>);

    /// The store, or a failure that says the server is not ready.
    pub fn store() -> Result<Store, Failed> {
        use_context::<Store>().ok_or_else(|| {
            refuse(Failure::Unavailable { what: "The server is starting. Try again in a moment.".into() })
        })
    }

    /// The caller, if their role covers `needed`.
    pub fn caller(needed: Role) -> Result<Caller, Failed> {
        let caller = use_context::<Signed>()
            .and_then(|signed| signed.0)
            .ok_or_else(|| refuse(Failure::Unauthenticated))?;
        caller.require(needed).map_err(refuse)?;
        Ok(caller)
    }

    /// Whether the browser itself has sent the form, not a script.
    pub fn is_plain_form() -> bool {
        use_context::<http::request::Parts>().is_some_and(|parts| {
            parts.method == http::Method::POST
                && parts
                    .headers
                    .get(http::header::ACCEPT)
                    .and_then(|v| v.to_str().ok())
                    .is_some_and(|v| v.contains("text/html"))
        })
    }

    /// Sets the HTTP status that belongs to a failure. A plain form keeps its
    /// redirect: the page it goes back to shows the failure.
    pub fn refuse(failure: Failure) -> Failed {
        if !is_plain_form()
            && let Some(response) = use_context::<ResponseOptions>()
            && let Ok(status) = http::StatusCode::from_u16(failure.status())
        {
            response.set_status(status);
        }
        Failed(failure)
    }

    /// Turns an error of the store into what people see: internals are logged whole.
    pub fn shown(error: store::Error) -> Failed {
        refuse(error.into_failure())
    }
}
