//! The form that changes an agent.
//!
//! A mode that never asks is marked before it is saved, and is taken only with the box
//! that says it is meant.

use std::collections::HashMap;

use domain::{
    agent::{AgentView, Asks},
    approval::HITL_TIMEOUT_RANGE_S,
    failure::Failure,
    id::AgentId,
};
use leptos::prelude::*;

use super::{
    icon::{Icon, icon},
    plain::length,
    post::{Sending, post},
    problem,
};
use crate::{
    api::form::{self, Fields},
    browser,
    live::Live,
};

/// The forms that change agents.
#[derive(Clone, Copy)]
pub struct Forms {
    edit: Sending,
    /// Whose form was sent last: its failure is told in it too.
    sent: RwSignal<Option<AgentId>>,
    /// The modes chosen in forms, kept over a redraw.
    chosen: StoredValue<HashMap<AgentId, Chosen>>,
}

/// A mode chosen in a form: none while the field was not touched.
#[derive(Clone, Default)]
struct Chosen {
    mode: ArcRwSignal<Option<String>>,
    /// The box is ticked that says a mode which never asks is meant.
    meant: ArcRwSignal<bool>,
}

impl Forms {
    pub fn new(edit: Sending) -> Self {
        Self { edit, sent: RwSignal::new(None), chosen: StoredValue::new(HashMap::new()) }
    }

    /// The mode chosen in an agent's form.
    fn chosen_of(self, id: AgentId) -> Chosen {
        self.chosen.try_update_value(|all| all.entry(id).or_default().clone()).unwrap_or_default()
    }

    /// What is wrong with one field of an agent's form.
    fn wrong(self, id: AgentId, field: &str) -> Option<String> {
        match problem::failure(self.edit.value().get())? {
            Failure::Invalid { field: wrong, message } if wrong == field && self.sent.get() == Some(id) => {
                Some(message)
            }
            _ => None,
        }
    }
}

/// A failure that names its field as the form does.
pub fn named(failure: Failure) -> Failure {
    let Failure::Invalid { field, message } = failure else { return failure };
    let label = match field.as_str() {
        "name" => "Name: ",
        "folder" => "Folder: ",
        "mode" => "Permission mode: ",
        "asks_everything" => "Ask for everything: ",
        "hitl_timeout_s" => "Time to answer: ",
        _ => "",
    };
    Failure::invalid(&field, &format!("{label}{message}"))
}

/// How often a mode asks, after its title.
const fn how_often(asks: Asks) -> &'static str {
    match asks {
        Asks::AsNeeded => "asks whenever it needs permission",
        Asks::Partly => "some kinds of calls run without asking",
        Asks::Never => "never asks",
    }
}

/// How a text field of the form differs from others.
#[derive(Clone, Copy, Default)]
struct Text {
    mono: bool,
    required: bool,
    most: Option<&'static str>,
    pattern: Option<&'static str>,
    /// The range of a number.
    range: Option<(i64, i64)>,
}

/// One agent's form.
struct Form<'a> {
    agent: &'a AgentView,
    forms: Forms,
}

impl Form<'_> {
    fn at(&self, field: &str) -> String {
        format!("{field}-{}", self.agent.id)
    }

    /// Whether the field is marked as wrong.
    fn invalid(&self, name: &'static str) -> impl Fn() -> Option<&'static str> + Send + 'static {
        let (id, forms) = (self.agent.id, self.forms);
        move || forms.wrong(id, name).map(|_| "true")
    }

    fn text(&self, name: &'static str, value: String, of: Text) -> AnyView {
        let Text { mono, required, most, pattern, range } = of;
        view! {
            <input
                class=if mono { "input input--mono" } else { "input" }
                id=self.at(name)
                name=name
                type=if range.is_some() { "number" } else { "text" }
                value=value
                required=required
                maxlength=most
                pattern=pattern
                min=range.map(|(min, _)| min.to_string())
                max=range.map(|(_, max)| max.to_string())
                spellcheck="false"
                aria-describedby=format!("{}-help", self.at(name))
                aria-invalid=self.invalid(name)
            />
        }
        .into_any()
    }

    /// A field: its label, its control, what is wrong with it, what there is to know.
    fn field(
        &self,
        name: &'static str,
        label: &'static str,
        wide: bool,
        control: AnyView,
        help: String,
    ) -> AnyView {
        view! {
            <div class=if wide { "field field--wide" } else { "field" }>
                <label for=self.at(name)>{label}</label>
                {control}
                {self.told(name, help)}
            </div>
        }
        .into_any()
    }

    fn told(&self, name: &'static str, help: String) -> AnyView {
        let (id, forms) = (self.agent.id, self.forms);
        // Beside the field as soon as the page answers; at the head of the page without script.
        let error = move || {
            forms.wrong(id, name).map(|message| {
                view! { <p class="field-error">{icon(Icon::Fail, 14)}<span>{message}</span></p> }
            })
        };
        let at = format!("{}-help", self.at(name));
        view! { {error} {(!help.is_empty()).then(|| view! { <p class="help" id=at>{help}</p> })} }.into_any()
    }

    fn tick(&self, name: &'static str, label: &'static str, on: bool, help: &str) -> AnyView {
        view! {
            <div class="field">
                <label class="check">
                    <input
                        type="checkbox"
                        name=name
                        checked=on
                        aria-describedby=format!("{}-help", self.at(name))
                        aria-invalid=self.invalid(name)
                    />
                    <span>{label}</span>
                </label>
                {self.told(name, help.to_owned())}
            </div>
        }
        .into_any()
    }

    fn modes(&self, chosen: Chosen) -> AnyView {
        let agent = self.agent;
        let mut modes: Vec<(String, String)> = agent
            .modes
            .iter()
            .map(|mode| match how_often(mode.asks) {
                // Some titles say so themselves.
                how if mode.title.ends_with(how) || mode.title.starts_with("Never asks") => {
                    (mode.id.clone(), mode.title.clone())
                }
                how => (mode.id.clone(), format!("{} ({how})", mode.title)),
            })
            .collect();
        if !agent.modes.iter().any(|m| m.id == agent.mode) {
            modes.push((agent.mode.clone(), format!("{}: not offered", agent.mode)));
        }
        let options = modes
            .into_iter()
            .map(|(id, words)| view! { <option value=id.clone() selected=id == agent.mode>{words}</option> })
            .collect::<Vec<_>>();
        view! {
            <select
                class="select"
                id=self.at("mode")
                name="mode"
                aria-describedby=format!("{}-help", self.at("mode"))
                aria-invalid=self.invalid("mode")
                on:change=move |ev| {
                    chosen.mode.set(Some(event_target_value(&ev)));
                    // Another choice is not what was confirmed.
                    chosen.meant.set(false);
                }
            >{options}</select>
        }
        .into_any()
    }
}

/// The agent as its form shows it: with what was typed, where that came back refused.
fn typed(agent: &AgentView, kept: &Fields) -> Option<AgentView> {
    form::field(kept, "id").filter(|id| *id == agent.id.to_string())?;
    let text = |name: &str| form::field(kept, name).unwrap_or_default().to_owned();
    Some(AgentView {
        name: text("name"),
        folder: text("folder"),
        mode: text("mode"),
        hitl_timeout_s: text("hitl_timeout_s").parse().unwrap_or(agent.hitl_timeout_s),
        asks_everything: form::field(kept, "asks_everything").is_some(),
        waits_for_continue: form::field(kept, "waits_for_continue").is_some(),
        ..agent.clone()
    })
}

/// The form, closed until it is opened. `kept` is what came back refused.
pub fn agent_form(stored: &AgentView, forms: Forms, kept: &Fields) -> AnyView {
    let typed = typed(stored, kept);
    let came_back = typed.is_some();
    let agent = typed.as_ref().unwrap_or(stored);
    let form = Form { agent, forms };
    let id = agent.id;
    let chosen = forms.chosen_of(id);
    if came_back && chosen.mode.with_untracked(Option::is_none) {
        chosen.mode.set(Some(agent.mode.clone()));
    }
    let never: Vec<(String, String)> = agent
        .modes
        .iter()
        .filter(|m| m.asks == Asks::Never)
        .map(|m| (m.id.clone(), m.title.clone()))
        .collect();
    let titles = never.iter().map(|(_, title)| format!("“{title}”")).collect::<Vec<_>>().join(" and ");
    let modes_help = match never.len() {
        0 => "Every mode of this harness asks.".to_owned(),
        1 => format!("{titles} never asks: nobody can stop what the agent does."),
        _ => format!("Nobody is asked, and nobody can stop what the agent does, in {titles}."),
    };
    let time_help = format!(
        "Now {}. From 10 s to 7 days. After that the request is refused as unanswered.",
        length(stored.hitl_timeout_s)
    );
    let name =
        form.text("name", agent.name.clone(), Text { required: true, most: Some("64"), ..Text::default() });
    // The browser holds back what is no whole path, so that nothing is lost without script.
    let folder = form.text(
        "folder",
        agent.folder.clone(),
        Text { mono: true, most: Some("4096"), pattern: Some("/.*"), ..Text::default() },
    );
    let time = form.text(
        "hitl_timeout_s",
        agent.hitl_timeout_s.to_string(),
        Text {
            required: true,
            range: Some((*HITL_TIMEOUT_RANGE_S.start(), *HITL_TIMEOUT_RANGE_S.end())),
            ..Text::default()
        },
    );
    let fields = vec![
        form.field("name", "Name", false, name, "What people choose it by.".to_owned()),
        form.field(
            "folder",
            "Folder",
            false,
            folder,
            "The whole path on the worker’s machine, from / on. Empty: the harness’s own.".to_owned(),
        ),
        form.field("hitl_timeout_s", "Time to answer, in seconds", false, time, time_help),
        form.field("mode", "Permission mode", true, form.modes(chosen.clone()), modes_help),
    ];
    let mut below = Vec::new();
    if !never.is_empty() {
        let ids: Vec<String> = never.into_iter().map(|(id, _)| id).collect();
        below.push(never_asks(stored, &ids, chosen));
    }
    if agent.can_ask_everything || agent.asks_everything {
        below.push(form.tick(
            "asks_everything",
            "Ask for everything",
            agent.asks_everything,
            "Also for reads and harmless commands that the harness would run by itself.",
        ));
    }
    below.push(form.tick(
        "waits_for_continue",
        "Wait for Continue run after a decision",
        agent.waits_for_continue,
        "A decision then goes to the run only when somebody presses Continue run.",
    ));
    let title = format!("Edit {}", stored.name);
    view! {
        <details class="edit" id=form.at("edit") open=came_back on:submit=move |_| forms.sent.set(Some(id))>
            <summary>{icon(Icon::Right, 14)}{title.clone()}</summary>
            {post(forms.edit, "form", Some(title), view! {
                <input type="hidden" name="id" value=agent.id.to_string()/>
                <div class="form-2">{fields}</div>
                {below}
                <p><button type="submit" class="btn btn--primary">"Save"</button><span class="meta">" Takes effect with the next message."</span></p>
            }.into_any())}
        </details>
    }
    .into_any()
}

/// The warning before a mode that never asks is saved, and the box that says it is meant.
/// Without script it is always there; with script where such a mode is chosen.
fn never_asks(agent: &AgentView, ids: &[String], chosen: Chosen) -> AnyView {
    let hydrated = Live::here().hydrated;
    let Chosen { mode, meant } = chosen;
    let ids = ids.to_vec();
    let (name, standing) = (agent.name.clone(), agent.asks() == Asks::Never);
    let picked = {
        let mode = mode.clone();
        move || mode.with(|mode| mode.as_ref().map_or(standing, |mode| ids.contains(mode)))
    };
    let saved = agent.mode.clone();
    let changed = move || mode.with(|mode| mode.as_ref().is_some_and(|mode| *mode != saved));
    let drawn = meant.clone();
    let warned = {
        let picked = picked.clone();
        move || hydrated.get() && picked()
    };
    let words = if standing {
        format!("{name} is in a mode that never asks. Nobody can stop what it does before it is done.")
    } else {
        format!("In this mode {name} never asks. Nobody can stop what it does before it is done.")
    };
    view! {
        <div class="note note--danger" role="status" hidden=move || (!standing || hydrated.get()) && !warned()>
            {icon(Icon::Fail, 16)}<p><b>"Never asks."</b>" "{words}</p>
        </div>
        <div class="field" hidden=move || hydrated.get() && !(picked() && changed())>
            <label class="check">
                <input
                    type="checkbox"
                    name="never_asks_confirmed"
                    prop:checked=move || hydrated.get().then(|| drawn.get())
                    on:change=move |ev| meant.set(browser::ticked(&ev))
                />
                <span>"I mean this: nobody is asked, and nobody can stop what it does"</span>
            </label>
            <p class="help">"Needed for a mode that never asks."</p>
        </div>
    }
    .into_any()
}
