//! Agents & workers: who people talk to, when each must ask, and the processes beside
//! them.

use domain::{
    agent::{AgentView, Asks},
    user::Role,
    worker::{HarnessOffer, WorkerView},
};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::{
    api::{
        agent::{EditAgent, list_agents},
        form::{Fields, refused_form},
        place::read_made,
        worker::{CreateWorker, RevokeWorker, list_workers},
    },
    components::{
        agent::{Forms, agent_form, named},
        empty::loading,
        frame::Here,
        icon::{Icon, icon},
        last::Last,
        made::made,
        plain::{counted, length},
        post::{Sending, post},
        problem,
        read::read,
        status::{Status, status},
        time::{Shape, time},
    },
    live::Live,
};

/// `/agents`
#[component]
pub fn AgentsPage() -> impl IntoView {
    let live = Live::here();
    let place = Here::place();
    let edit = Sending::to::<EditAgent>();
    let forms = Forms::new(edit);
    let kept = refused_form::<EditAgent>();
    let create = Sending::to::<CreateWorker>();
    let revoke = Sending::to::<RevokeWorker>();
    let last_agents = Last::new();
    let last_workers = Last::new();
    let agents = read(
        move || (live.agents.get(), live.workers.get(), live.approvals.get(), edit.version().get()),
        |_| list_agents(),
    );
    let workers = read(
        move || (live.workers.get(), live.approvals.get(), create.version().get(), revoke.version().get()),
        |_| list_workers(),
    );
    // Read for admins only; others would be refused.
    let secret = read(
        move || create.version().get(),
        move |_| async move { if Here::may(place, Role::Admin).await { read_made().await } else { Ok(None) } },
    );
    view! {
        <Title text="Agents & workers"/>
        <div class="page">
            <header class="page-head"><h1>"Agents & workers"</h1></header>
            {move || problem::note(problem::failure(edit.value().get()).map(named), "The agent was not changed.")}
            {move || problem::note(problem::failure(create.value().get()), "No token was made.")}
            {move || problem::note(problem::failure(revoke.value().get()), "The token was not revoked.")}
            <section class="section" aria-labelledby="agents">
                <div class="section-head">
                    <h2 id="agents">"Agents"</h2>
                    <span class="meta">"Who people talk to, and when each one must ask"</span>
                </div>
                <Transition fallback=loading>
                    {move || Suspend::new(async move {
                        let admin = Here::may(place, Role::Admin).await;
                        let kept = kept.await.unwrap_or_default();
                        match last_agents.or_last(agents.await) {
                            Ok(agents) => agent_table(&agents, admin, forms, &kept),
                            Err(failed) => problem::instead(&failed.0),
                        }
                    })}
                </Transition>
            </section>
            <section class="section" aria-labelledby="workers">
                <div class="section-head">
                    <h2 id="workers">"Workers"</h2>
                    <span class="meta">"Processes beside the agents. They carry decisions and cannot make one."</span>
                </div>
                <Transition fallback=loading>
                    {move || Suspend::new(async move {
                        let admin = Here::may(place, Role::Admin).await;
                        match last_workers.or_last(workers.await) {
                            Ok(workers) => worker_table(&workers, admin, revoke),
                            Err(failed) => problem::instead(&failed.0),
                        }
                    })}
                </Transition>
                <div class="note" role="note">
                    {icon(Icon::Info, 16)}
                    <p>
                        <b>"Run each harness under a user of its own."</b>
                        " An approved program that runs as the same user of the system as the harness can tamper with the harness itself."
                    </p>
                </div>
            </section>
            <Transition>
                {move || Suspend::new(async move {
                    Here::may(place, Role::Admin).await.then(|| new_worker(create))
                })}
            </Transition>
            <Transition>
                {move || Suspend::new(async move { secret.await.ok().flatten().map(made) })}
            </Transition>
        </div>
    }
}

fn asks_words(agent: &AgentView) -> AnyView {
    let title = agent.modes.iter().find(|m| m.id == agent.mode).map(|m| m.title.clone());
    match agent.asks() {
        Asks::Never => view! {
            {status(Status { icon: Icon::Fail, tone: "fail", word: "Never asks" })}
            <span class="meta">{title.unwrap_or_else(|| agent.mode.clone())}</span>
        }
        .into_any(),
        asks => {
            let how = match (agent.asks_everything, asks) {
                (true, _) => "Asks for everything",
                (false, Asks::Partly) => "Some kinds of calls run without asking",
                (false, _) => "Asks whenever it needs permission",
            };
            view! { <span>{title.unwrap_or_else(|| agent.mode.clone())}</span><span class="meta">{how}</span> }.into_any()
        }
    }
}

fn agent_state(agent: &AgentView) -> AnyView {
    if agent.waiting > 0 {
        return view! {
            <span class="status status--wait">{icon(Icon::Waiting, 16)}{format!("{} waiting", agent.waiting)}</span>
        }
        .into_any();
    }
    if agent.problem.is_some() || !agent.worker_linked {
        return status(Status { icon: Icon::Off, tone: "off", word: "Not ready" });
    }
    status(Status { icon: Icon::Ok, tone: "ok", word: "Ready" })
}

fn agent_table(agents: &[AgentView], admin: bool, forms: Forms, kept: &Fields) -> AnyView {
    if agents.is_empty() {
        return view! { <p class="meta">"None yet. An agent appears when a worker that offers one links for the first time."</p> }
            .into_any();
    }
    let rows = agents
        .iter()
        .map(|agent| {
            let folder = if agent.folder.is_empty() { "the harness’s own".to_owned() } else { agent.folder.clone() };
            view! {
                <tr>
                    <td class="lead"><span class="name">{agent.name.clone()}</span></td>
                    <td data-th="Harness">{agent.harness_title.clone()}</td>
                    <td data-th="Worker">{agent.worker_name.clone()}</td>
                    <td data-th="Folder"><code>{folder}</code></td>
                    <td data-th="Asks"><span>{asks_words(agent)}</span></td>
                    <td class="r" data-th="Answer in">
                        <span>{length(agent.hitl_timeout_s)}{agent.waits_for_continue.then(|| view! { <span class="meta">"waits for Continue run"</span> })}</span>
                    </td>
                    <td class="end">
                        <span>{agent_state(agent)}{agent.problem.clone().map(|p| view! { <span class="meta">{p}</span> })}</span>
                    </td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    let edits = admin.then(|| {
        let edits = agents.iter().map(|a| agent_form(a, forms, kept)).collect::<Vec<_>>();
        view! { <div class="edits">{edits}</div> }
    });
    view! {
        <div class="tablewrap">
            <table class="table table--cards">
                <thead>
                    <tr>
                        <th scope="col">"Agent"</th>
                        <th scope="col">"Harness"</th>
                        <th scope="col">"Worker"</th>
                        <th scope="col">"Folder"</th>
                        <th scope="col">"Asks"</th>
                        <th scope="col" class="r">"Time to answer"</th>
                        <th scope="col">"State"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        {edits}
    }
    .into_any()
}

/// What a harness offers, as words.
fn offers(offer: &HarnessOffer) -> String {
    let can = &offer.capabilities;
    let permissions = can.permissions.as_ref();
    let words = [
        (permissions.is_some_and(|p| p.native), "permissions"),
        (permissions.is_some_and(|p| p.held), "held over a restart"),
        (permissions.is_some_and(|p| p.updated_input), "changed actions"),
        (permissions.is_some_and(|p| p.message), "words of a refusal"),
        (permissions.is_some_and(|p| p.session_grants), "rules until it ends"),
        (permissions.is_some_and(|p| p.everything), "asking for everything"),
        (can.questions.is_some(), "questions"),
        (can.cancel.is_some(), "cancel"),
        (can.resume.is_some(), "resume"),
        (can.journal.is_some(), "journal"),
        (can.steer.is_some(), "steer"),
    ]
    .into_iter()
    .filter_map(|(there, word)| there.then_some(word))
    .collect::<Vec<_>>();
    let what = if words.is_empty() { "nothing beyond a prompt".to_owned() } else { words.join(", ") };
    format!("{} {}: {what}", offer.title, offer.version)
}

fn worker_link(worker: &WorkerView) -> AnyView {
    let state = if worker.revoked {
        Status { icon: Icon::Cancelled, tone: "off", word: "Revoked" }
    } else if worker.linked {
        Status { icon: Icon::Linked, tone: "live", word: "Linked" }
    } else {
        Status { icon: Icon::Off, tone: "off", word: "Not linked" }
    };
    let since = match worker.since {
        Some(at) => view! { "since "{time(at, Shape::Full)} }.into_any(),
        None => "has never linked".into_any(),
    };
    let heartbeat = worker
        .heartbeat_ms
        .filter(|_| worker.linked)
        .map(|ms| format!(", heartbeat {} s ago", ms.max(0) / 1000));
    view! { {status(state)}<span class="meta">{since}{heartbeat}</span> }.into_any()
}

fn worker_table(workers: &[WorkerView], admin: bool, revoke: Sending) -> AnyView {
    if workers.is_empty() {
        return view! { <p class="meta">"None yet. Make a token below and start countersign-worker with it."</p> }.into_any();
    }
    let rows = workers
        .iter()
        .map(|worker| {
            let mut lines = worker.offers.iter().map(|o| view! { <span class="line">{offers(o)}{o.problem.clone().map(|p| view! { <span class="meta">{p}</span> })}</span> }.into_any()).collect::<Vec<_>>();
            if lines.is_empty() {
                lines.push(view! { <span class="meta">"not known yet"</span> }.into_any());
            }
            let act = (admin && !worker.revoked).then(|| revoke_button(worker, revoke));
            view! {
                <tr>
                    <td class="lead"><span class="name">{worker.name.clone()}</span></td>
                    <td data-th="Link"><span>{worker_link(worker)}</span></td>
                    <td data-th="Environment">{worker.environment.clone().unwrap_or_else(|| "not known".into())}</td>
                    <td data-th="Version">{worker.version.clone().unwrap_or_else(|| "not known".into())}</td>
                    <td data-th="Offers"><span>{lines}</span></td>
                    <td class="r" data-th="Waiting">{worker.waiting}</td>
                    <td class="end">{act}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    view! {
        <div class="tablewrap">
            <table class="table table--cards">
                <thead>
                    <tr>
                        <th scope="col">"Worker"</th>
                        <th scope="col">"Link"</th>
                        <th scope="col">"Environment"</th>
                        <th scope="col">"Version"</th>
                        <th scope="col">"Offers"</th>
                        <th scope="col" class="r">"Waiting on it"</th>
                        <th scope="col"><span class="vh">"Token"</span></th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

fn revoke_button(worker: &WorkerView, revoke: Sending) -> AnyView {
    let id = format!("revoke-{}", worker.id);
    let name = worker.name.clone();
    let waiting = match worker.waiting {
        0 => String::new(),
        n => format!(" {} on it.", counted(u64::from(n), "request waits", "requests wait")),
    };
    view! {
        <button type="button" class="btn btn--sm btn--danger" popovertarget=id.clone() aria-label=format!("Revoke the token of {name}…")>"Revoke…"</button>
        <div class="dialog" popover="auto" id=id.clone() role="dialog" aria-label=format!("Revoke the token of {name}")>
            <p class="h3">{format!("Revoke the token of {name}?")}</p>
            <p>{format!("Its link closes at once and cannot be made again with this token.{waiting}")}</p>
            {post(revoke, "apart", None, view! {
                <input type="hidden" name="id" value=worker.id.to_string()/>
                <button type="button" class="btn" popovertarget=id.clone() popovertargetaction="hide">"Keep token"</button>
                <button type="submit" class="btn btn--danger-fill">"Revoke token"</button>
            }.into_any())}
        </div>
    }
    .into_any()
}

fn new_worker(create: Sending) -> AnyView {
    view! {
        <section class="section stack narrow" aria-labelledby="connect">
            <h2 id="connect">"Connect a worker on another machine"</h2>
            <p>"A token lets one worker link. It is shown once and cannot decide anything."</p>
            {post(create, "inline-form", Some("New worker token".to_owned()), view! {
                <div class="field">
                    <label for="worker-name">"Name of the worker"</label>
                    <input class="input" id="worker-name" name="name" required maxlength="64" autocomplete="off"/>
                </div>
                <button type="submit" class="btn">{icon(Icon::Plus, 14)}"New worker token"</button>
            }.into_any())}
        </section>
    }
    .into_any()
}
