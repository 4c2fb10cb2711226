//! Forms of server actions: a post without script, a fetch after hydration.

use leptos::{
    form::ActionForm,
    prelude::*,
    server_fn::{Http, ServerFn, client::Client, codec::PostUrl, request::ClientReq},
    web_sys::FormData,
};
use serde::de::DeserializeOwned;

/// A form that sends `action` with the fields `inside` it. `label` names it for screen
/// readers, where its button alone does not.
pub fn post<S, Out>(
    action: ServerAction<S>,
    class: &'static str,
    label: Option<String>,
    inside: AnyView,
) -> AnyView
where
    S: DeserializeOwned + ServerFn<Protocol = Http<PostUrl, Out>> + Clone + Send + Sync + 'static,
    <<S::Client as Client<S::Error>>::Request as ClientReq<S::Error>>::FormData: From<FormData>,
    S::Output: Send + Sync + 'static,
    S::Error: Send + Sync + 'static,
    <S as ServerFn>::Client: Client<<S as ServerFn>::Error>,
    Out: 'static,
{
    view! { <ActionForm action=action attr:class=(!class.is_empty()).then_some(class) attr:aria-label=label>{inside}</ActionForm> }
        .into_any()
}
