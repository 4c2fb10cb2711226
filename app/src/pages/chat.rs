//! Chat: sessions at the side, a transcript with its paused requests, the composer.

use std::{collections::HashMap, str::FromStr};

use domain::{
    agent::{AgentView, Asks},
    approval::{ApprovalDetail, ApprovalStatus},
    event::EventBody,
    failure::Failure,
    id::SessionId,
    run::{PROMPT_MAX, RunStatus, RunView},
    session::{Item, SessionDetail, SessionRow, Turn},
    user::Role,
};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::{
    components::Outlet,
    hooks::{use_location, use_params_map, use_query_map},
};

use crate::{
    api::{
        agent::list_agents,
        approval::ResolveApproval,
        form::refused_form,
        run::{CancelRun, ContinueRun},
        session::{SendPrompt, SessionPage as Sessions, StartSession, list_sessions, read_session},
    },
    browser,
    components::{
        action,
        clock::clock,
        decision::{self, Resolving},
        draft::Drafts,
        empty::{empty, loading},
        frame::Here,
        icon::{Icon, icon},
        last::Last,
        plain::{counted, name, plain},
        post::{Sending, post},
        problem, question,
        read::read,
        receipt, request,
        status::{Status, status_small},
        time::{Shape, time},
    },
    live::Live,
};

/// `/chat` and below: the sessions beside whatever is open.
#[component]
pub fn ChatFrame() -> impl IntoView {
    let live = Live::here();
    let query = use_query_map();
    let location = use_location();
    let open = Memo::new(move |_| {
        location.pathname.with(|p| p.strip_prefix("/chat/").and_then(|id| SessionId::from_str(id).ok()))
    });
    let asked = Memo::new(move |_| query.with(|q| (q.get("search").unwrap_or_default(), q.get("after"))));
    let known = Last::new();
    let list = read(
        move || (asked.get(), live.sessions.get(), live.approvals.get()),
        |((search, after), _, _)| list_sessions(search, after),
    );
    view! {
        <div class="panes panes--chat">
            <section class=move || if open.get().is_some() { "pane desk-only" } else { "pane pane--list" } aria-label="Sessions">
                <div class="pane-head">
                    <div class="page-head">
                        <h2>"Chat"</h2>
                        <span class="acts">
                            <a class="btn btn--sm" href="/chat">{icon(Icon::Plus, 14)}"New"</a>
                        </span>
                    </div>
                    <form method="get" action="/chat" role="search">
                        <label class="searchbox">
                            {icon(Icon::Search, 16)}
                            <span class="vh">"Search sessions"</span>
                            <input class="input" type="search" name="search" placeholder="Search" value=asked.get_untracked().0/>
                        </label>
                    </form>
                </div>
                <div class="pane-scroll">
                    <Transition fallback=loading>
                        {move || Suspend::new(async move {
                            let search = asked.get_untracked().0;
                            match known.or_last(list.await) {
                                Ok(page) => sessions(page, &search, open),
                                Err(failed) => problem::instead(&failed.0),
                            }
                        })}
                    </Transition>
                </div>
            </section>
            <Outlet/>
        </div>
    }
}

fn sessions(page: Sessions, search: &str, open: Memo<Option<SessionId>>) -> AnyView {
    if page.rows.is_empty() {
        return if search.is_empty() {
            view! { <p class="meta pad">"No sessions yet. The first message starts one."</p> }.into_any()
        } else {
            empty(
                Icon::Search,
                "No session matches",
                format!("No title holds “{search}”."),
                view! { <a class="btn btn--sm" href="/chat">"Clear search"</a> }.into_any(),
            )
        };
    }
    let search = search.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B");
    let next = page.next.map(|next| {
        view! {
            <p class="more"><a class="btn btn--sm" href=format!("/chat?search={search}&after={next}")>"Older sessions"</a></p>
        }
    });
    view! {
        <ul class="rows">{page.rows.iter().map(|row| session_row(row, open)).collect::<Vec<_>>()}</ul>
        {next}
    }
    .into_any()
}

fn session_row(row: &SessionRow, open: Memo<Option<SessionId>>) -> AnyView {
    let of: Status = row.status.map_or(Status { icon: Icon::Off, tone: "off", word: "New" }, Into::into);
    let id = row.id;
    view! {
        <li>
            <a
                class=format!("row row--{}", of.tone)
                href=format!("/chat/{id}")
                aria-current=move || (open.get() == Some(id)).then_some("true")
            >
                {icon(of.icon, 16)}
                <span class="what what--words">{name(&row.title)}</span>
                <span class="left">{time(row.updated_at, Shape::Short)}</span>
                <span class="meta">
                    <span>{format!("{} · {}", of.word, row.agent)}</span>
                    {row.private.then(|| view! { <span class="tag">"Private"</span> })}
                    {(row.waiting > 0)
                        .then(|| view! { <span class="count count--wait">{row.waiting}<span class="vh">" waiting"</span></span> })}
                </span>
            </a>
        </li>
    }
    .into_any()
}

/// `/chat`: the first message of a new session.
#[component]
pub fn NewSession() -> impl IntoView {
    let live = Live::here();
    let place = Here::place();
    let start = Sending::to::<StartSession>();
    let text = RwSignal::new(String::new());
    let known = Last::new();
    let agents = read(move || (live.agents.get(), live.workers.get()), |_| list_agents());
    let refused = move || problem::note(problem::failure(start.value().get()), "The message was not sent.");
    view! {
        <Title text="Chat"/>
        <section class="pane" aria-label="New session">
            <div class="pane-head pane-head--page">
                <div class="page-head"><h1>"New session"</h1></div>
            </div>
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    let may = Here::may(place, Role::Approver).await;
                    match known.or_last(agents.await) {
                        Ok(agents) => new_session(&agents, may, start, text, view! { {refused} }.into_any()),
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
        </section>
    }
}

fn new_session(
    agents: &[AgentView],
    may: bool,
    start: Sending,
    text: RwSignal<String>,
    refused: AnyView,
) -> AnyView {
    if !may {
        return empty(
            Icon::Lock,
            "You can read sessions, not start one",
            "Chatting needs the role Approver.".into(),
            ().into_any(),
        );
    }
    if agents.is_empty() {
        return empty(
            Icon::Agents,
            "No agent yet",
            "Agents are offered by workers. None has linked so far.".into(),
            view! { <a class="btn btn--sm" href="/agents">"Open Agents & workers"</a> }.into_any(),
        );
    }
    let demo = agents.iter().any(|a| a.harness == "demo");
    let ready = |a: &AgentView| a.problem.is_none() && a.worker_linked;
    // The one that the words below are about: it works without an account.
    let usable = agents
        .iter()
        .position(|a| a.harness == "demo" && ready(a))
        .or_else(|| agents.iter().position(ready))
        .unwrap_or(0);
    let options = agents
        .iter()
        .enumerate()
        .map(|(i, agent)| {
            let state = match (&agent.problem, agent.worker_linked) {
                (Some(_), _) => " (cannot be used now)",
                (None, false) => " (worker not linked)",
                (None, true) if agent.asks() == Asks::Never => " (never asks)",
                (None, true) => "",
            };
            view! { <option value=agent.id.to_string() selected=i == usable>{format!("{}{state}", agent.name)}</option> }
        })
        .collect::<Vec<_>>();
    let problems = agents
        .iter()
        .filter_map(|a| {
            a.problem.as_ref().map(|p| view! { <p class="meta">{format!("{}: {p}", a.name)}</p> })
        })
        .collect::<Vec<_>>();
    let lead = if demo {
        "The demo agent needs no account: send it any text. It asks before it writes a file in its own folder, you decide, and the same run goes on."
    } else {
        "Write what is to be done. When the agent needs permission, the run pauses and asks here."
    };
    view! {
        <div class="pane-scroll">
            <div class="pane-body">
                <div class="turns">
                    <div class="empty empty--flat">
                        {icon(Icon::Chat, 20)}
                        <h2 class="h3">{if demo { "Try the demo agent" } else { "Start a session" }}</h2>
                        <p>{lead}</p>
                        {problems}
                    </div>
                    {refused}
                </div>
            </div>
        </div>
        <div class="composer">
            {post(start, "", Some("New message".to_owned()), view! {
                <label class="vh" for="prompt">"Message"</label>
                {composer_field("prompt", "Message", text)}
                <div class="acts">
                    <select class="select select--sm" name="agent" aria-label="Agent">{options}</select>
                    <label class="check">
                        <input type="checkbox" name="private"/>
                        <span>"Private"</span>
                    </label>
                    {composer_hints()}
                    {send_button()}
                </div>
            }.into_any())}
        </div>
    }
    .into_any()
}

fn composer_field(id: &'static str, placeholder: &'static str, text: RwSignal<String>) -> impl IntoView {
    let hydrated = Live::here().hydrated;
    view! {
        <textarea
            id=id
            name="prompt"
            rows="2"
            required
            maxlength=PROMPT_MAX.to_string()
            placeholder=placeholder
            prop:value=move || hydrated.get().then(|| text.get())
            on:input=move |ev| text.set(event_target_value(&ev))
            on:keydown=move |ev| browser::send_on_ctrl_enter(&ev)
        ></textarea>
    }
}

fn composer_hints() -> impl IntoView {
    view! {
        <span class="hints">
            <span><kbd class="kbd">"Ctrl"</kbd><kbd class="kbd">"↵"</kbd>" send"</span>
            <span class="desk-only">"Text here never answers a request."</span>
        </span>
    }
}

fn send_button() -> impl IntoView {
    view! {
        <button type="submit" class="btn btn--icon btn--sm" aria-label="Send message" title="Send message">
            {icon(Icon::Send, 16)}
        </button>
    }
}

/// What a session's page does.
#[derive(Clone, Copy)]
struct Acts {
    resolve: Resolving,
    cancel: Sending,
    resume: Sending,
    prompt: Sending,
    text: RwSignal<String>,
    drafts: Drafts,
}

/// `/chat/:id`
#[component]
pub fn SessionPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.with(|p| p.get_str("id").and_then(|id| SessionId::from_str(id).ok())));
    // One view for each session: no text of one is sent in another.
    move || {
        id.get().map_or_else(
            || {
                super::lost::set_status(404);
                problem::instead(&Failure::not_found("session"))
            },
            one,
        )
    }
}

fn one(id: SessionId) -> AnyView {
    let live = Live::here();
    let query = use_query_map();
    let before = Memo::new(move |_| query.with(|q| q.get("before")));
    let acts = Acts {
        resolve: Sending::to::<ResolveApproval>(),
        cancel: Sending::to::<CancelRun>(),
        resume: Sending::to::<ContinueRun>(),
        prompt: Sending::to::<SendPrompt>(),
        text: RwSignal::new(String::new()),
        drafts: Drafts::new(),
    };
    // The server writes the title after the page's owner may be gone: what it reads
    // must not live in the owner's arena.
    let head = ArcRwSignal::new("Chat".to_owned());
    let title = RwSignal::from(head.clone());
    let done = move || {
        (
            acts.resolve.version().get(),
            acts.cancel.version().get(),
            acts.resume.version().get(),
            acts.prompt.version().get(),
        )
    };
    let known = Last::new();
    let kept = refused_form::<ResolveApproval>();
    let detail = read(
        move || (before.get(), live.sessions.get(), live.approvals.get(), live.workers.get(), done()),
        move |(before, ..)| read_session(id, before),
    );
    // The text goes when it was taken, and stays when it was not.
    Effect::new(move |_| {
        if matches!(acts.prompt.value().get(), Some(Ok(()))) {
            acts.text.set(String::new());
        }
    });
    let refused = move || {
        let cancel = problem::failure(acts.cancel.value().get());
        let resume = problem::failure(acts.resume.value().get());
        let prompt = problem::failure(acts.prompt.value().get());
        view! {
            {decision::refused(acts.resolve, acts.drafts)}
            {problem::note(cancel, "The run was not cancelled.")}
            {problem::note(resume, "The run was not continued.")}
            {problem::note(prompt, "The message was not sent.")}
        }
    };
    view! {
        <Title text=move || head.get()/>
        <section class="pane" aria-label="Transcript">
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    acts.drafts.take_up(kept.await.unwrap_or_default());
                    match known.or_last(detail.await) {
                        Ok(detail) => {
                            title.set(name(&detail.row.title));
                            session(&detail, acts, view! { {refused} }.into_any())
                        }
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
        </section>
    }
    .into_any()
}

fn session(detail: &SessionDetail, acts: Acts, refused: AnyView) -> AnyView {
    let row = &detail.row;
    let agent = &detail.agent;
    let live_run: Option<&RunView> = detail.turns.iter().map(|t| &t.run).find(|run| !run.status.is_over());
    let state = live_run.map(|run| run.status).or(row.status);
    let cancel = live_run.filter(|_| detail.may_prompt).map(|run| {
        view! {
            {post(acts.cancel, "as-one", None, view! {
                <input type="hidden" name="run" value=run.id.to_string()/>
                <button type="submit" class="btn btn--sm">{icon(Icon::Stop, 14)}"Cancel run"</button>
            }.into_any())}
        }
    });
    let mode = mode_title(agent, &agent.mode).to_owned();
    let id = row.id;
    let earlier = detail.earlier.clone().map(|before| {
        view! { <p class="more"><a class="btn btn--sm" href=format!("/chat/{id}?before={before}")>"Earlier turns"</a></p> }
    });
    let private = row.private.then(|| view! { <span class="tag">"Private"</span> });
    let turns = detail.turns.iter().map(|t| turn(t, detail, acts)).collect::<Vec<_>>();
    view! {
        <div class="pane-head pane-head--page">
            <div class="page-head">
                <p class="crumbs phone-only"><a href="/chat">{icon(Icon::Left, 14)}"Chat"</a></p>
                <h1>{name(&row.title)}</h1>
                {state.map(|s| status_small(s, s.label().to_owned()))}
                {private}
                <span class="acts">{cancel}</span>
                <span class="break phone-only"></span>
                <p class="meta whole">
                    {format!("{} on {}{}", agent.name, agent.worker_name, if agent.worker_linked { "" } else { ", not linked" })}
                    <span class="dot"></span>
                    {match agent.asks() {
                        Asks::Never => format!("{mode}, never asks"),
                        Asks::Partly => format!("{mode}, asks for some kinds"),
                        Asks::AsNeeded => mode,
                    }}
                    {agent.asks_everything.then(|| view! { <span class="dot"></span>"asks for everything" })}
                    {agent.waits_for_continue.then(|| view! { <span class="dot"></span>"waits for Continue run" })}
                </p>
            </div>
            {(agent.asks() == Asks::Never).then(never_asks)}
        </div>
        <div class="pane-scroll pane-scroll--end" tabindex="0" role="region" aria-label="Messages">
            <div class="pane-body">
                <div class="turns">
                    {earlier}
                    {turns}
                    {refused}
                    {agent.problem.clone().map(|p| view! {
                        <div class="note" role="note">{icon(Icon::Info, 16)}<p>{p}</p></div>
                    })}
                </div>
            </div>
        </div>
        {composer(detail, acts, live_run.is_some())}
    }
    .into_any()
}

/// Said for as long as it is so, where people talk to the agent.
fn never_asks() -> AnyView {
    view! {
        <p class="status status--sm status--fail status--wrap">
            {icon(Icon::Fail, 14)}"This agent never asks: nobody can stop what it does before it is done."
        </p>
    }
    .into_any()
}

fn composer(detail: &SessionDetail, acts: Acts, busy: bool) -> AnyView {
    if !detail.may_prompt {
        return view! { <div class="composer"><p class="meta">"You can read this session, not write in it."</p></div> }
            .into_any();
    }
    view! {
        <div class="composer">
            {post(acts.prompt, "", Some("Message".to_owned()), view! {
                <input type="hidden" name="session" value=detail.row.id.to_string()/>
                <label class="vh" for="prompt">{format!("Message to {}", detail.agent.name)}</label>
                {composer_field("prompt", "Message", acts.text)}
                <div class="acts">
                    {busy.then(|| view! { <span class="meta">"The next message waits until this run is over."</span> })}
                    {composer_hints()}
                    {send_button()}
                </div>
            }.into_any())}
        </div>
    }
    .into_any()
}

fn turn(turn: &Turn, detail: &SessionDetail, acts: Acts) -> AnyView {
    let run = &turn.run;
    let left_out = (turn.left_out > 0).then(|| {
        view! { <p class="meta">{format!("{} before this are left out.", counted(turn.left_out, "entry", "entries"))}</p> }
    });
    view! {
        <article class="turn turn--me" aria-label="Message">
            <header><b>{run.by.clone()}</b>{time(run.created_at, Shape::Full)}</header>
            <div class="say">{plain(&run.prompt)}</div>
        </article>
        <article class="turn" aria-label="Run">
            <header><b>{detail.agent.name.clone()}</b>{run.ended_at.map(|at| time(at, Shape::Full))}</header>
            {left_out}
            {items(turn, detail, acts)}
            {ending(run)}
        </article>
    }
    .into_any()
}

/// How a run stands, where that is more than what was said.
fn ending(run: &RunView) -> AnyView {
    let detail = run.detail.clone().map(|text| view! { <span class="meta">{plain(&text)}</span> });
    let word = match run.status {
        RunStatus::Completed if run.detail.is_none() => {
            return view! { <p class="ending">{status_small(run.status, "Done".into())}</p> }.into_any();
        }
        RunStatus::Paused => return unconfirmed(run),
        status => status.label().to_owned(),
    };
    view! {
        <p class="ending">{status_small(run.status, word)}{detail}</p>
        {unconfirmed(run)}
    }
    .into_any()
}

fn unconfirmed(run: &RunView) -> AnyView {
    if !run.stop_unconfirmed {
        return ().into_any();
    }
    view! {
        <p class="ending">
            {status_small(Status { icon: Icon::Unknown, tone: "wait", word: "" }, "Stop not yet confirmed".into())}
            <span class="meta">"The worker is told as soon as it is linked."</span>
        </p>
    }
    .into_any()
}

/// What happened in a run, in order. Calls that follow each other share a box, and so
/// do requests.
fn items(turn: &Turn, detail: &SessionDetail, acts: Acts) -> Vec<AnyView> {
    let results: HashMap<&str, (&str, bool, u64)> = turn
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Event { body: EventBody::Returned { call_id, output, is_error, left_out }, .. } => {
                Some((call_id.as_str(), (output.as_str(), *is_error, *left_out)))
            }
            _ => None,
        })
        .collect();
    let last_request = turn.items.iter().rposition(|item| matches!(item, Item::Approval { .. }));
    let mut out = Vec::new();
    let mut calls: Vec<AnyView> = Vec::new();
    let mut asked: Vec<&ApprovalDetail> = Vec::new();
    let flush_calls = |calls: &mut Vec<AnyView>, out: &mut Vec<AnyView>| {
        if !calls.is_empty() {
            let calls = std::mem::take(calls);
            out.push(view! { <div class="calls">{calls}</div> }.into_any());
        }
    };
    for (i, item) in turn.items.iter().enumerate() {
        match item {
            Item::Approval { approval } => {
                flush_calls(&mut calls, &mut out);
                asked.push(approval);
                let more = turn.items[i + 1..]
                    .iter()
                    .find(|next| !is_silent(next))
                    .is_some_and(|next| matches!(next, Item::Approval { .. }));
                if !more {
                    let whole = std::mem::take(&mut asked);
                    let last = turn.items[i + 1..].iter().all(|n| !matches!(n, Item::Approval { .. }));
                    debug_assert!(!last || last_request.is_some());
                    out.push(requests(&whole, &turn.run, last, detail, acts));
                }
            }
            Item::Event { body, .. } => match body {
                EventBody::Called { call_id, tool, summary, input, sub_agent } => {
                    calls.push(call(
                        tool,
                        summary,
                        input,
                        sub_agent.as_deref(),
                        results.get(call_id.as_str()).copied(),
                    ));
                }
                EventBody::Thought { text } => calls.push(thought(text)),
                EventBody::Said { text, sub_agent } => {
                    flush_calls(&mut calls, &mut out);
                    out.push(
                        view! {
                            {sub_agent.clone().map(|sub| view! { <p class="meta">{format!("Sub-agent {}", name(&sub))}</p> })}
                            <div class="say">{plain(text)}</div>
                        }
                        .into_any(),
                    );
                }
                EventBody::Notice { text, alarm } => {
                    flush_calls(&mut calls, &mut out);
                    out.push(notice(text, *alarm));
                }
                EventBody::Mode { mode } => {
                    flush_calls(&mut calls, &mut out);
                    let mode = mode_title(&detail.agent, mode);
                    out.push(
                        view! { <p class="meta">{format!("Permission mode: {}", name(mode))}</p> }.into_any(),
                    );
                }
                EventBody::Background { tasks } if !tasks.is_empty() => {
                    flush_calls(&mut calls, &mut out);
                    out.push(background(tasks));
                }
                EventBody::Background { .. }
                | EventBody::Started { .. }
                | EventBody::Returned { .. }
                | EventBody::Ended { .. } => {}
            },
        }
    }
    flush_calls(&mut calls, &mut out);
    out
}

/// Items that draw nothing of their own.
fn is_silent(item: &Item) -> bool {
    let Item::Event { body, .. } = item else { return false };
    match body {
        EventBody::Started { .. } | EventBody::Returned { .. } | EventBody::Ended { .. } => true,
        EventBody::Background { tasks } => tasks.is_empty(),
        _ => false,
    }
}

/// What goes on after the agent has ended its turn.
fn background(tasks: &[String]) -> AnyView {
    let tasks = tasks.iter().map(|task| name(task)).collect::<Vec<_>>().join("; ");
    view! {
        <p class="meta who">{icon(Icon::Running, 14)}{format!("Work goes on in the background: {tasks}. It may still ask.")}</p>
    }
    .into_any()
}

/// A permission mode as the harness's title for it, where that is known.
fn mode_title<'a>(agent: &'a AgentView, mode: &'a str) -> &'a str {
    agent.modes.iter().find(|m| m.id == mode).map_or(mode, |m| m.title.as_str())
}

fn call(
    tool: &str,
    summary: &str,
    input: &str,
    sub_agent: Option<&str>,
    result: Option<(&str, bool, u64)>,
) -> AnyView {
    let state = match result {
        None => "no result yet",
        Some((_, true, _)) => "failed or refused",
        Some((_, false, _)) => "done",
    };
    let left_out = result.map_or(0, |(_, _, n)| n);
    view! {
        <details class="call">
            <summary>
                {icon(Icon::Right, 14)}
                <b>{name(tool)}</b>
                <code>{name(summary)}</code>
                <span>{state}</span>
            </summary>
            {sub_agent.map(|sub| view! { <p class="meta call-label">{format!("By sub-agent {}", plain(sub))}</p> })}
            <p class="meta call-label">"Input"</p>
            <pre>{plain(input)}</pre>
            {result.map(|(output, ..)| view! {
                <p class="meta call-label">"Result"</p>
                <pre>{plain(output)}</pre>
            })}
            {(left_out > 0).then(|| view! { <p class="meta call-label">{format!("{} more are left out.", counted(left_out, "byte", "bytes"))}</p> })}
        </details>
    }
    .into_any()
}

fn thought(text: &str) -> AnyView {
    view! {
        <details class="call">
            <summary>{icon(Icon::Right, 14)}<b>"Thought"</b><span class="trunc">"the agent’s own account"</span><span></span></summary>
            <pre>{plain(text)}</pre>
        </details>
    }
    .into_any()
}

fn notice(text: &str, alarm: bool) -> AnyView {
    if alarm {
        view! { <div class="note note--danger" role="note">{icon(Icon::Fail, 16)}<p>{plain(text)}</p></div> }
            .into_any()
    } else {
        view! { <p class="meta">{plain(text)}</p> }.into_any()
    }
}

/// Requests that came one after the other: decided ones in a line or two, open ones
/// with the same card and the same bar as in the inbox.
fn requests(
    asked: &[&ApprovalDetail],
    run: &RunView,
    last: bool,
    detail: &SessionDetail,
    acts: Acts,
) -> AnyView {
    let open = asked.iter().filter(|a| a.row.status == ApprovalStatus::Pending).collect::<Vec<_>>();
    let paused = run.status == RunStatus::Paused && last;
    let back = format!("/chat/{}", detail.row.id);
    let head = (paused || !open.is_empty()).then(|| {
        let soonest = open.iter().min_by_key(|a| a.row.left_ms).map(|a| clock(a.row.left_ms, a.timeout_ms));
        // Requests asked at once can stand apart, with calls between them.
        let elsewhere = u64::from(run.open_approvals).saturating_sub(open.len() as u64);
        let all = counted(asked.len() as u64, "request", "requests");
        let here = if open.is_empty() {
            "all decided".to_owned()
        } else if open.len() == asked.len() {
            format!("{all} open")
        } else {
            format!("{} of {all} open", open.len())
        };
        let word = if elsewhere > 0 { format!("{here}, {elsewhere} more above or below") } else { here };
        view! {
            <header>
                {status_small(ApprovalStatus::Pending, "Run paused".into())}
                <span class="meta">{word}</span>
                {soonest}
            </header>
        }
    });
    let each = asked
        .iter()
        .map(|a| if a.row.status == ApprovalStatus::Pending { pending(a, acts, &back) } else { settled(a) })
        .collect::<Vec<_>>();
    let class = if open.is_empty() && !paused { "paused paused--over" } else { "paused" };
    view! {
        <section class=class aria-label="Requests">
            {head}
            {each}
            {paused.then(|| footer(run, detail, acts))}
        </section>
    }
    .into_any()
}

fn footer(run: &RunView, detail: &SessionDetail, acts: Acts) -> AnyView {
    if !detail.agent.waits_for_continue && run.held_decisions == 0 {
        return ().into_any();
    }
    let ready = run.held_decisions > 0 && run.open_approvals == 0;
    let say = if ready {
        format!(
            "Continue run hands {} to the same run.",
            counted(u64::from(run.held_decisions), "decision", "decisions")
        )
    } else if run.held_decisions > 0 {
        "Decide the open requests first. Then Continue run hands all decisions to the same run.".to_owned()
    } else {
        "After the decision, Continue run hands it to the same run.".to_owned()
    };
    let id = format!("continue-{}", run.id);
    let button = detail.may_prompt.then(|| {
        if ready {
            view! {
                {post(acts.resume, "as-one", None, view! {
                    <input type="hidden" name="run" value=run.id.to_string()/>
                    <button type="submit" class="btn btn--primary">{icon(Icon::Play, 14)}"Continue run"</button>
                }.into_any())}
            }
            .into_any()
        } else {
            view! {
                <button type="button" class="btn" aria-disabled="true" aria-describedby=id.clone()>
                    {icon(Icon::Play, 14)}"Continue run"
                </button>
            }
            .into_any()
        }
    });
    view! { <footer><p class="meta" id=id.clone()>{say}</p>{button}</footer> }.into_any()
}

fn pending(a: &ApprovalDetail, acts: Acts, back: &str) -> AnyView {
    let beside = view! {
        <span>{a.fingerprint.words.clone()}</span>
        <span class="dot"></span>
        <a href=format!("/approvals/{}", a.row.id)>"Details"</a>
    };
    view! {
        <section aria-label=a.action.kind.heading()>
            {a.row.sub_agent.as_ref().map(|sub| view! {
                <p class="meta who">{icon(Icon::Agents, 14)}{format!("Sub-agent “{}” asks.", name(sub))}</p>
            })}
            {request::request(a, acts.resolve, acts.drafts, Some(back), false, beside.into_any())}
            {super::approval::quoted(a)}
            {decision::offered(a, acts.resolve, acts.drafts, Some(back))}
            {decision::bar(a, acts.resolve, acts.drafts, Some(back))}
        </section>
    }
    .into_any()
}

fn settled(a: &ApprovalDetail) -> AnyView {
    let row = &a.row;
    let of = Status::of_row(row);
    let word = match &row.decided_by {
        Some(by) => format!("{} by {by}", of.word),
        None => of.word.to_owned(),
    };
    let message = a
        .receipt
        .as_ref()
        .filter(|r| r.by.is_some())
        .and_then(|r| r.message.as_ref())
        .map(|m| view! { <p class="meta">{format!("“{}”", plain(m))}</p> });
    let answers = question::answered(a);
    // The answers below name the questions.
    let what = answers.is_none().then(|| {
        view! { <span><code>{format!("{} {}", row.tool, name(&row.title))}</code></span> }
    });
    let instead = request::instead(a).map(|(label, edited)| {
        view! {
            <p class="meta">{format!("{label}:")}</p>
            {action::card(edited, false, ().into_any())}
        }
    });
    view! {
        <section>
            <div class="decided">
                <p class="l">
                    {status_small(of, word)}
                    {row.sub_agent.as_ref().map(|sub| view! { <span class="meta">{format!("for sub-agent “{}”", name(sub))}</span> })}
                    {what}
                    <span class="meta"><a href=format!("/approvals/{}", row.id)>"Details"</a></span>
                </p>
                {message}
                {answers}
                {decision::granted(a)}
                {instead}
                {a.closed_reason.clone().map(|why| view! { <p class="meta">{why}</p> })}
                {receipt::receipt_line(a)}
                {receipt::advice(a)}
            </div>
        </section>
    }
    .into_any()
}
