//! The card of an action: what will run, whole, in order, exactly. Everything in it
//! comes from the stored bytes; the agent's own words never do.

use domain::action::{ActionKind, ActionView, Part, Piece};
use leptos::prelude::*;

use super::{
    icon::{Icon, icon},
    plain::counted,
};
use crate::{browser, live::Live};

/// Commands up to this many characters are drawn word by word, so that a word stays
/// whole where a line wraps. Longer ones and files are drawn line by line.
const WORDS_UP_TO: u64 = 8_000;
/// What a decision on a command does not cover: a script can be swapped while it waits.
const NOT_PINNED: &str = "Its text is checked; files it reads or runs may still change before it runs.";
/// Words longer than this fill the line and break where they must.
const LONG_WORD: usize = 20;

/// The card. `hero` is the size on a page of its own; `beside` stands at the end of
/// the last line.
pub fn card(action: &ActionView, hero: bool, beside: AnyView) -> AnyView {
    let calm = action.findings.is_empty();
    let last = action.parts.len().saturating_sub(1);
    // One part: its button is in the head. Several: each has its own, beside its label.
    let single = match action.parts.as_slice() {
        [part] if part.label.is_none() => Some(part),
        _ => None,
    };
    let mut beside = Some(beside);
    let parts = action
        .parts
        .iter()
        .enumerate()
        .map(|(i, part)| {
            let beside = if i == last { beside.take() } else { None };
            one_part(action, part, hero, i == last, beside)
        })
        .collect::<Vec<_>>();
    // An action without parts still has its place in the head, and its foot.
    let bare = beside.take().map(|beside| {
        let end = if action.kind == ActionKind::Plan { "No text." } else { end_of(action.kind) };
        view! { <div class="action-foot"><span>{end}</span><span>{beside}</span></div> }
    });
    let no_plan = (action.kind == ActionKind::Plan && action.parts.iter().all(|p| p.exact.trim().is_empty()))
        .then(|| {
            let above = if hero { "linked above" } else { "above" };
            view! {
                <p class="action-none">
                    {format!("The agent sent no text of its plan with this request; read it in the conversation {above}.")}
                </p>
            }
        });
    let also = (!action.also.is_empty()).then(|| {
        let lines = action
            .also
            .iter()
            .map(|(name, value)| view! { <dt>{name.clone()}</dt><dd><code>{value.clone()}</code></dd> })
            .collect::<Vec<_>>();
        view! { <dl class="facts action-also" aria-label="Other arguments">{lines}</dl> }
    });
    view! {
        <div class=if calm { "action" } else { "action action--risk" }>
            <div class="action-head">
                <b>{action.tool.clone()}</b>
                {action.place.clone().map(|place| view! { <code>{domain::action::marked(&place)}</code> })}
                {(!action.checked).then(|| view! { <span class="tag tag--dash">"Cannot be checked"</span> })}
                {single.map(|part| view! { <span class="acts">{copy_button(part.exact.clone())}</span> })}
            </div>
            {also}
            {no_plan}
            {parts}
            {bare}
        </div>
    }
    .into_any()
}

fn end_of(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Command => "End of command.",
        ActionKind::Plan => "End of plan.",
        ActionKind::Write => "End of file change.",
        _ => "End of request.",
    }
}

fn one_part(action: &ActionView, part: &Part, hero: bool, last: bool, beside: Option<AnyView>) -> AnyView {
    let by_word = action.kind == ActionKind::Command && part.chars <= WORDS_UP_TO;
    let lines = part
        .lines
        .iter()
        .map(|line| {
            let marked = line.iter().any(|p| matches!(p, Piece::Mark { .. }));
            view! { <span class=if marked { "flag" } else { "" }><span>{pieces(line, by_word)}</span></span> }
        })
        .collect::<Vec<_>>();
    let size = format!(
        "{}, {}.",
        counted(part.lines.len() as u64, "line", "lines"),
        counted(part.chars, "character", "characters")
    );
    let end = match &part.label {
        Some(label) if !last => format!("End of {}. {size}", label.to_lowercase()),
        _ if action.kind == ActionKind::Command => {
            format!("{} {size} {NOT_PINNED}", end_of(action.kind))
        }
        _ => format!("{} {size}", end_of(action.kind)),
    };
    view! {
        <div class="action-part">
            {part.label.clone().map(|label| view! {
                <div class="action-label">{label}<span class="acts">{copy_button(part.exact.clone())}</span></div>
            })}
            <pre class=if hero { "code code--hero" } else { "code" }>{lines}</pre>
            <div class="action-foot"><span>{end}</span>{beside.map(|b| view! { <span>{b}</span> })}</div>
        </div>
    }
    .into_any()
}

/// *Copy* gives the exact text, marks undone. It works after hydration only, and is
/// not there before.
pub fn copy_button(exact: String) -> impl IntoView {
    let hydrated = Live::here().hydrated;
    view! {
        <button
            type="button"
            class="btn btn--quiet btn--icon btn--sm"
            title="Copy exact text"
            aria-label="Copy exact text"
            hidden=move || !hydrated.get()
            on:click=move |_| browser::copy(&exact)
        >
            {icon(Icon::Copy, 16)}
        </button>
    }
}

fn pieces(line: &[Piece], by_word: bool) -> Vec<AnyView> {
    let mut out = Vec::new();
    for piece in line {
        match piece {
            Piece::Mark { code, name } => {
                out.push(view! { <span class="mark" title=name.clone()>{code.clone()}</span> }.into_any());
            }
            Piece::Text { text } if by_word => words(text, &mut out),
            Piece::Text { text } => out.push(view! { <span>{text.clone()}</span> }.into_any()),
        }
    }
    out
}

/// Draws each word as one piece.
fn words(text: &str, out: &mut Vec<AnyView>) {
    for (is_word, text) in split(text) {
        out.push(if is_word {
            let class = if text.trim_start().chars().count() > LONG_WORD { "w w--long" } else { "w" };
            view! { <span class=class>{text.to_owned()}</span> }.into_any()
        } else {
            view! { <span>{text.to_owned()}</span> }.into_any()
        });
    }
}

/// Words and the blanks between them, in order. Blanks that lead stay with their word,
/// so an indent cannot wrap away from it.
fn split(text: &str) -> Vec<(bool, &str)> {
    const BLANKS: [char; 2] = [' ', '\t'];
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start_matches(BLANKS).len();
        let (gap, from) = if out.is_empty() { ("", rest) } else { rest.split_at(blanks) };
        if !gap.is_empty() {
            out.push((false, gap));
        }
        let lead = from.len() - from.trim_start_matches(BLANKS).len();
        let end = from[lead..].find(BLANKS).map_or(from.len(), |i| i + lead);
        let (word, after) = from.split_at(end);
        if !word.is_empty() {
            out.push((true, word));
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::split;

    fn joined(text: &str) -> (String, Vec<String>) {
        let parts = split(text);
        (
            parts.iter().map(|(_, t)| *t).collect(),
            parts.iter().filter(|(w, _)| *w).map(|(_, t)| (*t).to_owned()).collect(),
        )
    }

    #[test]
    fn no_character_of_a_command_is_lost() {
        for text in ["  a  b ", "\tx", " ", "", "one", "a\u{e9}\u{1f600} b\t\tc"] {
            assert_eq!(joined(text).0, text);
        }
    }

    #[test]
    fn an_indent_stays_with_its_word() {
        assert_eq!(joined("  pnpm  run").1, ["  pnpm", "run"]);
    }
}
