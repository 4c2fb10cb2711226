//! An address that names nothing.

use leptos::prelude::*;
use leptos_meta::Title;

use crate::components::icon::{Icon, icon};

/// Sets the status of the response, on the server.
pub fn set_status(status: u16) {
    #[cfg(feature = "ssr")]
    if let Some(response) = use_context::<leptos_axum::ResponseOptions>()
        && let Ok(status) = http::StatusCode::from_u16(status)
    {
        response.set_status(status);
    }
    #[cfg(not(feature = "ssr"))]
    let _ = status;
}

/// The page of an unknown address.
#[component]
pub fn NotFound() -> impl IntoView {
    set_status(404);
    view! {
        <Title text="Not found"/>
        <div class="sign">
            <main>
                <p class="brand">{icon(Icon::Approvals, 16)}<span>"Countersign"</span></p>
                <div class="stack">
                    <h1>"There is no such page"</h1>
                    <p>"The address names nothing here. It may have been typed wrong, or what it named is gone."</p>
                </div>
                <p><a class="btn" href="/chat" rel="external">"Open Chat"</a></p>
            </main>
        </div>
    }
}
