//! The decision bar: refusing at the start, going on at the end, never side by side.
//!
//! Each button is a form of its own that posts the digest of the action that was
//! shown. What needs more than a press (*Reject…*, *Change…*, *Allow until it ends…*)
//! opens a popover, which needs no script. Questions are a form in the page, sent from
//! the bar. What a person types or ticks is kept outside the view ([`Drafts`]), so a
//! redraw cannot move it to another request.

use domain::{
    approval::{ApprovalDetail, ApprovalStatus, AskOption, Reply, plain_option},
    decision::{MESSAGE_MAX, Outcome},
};
use leptos::prelude::*;

use super::{
    draft::{Drafts, text_area, tick},
    icon::{Icon, icon},
    plain::counted,
    post::{Sending, post},
    problem, question,
};
use crate::browser;

/// The action of a page that decides.
pub type Resolving = Sending;

/// What every form of a decision carries.
pub(super) fn bound(detail: &ApprovalDetail, outcome: Outcome, back: Option<&str>) -> impl IntoView + use<> {
    let back = back.map(str::to_owned);
    view! {
        <input type="hidden" name="id" value=detail.row.id.to_string()/>
        <input type="hidden" name="digest" value=detail.digest.to_string()/>
        <input type="hidden" name="outcome" value=outcome.as_str()/>
        {back.map(|back| view! { <input type="hidden" name="back" value=back/> })}
    }
}

/// What a refusal is called, by what is refused.
struct Refusing {
    /// The button that opens the popover, and its title.
    open: &'static str,
    title: &'static str,
    send: &'static str,
}

impl Refusing {
    const fn of(reply: Reply) -> Self {
        match reply {
            Reply::Plan => Self { open: "Send back…", title: "Send the plan back", send: "Send back" },
            _ => Self { open: "Reject…", title: "Reject with words", send: "Reject" },
        }
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
    let id = detail.row.id;
    let plain = plain_option(&detail.options, Outcome::Approve).is_ok();
    let risky = detail.row.findings > 0 || !detail.row.checked;
    let refusing = Refusing::of(detail.reply);
    let reject = format!("reject-{id}");
    let (say, yes, more) = match detail.reply {
        Reply::Answers => answers(detail, drafts),
        Reply::Refusal => (
            "These questions have a shape that cannot be answered here. Reject the request with words for the agent.".into_any(),
            ().into_any(),
            ().into_any(),
        ),
        Reply::Decision | Reply::Plan if !plain => {
            ("The agent offers only the answers above.".into_any(), ().into_any(), ().into_any())
        }
        Reply::Decision | Reply::Plan => going_on(detail, resolve, drafts, back, risky),
    };
    let strong = risky && matches!(detail.reply, Reply::Decision | Reply::Plan) && plain;
    // What is sent from the row itself has its failure beside the page's content.
    let elsewhere = move |_| drafts.sent_from(None);
    view! {
        <div class="decide" role="group" aria-label="Decision">
            <div class="decide-row" on:submit=elsewhere>
                <div class="no">
                    {post(resolve, "as-one", None, view! {
                        {bound(detail, Outcome::Reject, back)}
                        <input type="hidden" name="stop" value="on"/>
                        <button type="submit" class="btn btn--danger">"Reject and stop"</button>
                    }.into_any())}
                    <button type="button" class="btn" popovertarget=reject.clone()>{refusing.open}</button>
                </div>
                <p class=if strong { "say say--strong" } else { "say" }>{say}</p>
                <div class="yes">{yes}</div>
            </div>
            {with_words(detail, resolve, drafts, back, reject)}
            {more}
        </div>
    }
    .into_any()
}

/// Approving, and what can be added to it: the words, the buttons, their popovers.
fn going_on(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    risky: bool,
) -> (AnyView, AnyView, AnyView) {
    let id = detail.row.id;
    let plan = detail.reply == Reply::Plan;
    let say = match (risky, plan) {
        (true, _) => "Read what is marked first.",
        (false, true) => "Approving lets the agent carry out the plan. It still asks as its mode says.",
        (false, false) => "Approving runs exactly this, once.",
    };
    let (change, allow) = (format!("change-{id}"), format!("allow-{id}"));
    let changes = !detail.editable.is_empty();
    let allows = !detail.grants.is_empty();
    let yes = view! {
        {changes.then(|| view! { <button type="button" class="btn" popovertarget=change.clone()>"Change…"</button> })}
        {allows.then(|| view! {
            <button type="button" class="btn" popovertarget=allow.clone()>
                {if plan { "Approve and allow…" } else { "Allow until it ends…" }}
            </button>
        })}
        {post(resolve, "as-one", None, view! {
            {bound(detail, Outcome::Approve, back)}
            <button type="submit" class=if risky { "btn" } else { "btn btn--primary" }>
                {if plan { "Approve plan" } else { "Approve" }}
            </button>
        }.into_any())}
    };
    let more = view! {
        {changes.then(|| changed(detail, resolve, drafts, back, change.clone()))}
        {allows.then(|| allowed(detail, resolve, drafts, back, allow.clone()))}
    };
    (say.into_any(), yes.into_any(), more.into_any())
}

/// Sending the answers of the form in the page.
fn answers(detail: &ApprovalDetail, drafts: Drafts) -> (AnyView, AnyView, AnyView) {
    let form = question::form_id(detail.row.id);
    let yes = view! {
        <button type="submit" class="btn btn--primary" form=form>"Send answers"</button>
    };
    (question::count(detail, drafts), yes.into_any(), ().into_any())
}

/// A popover that sends a form. Its own failure is told inside it, since it lies over
/// the page.
#[derive(Clone)]
struct Popover {
    id: String,
    title: String,
    class: &'static str,
}

fn popover(of: Popover, resolve: Resolving, drafts: Drafts, inside: AnyView, send: &'static str) -> AnyView {
    let Popover { id, title, class } = of;
    let (here, told, hides) = (id.clone(), id.clone(), id.clone());
    let failure = move || {
        let failure = problem::failure(resolve.value().get());
        problem::note(failure.filter(|f| drafts.is_told_in(&told, f)), "Nothing was sent.")
    };
    view! {
        <div
            class=class
            popover="auto"
            id=id
            role="dialog"
            aria-label=title.clone()
            on:toggle=move |ev| browser::focus_field(&ev)
            on:submit=move |_| drafts.sent_from(Some(&here))
        >
            {post(resolve, "form", Some(title.clone()), view! {
                {inside}
                {failure}
                <div class="apart">
                    <button type="button" class="btn btn--quiet" popovertarget=hides popovertargetaction="hide">"Back"</button>
                    <button type="submit" class="btn btn--primary">{send}</button>
                </div>
            }.into_any())}
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
    let refusing = Refusing::of(detail.reply);
    let field = format!("{id}-words");
    let help = format!("{id}-help");
    let agent = &detail.row.agent;
    let (label, told) = match (detail.takes_message, detail.reply) {
        (true, Reply::Plan) => (
            format!("Tell {agent} what to change"),
            "The agent reads these words, stays in plan mode and may send another plan.",
        ),
        (true, _) => {
            (format!("Tell {agent} why"), "The agent reads these words. They are kept in the history.")
        }
        (false, _) => (
            "Say why".to_owned(),
            "This agent takes no words with a refusal. They stay here, in the history.",
        ),
    };
    let area = text_area(
        drafts.of(detail.row.id, "message", ""),
        field.clone(),
        "message".into(),
        "textarea",
        help.clone(),
        MESSAGE_MAX,
    );
    let inside = view! {
        {bound(detail, Outcome::Reject, back)}
        <div class="field">
            <label for=field>{label}</label>
            {area}
            <p class="help" id=help>{told}</p>
        </div>
        <label class="check">
            {tick(drafts.of(detail.row.id, "stop", ""), "checkbox", "stop".into(), "on".into())}
            <span>"Stop the run too"</span>
        </label>
    };
    let of = Popover { id, title: refusing.title.to_owned(), class: "dialog" };
    popover(of, resolve, drafts, inside.into_any(), refusing.send)
}

/// *Change…*: another input than the one that was asked for, as exact text.
fn changed(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    id: String,
) -> AnyView {
    let help = format!("{id}-help");
    let fields = detail
        .editable
        .iter()
        .map(|field| {
            let at = format!("{id}-{}", field.name);
            let name = format!("edit[{}]", field.name);
            let area = text_area(
                drafts.of(detail.row.id, &name, &field.text),
                at.clone(),
                name,
                "textarea textarea--code",
                help.clone(),
                domain::edit::EDIT_MAX,
            );
            view! { <div class="field"><label for=at>{field.label.clone()}</label>{area}</div> }
        })
        .collect::<Vec<_>>();
    let inside = view! {
        {bound(detail, Outcome::Approve, back)}
        <p class="h3">"Change it before it runs"</p>
        {fields}
        {(detail.row.findings > 0).then(|| view! {
            <p class="field-error">{icon(Icon::Fail, 14)}<span>"What is marked on the card does not show in this field, and is still in it."</span></p>
        })}
        <p class="help" id=help>
            {format!(
                "The changed request runs instead, once. It is not checked against any rule again: you are the last to read it. Both texts are kept, and {} is told what ran.",
                detail.row.agent,
            )}
        </p>
    };
    let of = Popover { id, title: "Change the request".to_owned(), class: "dialog dialog--wide" };
    popover(of, resolve, drafts, inside.into_any(), "Approve changed")
}

/// *Allow until it ends…*: what the harness suggests to allow besides.
fn allowed(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    id: String,
) -> AnyView {
    let only = detail.grants.len() == 1;
    let rules = detail
        .grants
        .iter()
        .enumerate()
        .map(|(i, grant)| {
            let name = format!("grants[g{i}]");
            let draft = drafts.of(detail.row.id, &name, if only { "on" } else { "" });
            view! {
                <label class="choice">
                    {tick(draft, "checkbox", name, "on".to_owned())}
                    <b>{super::plain::name(&grant.words)}</b>
                </label>
            }
        })
        .collect::<Vec<_>>();
    let inside = view! {
        {bound(detail, Outcome::Approve, back)}
        <fieldset class="question">
            <legend class="h3">"Approve this, and allow what is ticked without asking"</legend>
            <div class="choices">{rules}</div>
        </fieldset>
        <p class="help">
            {format!(
                "It holds until the process of {} ends, in this session only, and is never written into the repository. What it allows runs without a request here.",
                detail.row.agent,
            )}
        </p>
    };
    let of = Popover { id, title: "Approve and allow more".to_owned(), class: "dialog" };
    popover(of, resolve, drafts, inside.into_any(), "Approve and allow")
}

/// The answers a harness offers beyond a plain *Approve* and *Reject*, by their own
/// names. What they mean is the harness's word: they stand apart from our buttons.
pub fn offered(detail: &ApprovalDetail, resolve: Resolving, drafts: Drafts, back: Option<&str>) -> AnyView {
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
        <section class="quoted" aria-label="Answers the agent offers" on:submit=move |_| drafts.sent_from(None)>
            <header>
                {icon(Icon::Words, 16)}
                <span>{format!("Answers {} offers, by its own names.", detail.harness)}</span>
            </header>
            <ul class="offers">{answers}</ul>
        </section>
    }
    .into_any()
}

/// What was allowed besides, in words, where anything was.
pub fn granted(detail: &ApprovalDetail) -> Option<AnyView> {
    let grants = detail.receipt.as_ref().map(|r| r.grants.as_slice()).unwrap_or_default();
    if grants.is_empty() {
        return None;
    }
    let rules = grants.iter().map(|g| view! { <li>{super::plain::name(g)}</li> }).collect::<Vec<_>>();
    Some(
        view! {
            <div class="granted">
                <p class="meta">
                    {format!("{} allowed besides, until the agent’s process ends:", counted(grants.len() as u64, "rule", "rules"))}
                </p>
                <ul>{rules}</ul>
            </div>
        }
        .into_any(),
    )
}

/// The failure of a decision, where the page tells it: not in the popover it came from.
pub fn refused(resolve: Resolving, drafts: Drafts) -> impl Fn() -> AnyView + Copy + Send + 'static {
    move || {
        let failure = problem::failure(resolve.value().get());
        problem::note(failure.filter(|f| !drafts.is_told_elsewhere(f)), "Your decision was not sent.")
    }
}
