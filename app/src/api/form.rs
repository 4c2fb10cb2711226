//! What was typed into a plain form that was refused. The page it goes back to shows it
//! again: nothing is lost without script either. It is kept in memory for a minute, for
//! the person who sent it, and never in an address.

use leptos::{prelude::*, server::ServerActionError, server_fn::ServerFn};

use super::{Answer, Failed};
use crate::{
    components::read::{Read, read},
    live::Live,
};

/// Names and values of a form's fields. A list: a map would cost the WASM more.
pub type Fields = Vec<(String, String)>;

/// The value of one field.
pub fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// The fields of the caller's last form that was refused.
#[allow(clippy::unused_async, reason = "server functions are async; this one reads memory")]
#[server(endpoint = "form/kept", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn read_kept() -> Answer<Fields> {
    let caller = super::desk::caller(domain::user::Role::Viewer)?;
    Ok(kept::of(caller.id))
}

/// The same for a page that uses the server function `S`: nothing, unless the page is what
/// a refused form of it came back to.
pub fn refused_form<S: ServerFn<Error = Failed>>() -> Read<Fields> {
    let came_back = use_context::<ServerActionError>()
        .is_some_and(|error| error.path() == S::PATH && !Live::here().hydrated.get_untracked());
    read(
        move || came_back,
        |came_back| async move { if came_back { read_kept().await } else { Ok(Fields::new()) } },
    )
}

#[cfg(feature = "ssr")]
pub use kept::keep;

#[cfg(feature = "ssr")]
mod kept {
    use std::{
        collections::HashMap,
        sync::Mutex,
        time::{Duration, Instant},
    };

    use domain::id::UserId;

    use super::Fields;

    const KEPT_FOR: Duration = Duration::from_mins(1);
    /// A form is 1 MiB at most; this many people may have one refused within a minute.
    const PEOPLE_MAX: usize = 64;

    static KEPT: Mutex<Option<HashMap<UserId, (Instant, Fields)>>> = Mutex::new(None);

    /// Keeps the fields of a form that was refused, unless a script has sent it.
    pub fn keep(user: UserId, fields: Fields) {
        if !super::super::desk::is_plain_form() {
            return;
        }
        if let Ok(mut kept) = KEPT.lock() {
            let kept = kept.get_or_insert_default();
            kept.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
            if kept.len() < PEOPLE_MAX || kept.contains_key(&user) {
                kept.insert(user, (Instant::now(), fields));
            }
        }
    }

    pub fn of(user: UserId) -> Fields {
        let Ok(kept) = KEPT.lock() else { return Fields::new() };
        let fields = kept.as_ref().and_then(|kept| kept.get(&user));
        fields.filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, fields)| fields.clone()).unwrap_or_default()
    }
}
