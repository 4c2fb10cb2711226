//! The time a request has left, in figures and as a line that gets shorter.

use std::time::Duration;

use domain::time::countdown;
use leptos::prelude::*;

use crate::live::Live;

/// Under this much a request is late, in milliseconds.
pub const LATE_MS: i64 = 300_000;

fn figures(left_ms: i64) -> String {
    countdown(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
}

/// Figures and line, as in the head of a request.
pub fn clock(left_ms: i64, timeout_ms: i64) -> AnyView {
    let left = Live::here().countdown(left_ms);
    let class = move || if left() < LATE_MS { "clock clock--late" } else { "clock" };
    let width = move || (left().min(timeout_ms) * 100 / timeout_ms.max(1)).to_string();
    view! {
        <span class=class>
            <svg class="bar" viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">
                <rect width=width height="3"></rect>
            </svg>
            <span>{move || format!("{} left", figures(left()))}</span>
        </span>
    }
    .into_any()
}

/// Figures alone, as in a row.
pub fn figures_left(left_ms: i64) -> AnyView {
    let left = Live::here().countdown(left_ms);
    let class = move || if left() < LATE_MS { "left left--late" } else { "left" };
    view! { <span class=class>{move || figures(left())}<span class="vh">" left"</span></span> }.into_any()
}
