//! Places with nothing in them yet, and places that take their time.

use leptos::prelude::*;

use super::icon::{Icon, icon};

/// Says what is so and what to do next.
pub fn empty(shape: Icon, title: &'static str, text: String, acts: AnyView) -> AnyView {
    view! {
        <div class="empty">
            {icon(shape, 20)}
            <h2 class="h3">{title}</h2>
            <p>{text}</p>
            <div class="acts">{acts}</div>
        </div>
    }
    .into_any()
}

/// Grey rows. The style sheet shows them after half a second only.
pub fn loading() -> impl IntoView {
    view! {
        <ul class="skel" aria-busy="true" aria-label="Loading">
            {(0..3).map(|_| view! { <li><i></i><i></i><i></i><i></i></li> }).collect::<Vec<_>>()}
        </ul>
    }
}
