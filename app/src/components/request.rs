//! What was asked, in Chat and in Approvals the same: questions as questions, all else
//! as the card of its action, and beside it what ran instead, where that was changed.

use domain::{
    action::ActionView,
    approval::ApprovalDetail,
    decision::{Delivery, Receipt},
};
use leptos::prelude::*;

use super::{
    action,
    decision::Resolving,
    draft::Drafts,
    icon::{Icon, icon},
    question,
};

/// The request. `hero` is the size on a page of its own; `beside` stands at the end of
/// its last line.
pub fn request(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    hero: bool,
    beside: AnyView,
) -> AnyView {
    if !detail.questions.is_empty() {
        return question::questions(detail, resolve, drafts, back, beside);
    }
    let Some((label, edited)) = instead(detail) else {
        return view! { {findings(&detail.action)} {action::card(&detail.action, hero, beside)} }.into_any();
    };
    view! {
        <h2 class="h3">{label}</h2>
        {findings(edited)}
        {action::card(edited, hero, ().into_any())}
        <h2 class="h3 apart-above">"What was asked"</h2>
        {findings(&detail.action)}
        {action::card(&detail.action, false, beside)}
    }
    .into_any()
}

/// What runs instead of what was asked, and what may be said of it.
pub fn instead(detail: &ApprovalDetail) -> Option<(&'static str, &ActionView)> {
    let receipt = detail.receipt.as_ref()?;
    Some((instead_words(receipt), receipt.edited.as_ref()?))
}

/// Only an effect proves that something ran, and its note says so.
fn instead_words(receipt: &Receipt) -> &'static str {
    let ran = receipt.note.as_deref().is_some_and(|note| note.starts_with("It ran"));
    if receipt.delivery == Delivery::Effect && ran {
        "What ran instead of it"
    } else {
        "What was approved instead of it"
    }
}

/// What was found in an action that does not show by itself.
fn findings(action: &ActionView) -> AnyView {
    if action.findings.is_empty() {
        return ().into_any();
    }
    view! {
        <div class="note note--danger" role="note">
            {icon(Icon::Fail, 16)}
            <p><b>"This text may read one way and run another."</b>" "{action.findings.join(" ")}</p>
        </div>
    }
    .into_any()
}
