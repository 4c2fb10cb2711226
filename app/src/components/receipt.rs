//! How far a decision has come. Nothing claims more than is known: *decided* is not
//! *applied*, and what may have happened is said to be unknown.

use std::time::Duration;

use domain::{
    approval::{ApprovalDetail, Reply},
    decision::{Delivery, Outcome, Receipt},
    time::{Timestamp, span},
};
use leptos::prelude::*;

use super::{
    icon::{Icon, icon},
    time::{Shape, after, time},
};
use crate::live::Live;

/// One step: how it stands, its word, when, and what there is to say.
struct Step {
    stand: Stand,
    word: &'static str,
    at: Option<Timestamp>,
    say: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Done,
    /// The next to come: late ten seconds after the last one.
    Next,
    Todo,
    /// It will not come, or nobody knows.
    Unknown,
    Fail,
}

fn decided_by(receipt: &Receipt) -> String {
    match (receipt.outcome, &receipt.by) {
        (Outcome::Approve, Some(by)) if !receipt.answers.is_empty() => format!("Answered by {by}"),
        (Outcome::Approve, Some(by)) if receipt.edited.is_some() => format!("Approved with a change by {by}"),
        (Outcome::Approve, Some(by)) => format!("Approved by {by}"),
        (Outcome::Reject, Some(by)) => format!("Rejected by {by}"),
        (Outcome::Expire, _) => "Nobody answered in time".into(),
        (Outcome::Approve, None) => "Approved".into(),
        (Outcome::Reject, None) => "Rejected".into(),
    }
}

/// What an effect was, as a sentence.
fn effect_words(reply: Reply, note: Option<&str>) -> Option<String> {
    Some(match note? {
        "It ran." if reply == Reply::Answers => "The agent has the answers.".into(),
        "It ran." if reply == Reply::Plan => "The agent goes on with the plan.".into(),
        other => other.to_owned(),
    })
}

fn steps(detail: &ApprovalDetail, receipt: &Receipt) -> Vec<Step> {
    let held =
        detail.waits_for_continue && receipt.continued_at.is_none() && receipt.outcome != Outcome::Expire;
    let refused = receipt.outcome != Outcome::Approve;
    let mut steps = vec![Step {
        stand: Stand::Done,
        word: "Decided",
        at: Some(receipt.decided_at),
        say: Some(match &receipt.option_name {
            Some(option) => format!("{}: {option}", decided_by(receipt)),
            None => decided_by(receipt),
        }),
    }];
    let done = |at: Option<Timestamp>| at.is_some();
    let (sent, applied, effect) = match receipt.delivery {
        Delivery::Queued if held => (Stand::Todo, Stand::Todo, Stand::Todo),
        Delivery::Queued => (Stand::Next, Stand::Todo, Stand::Todo),
        Delivery::Sent => (Stand::Done, Stand::Next, Stand::Todo),
        Delivery::Applied => (Stand::Done, Stand::Done, Stand::Next),
        Delivery::Effect => (Stand::Done, Stand::Done, Stand::Done),
        Delivery::Void => (Stand::Fail, Stand::Todo, Stand::Todo),
        Delivery::NotApplied => {
            (if done(receipt.sent_at) { Stand::Done } else { Stand::Todo }, Stand::Fail, Stand::Todo)
        }
        Delivery::OutcomeUnknown => (
            if done(receipt.sent_at) { Stand::Done } else { Stand::Todo },
            if done(receipt.applied_at) { Stand::Done } else { Stand::Unknown },
            if done(receipt.applied_at) { Stand::Unknown } else { Stand::Todo },
        ),
    };
    steps.push(Step {
        stand: sent,
        word: if sent == Stand::Fail { "Void: never sent" } else { "Sent" },
        // What waits to be sent again has a time of its first sending, which says nothing.
        at: receipt.sent_at.filter(|_| sent != Stand::Next),
        say: match sent {
            Stand::Fail => receipt.note.clone(),
            Stand::Todo if held => Some("on Continue run".into()),
            Stand::Next if !detail.worker_linked => Some(format!("when {} is linked again", detail.worker)),
            _ => Some(format!("to worker {}", detail.worker)),
        },
    });
    steps.push(Step {
        stand: applied,
        word: match applied {
            Stand::Fail => "Not applied",
            Stand::Unknown => "Applied: outcome unknown",
            _ => "Applied",
        },
        at: receipt.applied_at,
        say: match applied {
            Stand::Fail | Stand::Unknown => receipt.note.clone(),
            Stand::Done => Some("written to the same run".into()),
            Stand::Next => Some("The worker has it, the agent has not read it yet.".into()),
            Stand::Todo => None,
        },
    });
    steps.push(Step {
        stand: effect,
        word: match (effect, refused) {
            (Stand::Unknown, _) => "Effect: outcome unknown",
            (Stand::Done, true) => "Refusal seen",
            _ => "Effect",
        },
        at: receipt.effect_at,
        say: match effect {
            Stand::Done => effect_words(detail.reply, receipt.note.as_deref()),
            Stand::Unknown => receipt.note.clone(),
            _ => None,
        },
    });
    steps
}

const fn shape(stand: Stand) -> (&'static str, Icon) {
    match stand {
        Stand::Done => ("done", Icon::Ok),
        Stand::Next | Stand::Todo => ("todo", Icon::Todo),
        Stand::Unknown => ("late", Icon::Unknown),
        Stand::Fail => ("fail", Icon::Fail),
    }
}

/// The four steps, with times.
pub fn receipt(detail: &ApprovalDetail) -> AnyView {
    let Some(receipt) = &detail.receipt else {
        let steps = ["Decided", "Sent", "Applied", "Effect"]
            .map(|word| view! { <li class="todo">{icon(Icon::Todo, 16)}<b>{word}</b></li> });
        return view! { <ol class="receipt">{steps.into_iter().collect::<Vec<_>>()}</ol> }.into_any();
    };
    let decided = receipt.decided_at;
    let waited = Live::here().countup(receipt.waiting_ms.unwrap_or(0));
    let counts = receipt.waiting_ms.is_some();
    let lines = steps(detail, receipt)
        .into_iter()
        .map(|step| {
            let (class, shape) = shape(step.stand);
            let late = move || counts && step.stand == Stand::Next && waited() >= Receipt::LATE_MS;
            let when = match (step.at, step.word) {
                (Some(at), "Decided") => time(at, Shape::Clock),
                (Some(at), _) => after(decided, at),
                (None, _) if step.stand == Stand::Next => view! {
                    <span class="meta num">
                        {move || if late() { format!("{} so far", waited_words(waited())) } else { String::new() }}
                    </span>
                }
                .into_any(),
                _ => ().into_any(),
            };
            view! {
                <li class=move || if late() { "late" } else { class }>
                    {icon(shape, 16)}
                    <b>{step.word}</b>
                    {when}
                    {step.say.map(|say| view! { <small>{say}</small> })}
                </li>
            }
        })
        .collect::<Vec<_>>();
    view! { <ol class="receipt">{lines}</ol> }.into_any()
}

fn waited_words(ms: i64) -> String {
    // Whole seconds: a tenth that changes once a second would be noise.
    span(Duration::from_secs(u64::try_from(ms / 1000).unwrap_or(0))).replace(".0 s", " s")
}

/// The same in one line, for Chat.
pub fn receipt_line(detail: &ApprovalDetail) -> AnyView {
    let Some(receipt) = &detail.receipt else { return ().into_any() };
    let decided = receipt.decided_at;
    let waited = Live::here().countup(receipt.waiting_ms.unwrap_or(0));
    let counts = receipt.waiting_ms.is_some();
    let held = detail.waits_for_continue && receipt.continued_at.is_none();
    let parts = steps(detail, receipt)
        .into_iter()
        .map(|step| {
            let (class, shape) = shape(step.stand);
            let late = move || counts && step.stand == Stand::Next && waited() >= Receipt::LATE_MS;
            let when = match (step.at, step.word) {
                (Some(at), "Decided") => time(at, Shape::Clock),
                (Some(at), _) => after(decided, at),
                _ => ().into_any(),
            };
            let word = if held && step.word == "Sent" { "Sent on Continue run" } else { step.word };
            view! { <span class=move || if late() { "late" } else { class }>{icon(shape, 12)}<span>{word}</span>{when}</span> }
        })
        .collect::<Vec<_>>();
    view! { <p class="receipt-line">{parts}</p> }.into_any()
}

/// What a person can do about a decision that did not arrive, or may not have.
pub fn advice(detail: &ApprovalDetail) -> AnyView {
    let Some(receipt) = &detail.receipt else { return ().into_any() };
    let worker = detail.worker.clone();
    match receipt.delivery {
        Delivery::OutcomeUnknown => view! {
            <div class="note note--wait" role="note">
                {icon(Icon::Unknown, 16)}
                <p>
                    <b>"Look before you go on."</b>
                    {format!(
                        " Whether this took effect is not known. Check on {worker}. It is not sent again.",
                    )}
                </p>
            </div>
        }
        .into_any(),
        Delivery::NotApplied => view! {
            <div class="note" role="note">
                {icon(Icon::Fail, 16)}
                <p>
                    <b>"The decision did not reach the agent."</b>
                    " Nothing ran because of it. If the agent asks again, that is a new request."
                </p>
            </div>
        }
        .into_any(),
        Delivery::Void => view! {
            <div class="note" role="note">
                {icon(Icon::Cancelled, 16)}
                <p><b>"The decision is void."</b>" It was never sent, so nothing ran because of it."</p>
            </div>
        }
        .into_any(),
        _ => ().into_any(),
    }
}
