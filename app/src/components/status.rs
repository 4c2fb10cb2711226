//! Status: shape, then word, then colour.

use domain::{
    action::ActionKind,
    approval::{ApprovalRow, ApprovalStatus},
    decision::Delivery,
    run::RunStatus,
};
use leptos::prelude::*;

use super::icon::{Icon, icon};

/// A shape, the class that colours it, and a word.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub icon: Icon,
    /// Follows `status--` and `row--`.
    pub tone: &'static str,
    pub word: &'static str,
}

impl From<ApprovalStatus> for Status {
    fn from(status: ApprovalStatus) -> Self {
        let (icon, tone) = match status {
            ApprovalStatus::Pending => (Icon::Waiting, "wait"),
            ApprovalStatus::Approved => (Icon::Ok, "ok"),
            ApprovalStatus::Rejected => (Icon::No, "no"),
            ApprovalStatus::Expired => (Icon::Expired, "exp"),
            ApprovalStatus::Cancelled => (Icon::Cancelled, "cancel"),
        };
        Self { icon, tone, word: status.label() }
    }
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        let (icon, tone) = match status {
            RunStatus::Pending => (Icon::Todo, "off"),
            RunStatus::Running => (Icon::Running, "run"),
            RunStatus::Paused => (Icon::Waiting, "wait"),
            RunStatus::Completed => (Icon::Ok, "ok"),
            RunStatus::Cancelled => (Icon::Cancelled, "cancel"),
            RunStatus::Error => (Icon::Fail, "fail"),
        };
        Self { icon, tone, word: status.label() }
    }
}

impl Status {
    /// What a row of the inbox shows: a decision that may not have arrived comes first.
    pub fn of_row(row: &ApprovalRow) -> Self {
        match row.delivery {
            Some(Delivery::OutcomeUnknown) => {
                Self { icon: Icon::Unknown, tone: "wait", word: "Outcome unknown" }
            }
            Some(Delivery::NotApplied) if row.status != ApprovalStatus::Expired => {
                Self { icon: Icon::Fail, tone: "fail", word: "Not applied" }
            }
            _ if row.kind == ActionKind::Question && row.status == ApprovalStatus::Approved => {
                Self { word: "Answered", ..row.status.into() }
            }
            _ => row.status.into(),
        }
    }
}

/// A status at the size of a heading or a table.
pub fn status(of: impl Into<Status>) -> AnyView {
    let of = of.into();
    view! { <span class=format!("status status--{}", of.tone)>{icon(of.icon, 16)}{of.word}</span> }.into_any()
}

/// A status at the size of metadata.
pub fn status_small(of: impl Into<Status>, word: String) -> AnyView {
    let of = of.into();
    view! { <span class=format!("status status--sm status--{}", of.tone)>{icon(of.icon, 14)}{word}</span> }
        .into_any()
}

/// The icon of what an action does.
pub const fn kind_icon(kind: ActionKind) -> Icon {
    match kind {
        ActionKind::Command => Icon::Command,
        ActionKind::Write | ActionKind::Read => Icon::Edit,
        ActionKind::Fetch | ActionKind::Tool => Icon::Plug,
        ActionKind::Question => Icon::Ask,
        ActionKind::Plan => Icon::Plan,
        ActionKind::Unknown => Icon::Raw,
    }
}
