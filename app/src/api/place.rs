//! Who and where the caller is: what the shell needs on every page.

use domain::{
    approval::ApprovalCounts,
    user::{Caller, Made},
};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use super::Answer;

/// What the navigation shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub caller: Caller,
    pub counts: ApprovalCounts,
}

/// The caller and the counts; `None` when nobody is signed in.
#[server(endpoint = "place/read", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn read_place() -> Answer<Option<Place>> {
    use super::desk;
    let Some(desk::Signed(Some(caller))) = use_context::<desk::Signed>() else { return Ok(None) };
    let counts = store::approval::counts(&desk::store()?, &caller).await.map_err(desk::shown)?;
    Ok(Some(Place { caller, counts }))
}

/// What the caller made less than a minute ago and nobody will be shown again: a
/// worker's token or a one-time link. Never in an address, a log or a cache.
#[allow(clippy::unused_async, reason = "server functions are async; this one reads memory")]
#[server(endpoint = "place/made", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn read_made() -> Answer<Option<Made>> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Admin)?;
    Ok(desk::store()?.made(caller.id))
}
