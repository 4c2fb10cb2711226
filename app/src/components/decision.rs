//! The decision bar: refusing at the start, going on at the end, never side by side.
//!
//! Each button is a form of its own that posts the digest of the action that was
//! shown. *Reject…* opens a popover, which needs no script. What a person types is
//! kept outside the view ([`Drafts`]), so a redraw cannot move it to another request.

use std::collections::HashMap;

use domain::{
    approval::{ApprovalDetail, ApprovalStatus, AskOption, plain_option},
    decision::{MESSAGE_MAX, Outcome},
    id::ApprovalId,
};
use leptos::prelude::*;

use crate::{
    browser,
    components::{
        icon::{Icon, icon},
        post::{Sending, post},
    },
    live::Live,
};

/// The action of a page that decides.
pub type Resolving = Sending;

/// Words of refusals that are being written, by request.
#[derive(Clone, Copy, Debug)]
pub struct Drafts(StoredValue<HashMap<ApprovalId, ArcRwSignal<String>>>);

impl Drafts {
    pub fn new() -> Self {
        Self(StoredValue::new(HashMap::new()))
    }

    fn of(self, id: ApprovalId) -> ArcRwSignal<String> {
        self.0
            .try_update_value(|all| all.entry(id).or_insert_with(|| ArcRwSignal::new(String::new())).clone())
            .unwrap_or_else(|| ArcRwSignal::new(String::new()))
    }
}

impl Default for Drafts {
    fn default() -> Self {
        Self::new()
    }
}

/// What every form of a decision carries.
fn bound(detail: &ApprovalDetail, outcome: Outcome, back: Option<&str>) -> impl IntoView + use<> {
    let back = back.map(str::to_owned);
    view! {
        <input type="hidden" name="id" value=detail.row.id.to_string()/>
        <input type="hidden" name="digest" value=detail.digest.to_string()/>
        <input type="hidden" name="outcome" value=outcome.as_str()/>
        {back.map(|back| view! { <input type="hidden" name="back" value=back/> })}
    }
}

/// The bar, where the caller may decide and the request waits. `back` is where a
/// plain form returns to, if not to the request's own page.
pub fn bar(detail: &ApprovalDetail, resolve: Resolving, drafts: Drafts, back: Option<&str>) -> AnyView {
    if detail.row.status != ApprovalStatus::Pending {
        return ().into_any();
    }
    if !detail.may_decide {
        return view! {
            <div class="decide">
                <p class="status">{icon(Icon::Lock, 16)}"You can read this, not decide it."</p>
            </div>
        }
        .into_any();
    }
    let plain = plain_option(&detail.options, Outcome::Approve).is_ok();
    let risky = detail.row.findings > 0 || !detail.row.checked;
    let say = match (plain, risky) {
        (false, _) => "The agent offers only the answers above.",
        (true, true) => "Read what is marked first.",
        (true, false) => "Approving runs exactly this, once.",
    };
    let id = format!("reject-{}", detail.row.id);
    let approve = plain.then(|| {
        view! {
            {post(resolve, "as-one", None, view! {
                {bound(detail, Outcome::Approve, back)}
                <button type="submit" class=if risky { "btn" } else { "btn btn--primary" }>"Approve"</button>
            }.into_any())}
        }
    });
    view! {
        <div class="decide" role="group" aria-label="Decision">
            <div class="decide-row">
                <div class="no">
                    {post(resolve, "as-one", None, view! {
                        {bound(detail, Outcome::Reject, back)}
                        <input type="hidden" name="stop" value="on"/>
                        <button type="submit" class="btn btn--danger">"Reject and stop"</button>
                    }.into_any())}
                    <button type="button" class="btn" popovertarget=id.clone()>"Reject…"</button>
                </div>
                <p class=if risky { "say say--strong" } else { "say" }>{say}</p>
                <div class="yes">{approve}</div>
            </div>
            {with_words(detail, resolve, drafts, back, id)}
        </div>
    }
    .into_any()
}

/// *Reject…*: a refusal with words.
fn with_words(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    id: String,
) -> AnyView {
    let field = format!("{id}-words");
    let help = format!("{id}-help");
    let agent = detail.row.agent.clone();
    let draft = drafts.of(detail.row.id);
    let written = draft.clone();
    let hydrated = Live::here().hydrated;
    let told = if detail.takes_message {
        "The agent reads these words. They are kept in the history."
    } else {
        "This agent takes no words with a refusal. They stay here, in the history."
    };
    view! {
        <div class="dialog" popover="auto" id=id.clone() role="dialog" aria-label="Reject with words" on:toggle=move |ev| browser::focus_field(&ev)>
            {post(resolve, "form", Some("Reject with words".to_owned()), view! {
                {bound(detail, Outcome::Reject, back)}
                <div class="field">
                    <label for=field.clone()>
                        {if detail.takes_message { format!("Tell {agent} why") } else { "Say why".to_owned() }}
                    </label>
                    <textarea
                        class="textarea"
                        id=field
                        name="message"
                        maxlength=MESSAGE_MAX.to_string()
                        aria-describedby=help.clone()
                        prop:value=move || hydrated.get().then(|| written.get())
                        on:input=move |ev| draft.set(event_target_value(&ev))
                        on:keydown=move |ev| browser::send_on_ctrl_enter(&ev)
                    ></textarea>
                    <p class="help" id=help>{told}</p>
                </div>
                <div class="apart">
                    <button type="button" class="btn btn--quiet" popovertarget=id.clone() popovertargetaction="hide">"Back"</button>
                    <button type="submit" class="btn btn--primary">"Reject"</button>
                </div>
            }.into_any())}
        </div>
    }
    .into_any()
}

/// The answers a harness offers beyond a plain *Approve* and *Reject*, by their own
/// names. What they mean is the harness's word: they stand apart from our buttons.
pub fn offered(detail: &ApprovalDetail, resolve: Resolving, back: Option<&str>) -> AnyView {
    let plain_only = detail.options.iter().all(|o| o.kind == "allow_once" || o.kind == "reject_once")
        && detail.options.iter().filter(|o| o.kind == "allow_once").count() == 1;
    if detail.options.is_empty()
        || plain_only
        || detail.row.status != ApprovalStatus::Pending
        || !detail.may_decide
    {
        return ().into_any();
    }
    let answers = detail
        .options
        .iter()
        .map(|option| {
            let AskOption { id, name, kind } = option.clone();
            // Only which of the two it is comes from the kind, so that the store can
            // hold the harness to it; never how far it reaches.
            let outcome = if kind.starts_with("reject") { Outcome::Reject } else { Outcome::Approve };
            let reach = if kind.ends_with("always") { " More than this one time." } else { "" };
            view! {
                <li>
                    {post(resolve, "as-one", None, view! {
                        {bound(detail, outcome, back)}
                        <input type="hidden" name="option" value=id/>
                        <button type="submit" class="btn">{domain::action::marked(&name)}</button>
                    }.into_any())}
                    <span class="meta">{format!("Counts as {}.{reach}", if outcome == Outcome::Approve { "an approval" } else { "a refusal" })}</span>
                </li>
            }
        })
        .collect::<Vec<_>>();
    view! {
        <section class="quoted" aria-label="Answers the agent offers">
            <header>
                {icon(Icon::Words, 16)}
                <span>{format!("Answers {} offers, by its own names.", detail.harness)}</span>
            </header>
            <ul class="offers">{answers}</ul>
        </section>
    }
    .into_any()
}
