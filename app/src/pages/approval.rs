//! Approvals: the inbox, and one request in full.

use std::str::FromStr;

use domain::{
    action::ActionKind,
    agent::AgentView,
    approval::{ApprovalDetail, ApprovalRow, ApprovalStatus, HistoryLine},
    decision::{Delivery, Outcome},
    failure::Failure,
    id::ApprovalId,
};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use crate::{
    api::{
        agent::list_agents,
        approval::{self as api, ExtendApproval, ResolveApproval, Tab, list_approvals, read_approval},
        form::refused_form,
        run::ContinueRun,
    },
    components::{
        clock::{LATE_MS, clock, figures_left},
        decision,
        draft::Drafts,
        empty::{empty, loading},
        icon::{Icon, icon},
        last::Last,
        plain::{length, name, plain},
        post::{Sending, post},
        problem,
        read::read,
        receipt, request,
        status::{Status, kind_icon, status, status_small},
        time::{Shape, time},
    },
    live::Live,
};

/// `/approvals`
#[component]
pub fn InboxPage() -> impl IntoView {
    let live = Live::here();
    let query = use_query_map();
    let chosen = Memo::new(move |_| {
        query.with(|q| {
            let tab = q.get_str("tab").and_then(|t| Tab::from_str(t).ok()).unwrap_or_default();
            (tab, q.get("after"))
        })
    });
    let known = Last::new();
    let list =
        read(move || (chosen.get(), live.approvals.get()), |((tab, after), _)| list_approvals(tab, after));
    view! {
        <Title text="Approvals"/>
        <section class="pane" aria-label="Inbox">
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    let (tab, after) = chosen.get_untracked();
                    match known.or_last(list.await) {
                        Ok(page) => inbox(tab, after.is_some(), page),
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
        </section>
    }
}

fn inbox(tab: Tab, further: bool, page: api::ApprovalPage) -> AnyView {
    let counts = page.counts;
    let tabs = Tab::ALL
        .map(|t| {
            let count = match t {
                Tab::Waiting => Some(counts.pending),
                Tab::Decided => Some(counts.decided),
                Tab::Expired => Some(counts.expired),
                Tab::Cancelled => Some(counts.cancelled),
                Tab::All => None,
            };
            let class = if t == Tab::Waiting && counts.pending > 0 { "count count--wait" } else { "count" };
            view! {
                <a href=format!("/approvals?tab={}", t.as_str()) aria-current=(t == tab).then_some("page")>
                    {t.label()}
                    {count.map(|n| view! { <span class=class>{n}</span> })}
                </a>
            }
        })
        .into_iter()
        .collect::<Vec<_>>();
    let head = view! {
        <div class="pane-head pane-head--page">
            <div class="page-head">
                <h1>"Approvals"</h1>
                {(counts.pending > 0).then(|| status_small(ApprovalStatus::Pending, format!("{} waiting", counts.pending)))}
            </div>
            <nav class="tabs" aria-label="Status">{tabs}</nav>
        </div>
    };
    let next = page.next.map(|next| {
        view! {
            <p class="more">
                <a class="btn btn--sm" href=format!("/approvals?tab={}&after={next}", tab.as_str())>"Next 25"</a>
            </p>
        }
    });
    let body = if page.rows.is_empty() {
        nothing(tab, further)
    } else {
        let (late, rest): (Vec<_>, Vec<_>) =
            page.rows.into_iter().partition(|r| tab == Tab::Waiting && r.left_ms < LATE_MS);
        let both = !late.is_empty() && !rest.is_empty();
        let late = (!late.is_empty()).then(|| {
            view! {
                <h2 class="rows-head">"Under five minutes left"</h2>
                <ul class="rows">{late.iter().map(row).collect::<Vec<_>>()}</ul>
            }
        });
        let heading = match tab {
            Tab::Waiting => "Waiting, oldest first",
            _ => "Newest first",
        };
        let rest = (!rest.is_empty()).then(|| {
            view! {
                <h2 class=if both || tab != Tab::All { "rows-head" } else { "vh" }>{heading}</h2>
                <ul class="rows">{rest.iter().map(row).collect::<Vec<_>>()}</ul>
            }
        });
        view! {
            {late}
            {rest}
            {next}
            <p class="hints hints--rows">
                <span><kbd class="kbd">"J"</kbd><kbd class="kbd">"K"</kbd>" move"</span>
                <span><kbd class="kbd">"↵"</kbd>" open"</span>
            </p>
        }
        .into_any()
    };
    view! {
        {head}
        <div class="pane-scroll"><div class="pane-rows">{body}</div></div>
    }
    .into_any()
}

fn nothing(tab: Tab, further: bool) -> AnyView {
    if further {
        return empty(
            Icon::Approvals,
            "Nothing further",
            "The list ends before this page.".into(),
            view! { <a class="btn btn--sm" href=format!("/approvals?tab={}", tab.as_str())>"To the first page"</a> }
                .into_any(),
        );
    }
    match tab {
        Tab::Waiting => empty(
            Icon::Approvals,
            "Nothing waits for you",
            "When an agent needs permission, its run pauses and the request appears here within a second."
                .into(),
            view! { <a class="btn btn--sm" href="/approvals?tab=decided">"See decided requests"</a> }
                .into_any(),
        ),
        Tab::Decided => empty(
            Icon::Ok,
            "Nothing decided yet",
            "Decisions of people are listed here.".into(),
            ().into_any(),
        ),
        Tab::Expired => empty(
            Icon::Expired,
            "Nothing expired",
            "Requests that nobody answered in time are listed here. They were refused as unanswered.".into(),
            ().into_any(),
        ),
        Tab::Cancelled => empty(
            Icon::Cancelled,
            "Nothing cancelled",
            "Requests whose run was cancelled, or whose execution was gone, are listed here.".into(),
            ().into_any(),
        ),
        Tab::All => empty(
            Icon::Approvals,
            "No requests yet",
            "Ask an agent for something in Chat. When it needs permission, the request appears here.".into(),
            view! { <a class="btn btn--sm" href="/chat">"Open Chat"</a> }.into_any(),
        ),
    }
}

fn row(row: &ApprovalRow) -> AnyView {
    let pending = row.status == ApprovalStatus::Pending;
    let of = Status::of_row(row);
    let shape = if pending { kind_icon(row.kind) } else { of.icon };
    let words = matches!(row.kind, ActionKind::Question | ActionKind::Plan);
    let by = match &row.decided_by {
        Some(by) if !pending => format!("{} by {by} · ", of.word),
        _ if !pending => format!("{} · ", of.word),
        _ => String::new(),
    };
    let folder = if row.folder.is_empty() { String::new() } else { format!(" · {}", row.folder) };
    let sub = row.sub_agent.as_deref().map(|sub| format!(" · {}", name(sub))).unwrap_or_default();
    let findings =
        (row.findings > 0).then(|| view! { <span class="tag tag--danger">"Read what is marked"</span> });
    let unchecked = (!row.checked).then(|| view! { <span class="tag tag--dash">"Cannot be checked"</span> });
    let left = if pending {
        figures_left(row.left_ms)
    } else {
        view! { <span class="left">{time(row.created_at, Shape::Short)}</span> }.into_any()
    };
    view! {
        <li>
            <a class=format!("row row--{}", if pending { "ask" } else { of.tone }) href=format!("/approvals/{}", row.id)>
                {icon(shape, 16)}
                <span class=if words { "what what--words" } else { "what" }>{name(&row.title)}</span>
                {left}
                <span class="meta">
                    <span>{format!("{by}{}{sub} · {}{folder}", row.agent, row.tool)}</span>
                    {findings}
                    {unchecked}
                </span>
            </a>
        </li>
    }
    .into_any()
}

/// `/approvals/:id`
#[component]
pub fn ApprovalPage() -> impl IntoView {
    let params = use_params_map();
    let id =
        Memo::new(move |_| params.with(|p| p.get_str("id").and_then(|id| ApprovalId::from_str(id).ok())));
    // One view for each request: nothing of one is left in another.
    move || match id.get() {
        Some(id) => one(id),
        None => problem::instead(&not_found()),
    }
}

fn not_found() -> Failure {
    super::lost::set_status(404);
    Failure::not_found("request")
}

fn one(id: ApprovalId) -> AnyView {
    let live = Live::here();
    let resolve = Sending::to::<ResolveApproval>();
    let extend = Sending::to::<ExtendApproval>();
    let resume = Sending::to::<ContinueRun>();
    let acts = Acts { resolve, extend, resume, drafts: Drafts::new() };
    // The server writes the title after the page's owner may be gone: what it reads
    // must not live in the owner's arena.
    let head = ArcRwSignal::new("Request".to_owned());
    let title = RwSignal::from(head.clone());
    let known = Last::new();
    let kept = refused_form::<ResolveApproval>();
    let detail = read(
        move || {
            (
                live.approvals.get(),
                live.workers.get(),
                resolve.version().get(),
                extend.version().get(),
                resume.version().get(),
            )
        },
        move |_| read_approval(id),
    );
    // What the harness and its modes are called.
    let agents = read(move || (live.agents.get(), live.workers.get()), |_| list_agents());
    let refused = decision::refused(resolve, acts.drafts);
    let unextended =
        move || problem::note(problem::failure(extend.value().get()), "The time was not extended.");
    let unresumed =
        move || problem::note(problem::failure(resume.value().get()), "The run was not continued.");
    view! {
        <Title text=move || head.get()/>
        <section class="pane" aria-label="Request">
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    acts.drafts.take_up(kept.await.unwrap_or_default());
                    match known.or_last(detail.await) {
                        Ok(detail) => {
                            title.set(format!("{}, {}", detail.action.kind.heading(), detail.row.agent));
                            let titles = agents.await.map(|all| Titles::of(&detail, &all)).unwrap_or_default();
                            let problems = view! { {refused} {unextended} {unresumed} {held(&detail, acts.resume)} };
                            full(&detail, titles, acts, problems.into_any())
                        }
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
        </section>
    }
    .into_any()
}

/// What a request's page does.
#[derive(Clone, Copy)]
struct Acts {
    resolve: Sending,
    extend: Sending,
    resume: Sending,
    drafts: Drafts,
}

/// What the harness and its mode are called, where the agent is still known.
#[derive(Clone, Default)]
struct Titles {
    harness: Option<String>,
    mode: Option<String>,
}

impl Titles {
    fn of(detail: &ApprovalDetail, agents: &[AgentView]) -> Self {
        let agent = agents.iter().find(|a| {
            a.harness == detail.harness && a.name == detail.row.agent && a.worker_name == detail.worker
        });
        let mode = agent.and_then(|a| a.modes.iter().find(|m| m.id == detail.mode));
        Self { harness: agent.map(|a| a.harness_title.clone()), mode: mode.map(|m| m.title.clone()) }
    }
}

fn full(detail: &ApprovalDetail, titles: Titles, acts: Acts, problems: AnyView) -> AnyView {
    let Acts { resolve, extend, drafts, .. } = acts;
    let offered = decision::offered(detail, resolve, drafts, None);
    let bar = decision::bar(detail, resolve, drafts, None);
    let asked = request::request(detail, resolve, drafts, None, true, ().into_any());
    let row = &detail.row;
    let pending = row.status == ApprovalStatus::Pending;
    let clockset = pending.then(|| {
        let extend = detail.may_decide.then(|| {
            view! {
                {post(extend, "as-one", None, view! {
                    <input type="hidden" name="id" value=row.id.to_string()/>
                    <button type="submit" class="btn btn--sm">"Extend"<span class="vh">" by 15 min"</span></button>
                }.into_any())}
            }
        });
        view! { <span class="clockset">{clock(row.left_ms, detail.timeout_ms)}{extend}</span> }
    });
    let session = row.session;
    let head = view! {
        <div class="pane-head pane-head--page">
            <div class="page-head">
                <p class="crumbs"><a href="/approvals">{icon(Icon::Left, 14)}"Approvals"</a></p>
            </div>
            <header class="ask-head">
                <div class="line">
                    <h1>{detail.action.kind.heading()}</h1>
                    {status(Status::of_row(row))}
                    {clockset}
                </div>
                <p class="meta">
                    {match &row.sub_agent {
                        Some(sub) => format!("{}, sub-agent “{}”, asked at ", row.agent, name(sub)),
                        None => format!("{} asked at ", row.agent),
                    }}
                    {time(row.created_at, Shape::Clock)}
                    " in "
                    <a href=format!("/chat/{session}")>{name(&row.session_title)}</a>
                    <span class="dot"></span>
                    {format!("request {} in this run", detail.number_in_run)}
                </p>
            </header>
        </div>
    }
    .into_any();
    let side = view! {
                    <div class="ask-side">
                        {facts(detail, titles)}
                        {(!detail.questions.is_empty()).then(|| view! {
                            <p class="meta">"Questions and choices are the agent’s words. An answer gives no permission to run anything."</p>
                        })}
                        <div class="stack">
                            <h2 class="h3">"Fingerprint"</h2>
                            <p class="print">
                                <span class="words">{detail.fingerprint.words.clone()}</span>
                                <code>{detail.fingerprint.hex.clone()}</code>
                            </p>
                            <p class="meta">"A decision holds for exactly this action. Any change makes a new request."</p>
                        </div>
                        <div class="stack">
                            <h2 class="h3">"Receipt"</h2>
                            {receipt::receipt(detail)}
                            {said(detail)}
                        </div>
                    </div>
    }
    .into_any();
    let main = view! {
                    <div class="ask-main">
                        <div class="stack">
                            {problems}
                            {closed(detail)}
                            {receipt::advice(detail)}
                            {asked}
                            {decision::granted(detail)}
                        </div>
                        {quoted(detail)}
                        {offered}
                        {history(&detail.history)}
                    </div>
    }
    .into_any();
    view! {
        {head}
        <div class="pane-scroll" tabindex="0" role="region" aria-label="Request in full">
            <div class="pane-body"><div class="ask">{main}{side}</div></div>
        </div>
        {bar}
    }
    .into_any()
}

/// A decision that waits for *Continue Run*.
fn held(detail: &ApprovalDetail, resume: Sending) -> Option<AnyView> {
    let receipt = detail.receipt.as_ref()?;
    if !detail.waits_for_continue
        || receipt.continued_at.is_some()
        || receipt.delivery != Delivery::Queued
        || receipt.outcome == Outcome::Expire
    {
        return None;
    }
    let run = detail.run.to_string();
    let button = view! {
        <input type="hidden" name="run" value=run/>
        <button type="submit" class="btn btn--primary">{icon(Icon::Play, 14)}"Continue run"</button>
    };
    Some(
        view! {
            <div class="note note--wait" role="note">
                {icon(Icon::Waiting, 16)}
                <p><b>"Decided, not sent."</b>" The decision goes to the same run when somebody continues it."</p>
                {post(resume, "as-one", None, button.into_any())}
            </div>
        }
        .into_any(),
    )
}

/// The words that were sent with a decision.
fn said(detail: &ApprovalDetail) -> Option<AnyView> {
    let receipt = detail.receipt.as_ref()?;
    if receipt.outcome == Outcome::Expire {
        return None;
    }
    let words = receipt.message.as_ref()?;
    Some(view! { <p class="meta">{format!("“{}”", plain(words))}</p> }.into_any())
}

/// Why a request is closed without a person's decision, and what that means.
fn closed(detail: &ApprovalDetail) -> AnyView {
    let agent = detail.row.agent.clone();
    match detail.row.status {
        ApprovalStatus::Expired => view! {
            <div class="note" role="note">
                {icon(Icon::Expired, 16)}
                <p>
                    <b>{format!("Nobody answered within {}.", length(detail.timeout_ms / 1000))}</b>
                    {format!(" {agent} is told so. That is not a rejection by a person.")}
                </p>
            </div>
        }
        .into_any(),
        ApprovalStatus::Cancelled => view! {
            <div class="note" role="note">
                {icon(Icon::Cancelled, 16)}
                <p>
                    <b>{detail.closed_reason.clone().unwrap_or_else(|| "The request was cancelled.".into())}</b>
                    " Nobody approved it. An equal request would be a new one."
                </p>
            </div>
        }
        .into_any(),
        _ => match &detail.closed_reason {
            Some(reason) => {
                view! { <div class="note" role="note">{icon(Icon::Info, 16)}<p>{reason.clone()}</p></div> }.into_any()
            }
            None => ().into_any(),
        },
    }
}

/// The agent's own words: apart, and named as such.
pub fn quoted(detail: &ApprovalDetail) -> Option<AnyView> {
    let words = detail.words.as_ref()?;
    Some(
        view! {
            <section class="quoted" aria-label="The agent’s own words">
                <header>
                    {icon(Icon::Words, 16)}
                    <span>{format!("{} says. Not checked, and not part of what runs.", detail.row.agent)}</span>
                </header>
                <p>{plain(words)}</p>
            </section>
        }
        .into_any(),
    )
}

fn facts(detail: &ApprovalDetail, titles: Titles) -> AnyView {
    let row = &detail.row;
    let linked = if detail.worker_linked { "linked" } else { "not linked" };
    let pending = row.status == ApprovalStatus::Pending;
    view! {
        <div class="stack">
            <h2 class="h3">"Facts"</h2>
            <dl class="facts">
                <dt>"Agent"</dt><dd>{row.agent.clone()}</dd>
                {row.sub_agent.clone().map(|sub| view! { <dt>"Sub-agent"</dt><dd>{name(&sub)}</dd> })}
                <dt>"Harness"</dt><dd>{titles.harness.unwrap_or_else(|| detail.harness.clone())}</dd>
                <dt>"Worker"</dt><dd>{format!("{}, {linked}", detail.worker)}</dd>
                <dt>"Mode"</dt><dd>{titles.mode.unwrap_or_else(|| detail.mode.clone())}</dd>
                {(!row.folder.is_empty()).then(|| view! { <dt>"Folder"</dt><dd><code>{row.folder.clone()}</code></dd> })}
                {pending.then(|| view! {
                    <dt>"No answer"</dt><dd>"expires "{time(row.expires_at, Shape::Clock)}", refused as unanswered"</dd>
                })}
                {detail.waits_for_continue.then(|| view! { <dt>"After that"</dt><dd>"waits for Continue run"</dd> })}
            </dl>
        </div>
    }
    .into_any()
}

fn history(lines: &[HistoryLine]) -> Option<AnyView> {
    if lines.is_empty() {
        return None;
    }
    let lines = lines
        .iter()
        .map(|line| {
            let what = line.what.trim_end_matches('.');
            let what = if line.by.is_some() {
                format!(" {what}.")
            } else {
                let mut rest = what.chars();
                let first = rest.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
                format!("{first}{}.", rest.as_str())
            };
            view! {
                <li>
                    {time(line.at, Shape::Clock)}
                    <div>
                        {line.by.clone().map(|by| view! { <b>{by}</b> })}
                        {what}
                        {line.words.as_ref().map(|words| view! { <span>{format!(" “{}”", plain(words))}</span> })}
                    </div>
                </li>
            }
        })
        .collect::<Vec<_>>();
    Some(
        view! { <div class="stack"><h2 class="h3">"History"</h2><ol class="history">{lines}</ol></div> }
            .into_any(),
    )
}
