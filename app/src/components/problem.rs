//! What was refused, and what to do.

use domain::failure::Failure;
use leptos::prelude::*;

use super::{
    empty::empty,
    icon::{Icon, icon},
};
use crate::{api::Answer, live::Live};

/// The failure in an action's value.
pub fn failure<T>(value: Option<Answer<T>>) -> Option<Failure> {
    value.and_then(Result::err).map(|failed| failed.0)
}

/// A failure beside the control that met it. `unsent` says what did not happen.
pub fn note(failure: Option<Failure>, unsent: &'static str) -> AnyView {
    let Some(failure) = failure else { return ().into_any() };
    let text = failure.to_string();
    match failure {
        Failure::Conflict { .. } => view! {
            <div class="note" role="alert">
                {icon(Icon::No, 16)}
                <p><b>{text}</b>" "{unsent}</p>
            </div>
        }
        .into_any(),
        Failure::Unauthenticated => view! {
            <div class="note note--danger" role="alert">
                {icon(Icon::Lock, 16)}
                <p><b>{text}</b>" "<a href="/signin" rel="external">"Sign in"</a></p>
            </div>
        }
        .into_any(),
        _ => view! {
            <div class="note note--danger" role="alert">
                {icon(Icon::Fail, 16)}
                <p><b>{text}</b>" "{unsent}</p>
            </div>
        }
        .into_any(),
    }
}

/// A failure in place of a page's content.
pub fn instead(failure: &Failure) -> AnyView {
    let live = Live::here();
    let text = failure.to_string();
    match failure {
        Failure::Unauthenticated => empty(
            Icon::Lock,
            "Sign in to see this",
            text,
            view! { <a class="btn btn--sm" href="/signin" rel="external">"Sign in"</a> }.into_any(),
        ),
        Failure::NotFound { .. } => {
            empty(Icon::Off, "Not found", text, view! { <a class="btn btn--sm" href="/chat">"Open Chat"</a> }.into_any())
        }
        Failure::Forbidden { .. } => empty(Icon::Lock, "Not for your role", text, ().into_any()),
        _ => empty(
            Icon::Fail,
            "This could not be read",
            text,
            view! { <button type="button" class="btn btn--sm" on:click=move |_| live.reread()>"Try now"</button> }
                .into_any(),
        ),
    }
}
