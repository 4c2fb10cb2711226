//! What a person types or ticks for a request, kept outside the view: a redraw of the
//! page, or another request in its place, cannot lose it or move it.
//!
//! Before hydration the fields are the browser's own; what is in them then is handed
//! on by [`crate::browser::adopt_typed`]. What a plain form had that was refused comes
//! back by [`crate::api::form`].

use std::collections::HashMap;

use domain::{failure::Failure, id::ApprovalId};
use leptos::prelude::*;

use crate::{
    api::form::{self, Fields},
    browser,
    live::Live,
};

/// One field: what is in it, and what the server writes into it.
#[derive(Clone, Debug)]
pub struct Draft {
    pub text: ArcRwSignal<String>,
    pub first: String,
}

/// A page's half-written decisions.
#[derive(Clone, Copy, Debug)]
pub struct Drafts {
    fields: StoredValue<HashMap<(ApprovalId, String), Draft>>,
    /// What a plain form had that was refused.
    kept: StoredValue<Fields>,
    /// The popover or form that was sent last, which tells its own failure.
    sent: RwSignal<Option<String>>,
}

impl Drafts {
    pub fn new() -> Self {
        Self {
            fields: StoredValue::new(HashMap::new()),
            kept: StoredValue::new(Fields::new()),
            sent: RwSignal::new(None),
        }
    }

    /// Takes up what a plain form had that was refused. Once, before anything is drawn.
    pub fn take_up(self, kept: Fields) {
        let _ = self.kept.try_set_value(kept);
    }

    /// The draft of one field. `first` is what it holds before anything is typed.
    pub fn of(self, id: ApprovalId, field: &str, first: &str) -> Draft {
        let make = || {
            let kept = self
                .kept
                .try_with_value(|kept| {
                    let same = form::field(kept, "id").is_some_and(|of| of == id.to_string());
                    form::field(kept, field).filter(|_| same).map(str::to_owned)
                })
                .flatten();
            let first = kept.unwrap_or_else(|| first.to_owned());
            Draft { text: ArcRwSignal::new(first.clone()), first }
        };
        let key = (id, field.to_owned());
        self.fields.try_update_value(|all| all.entry(key).or_insert_with(make).clone()).unwrap_or_else(make)
    }

    /// Says where the decision that is sent now comes from: a popover or form by its id.
    pub fn sent_from(self, place: Option<&str>) {
        self.sent.set(place.map(str::to_owned));
    }

    /// Whether `failure` is told in that popover or form: it came from there, and it can
    /// be put right or tried again there.
    pub fn is_told_in(self, place: &str, failure: &Failure) -> bool {
        self.sent.with(|sent| sent.as_deref() == Some(place)) && !is_final(failure)
    }

    /// Whether some popover or form tells it.
    pub fn is_told_elsewhere(self, failure: &Failure) -> bool {
        self.sent.with(Option::is_some) && !is_final(failure)
    }
}

/// Whether nothing more can be sent: then the popover or form goes, and the page tells it.
const fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Conflict { .. } | Failure::NotFound { .. })
}

impl Default for Drafts {
    fn default() -> Self {
        Self::new()
    }
}

/// A field for text over several lines, shown to the letter. `at` is its id, `help` the
/// id of what describes it.
pub fn text_area(
    draft: Draft,
    at: String,
    name: String,
    class: &'static str,
    help: String,
    most: usize,
) -> AnyView {
    let hydrated = Live::here().hydrated;
    let Draft { text: draft, first } = draft;
    let written = draft.clone();
    let rows = first.lines().count().clamp(2, 14).to_string();
    view! {
        <textarea
            class=class
            id=at
            name=name
            rows=rows
            maxlength=most.to_string()
            spellcheck=(class != "textarea").then_some("false")
            aria-describedby=(!help.is_empty()).then_some(help)
            inner_html=content(&first)
            prop:value=move || hydrated.get().then(|| written.get())
            on:input=move |ev| draft.set(event_target_value(&ev))
            on:keydown=move |ev| browser::send_on_ctrl_enter(&ev)
        ></textarea>
    }
    .into_any()
}

/// The text of a `<textarea>` as HTML. The parser drops a line feed that stands first,
/// so one is written before it; a browser that sets the content itself does not.
fn content(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    if cfg!(feature = "ssr") { format!("\n{text}") } else { text }
}

/// A radio button or check box. The draft of radio buttons with one name holds the
/// value of the chosen one; that of a check box its value, or nothing.
pub fn tick(draft: Draft, kind: &'static str, name: String, value: String) -> AnyView {
    let hydrated = Live::here().hydrated;
    let Draft { text: draft, first } = draft;
    let first = first == value;
    let (drawn, taken) = (draft.clone(), value.clone());
    let own = value.clone();
    view! {
        <input
            type=kind
            name=name
            value=value
            checked=first
            prop:checked=move || hydrated.get().then(|| drawn.with(|d| *d == own))
            on:change=move |ev| draft.set(if browser::ticked(&ev) { taken.clone() } else { String::new() })
        />
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn text_of_a_field_is_no_markup() {
        let written = content("</textarea><b>&amp;");
        assert_eq!(written.trim_start_matches('\n'), "&lt;/textarea>&lt;b>&amp;amp;");
    }
}
