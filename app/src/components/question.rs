//! Questions an agent asks: a form while they wait, with their answers once they are
//! decided. The words are the agent's, drawn as text.

use domain::{
    approval::{ApprovalDetail, ApprovalStatus},
    decision::{MESSAGE_MAX, Outcome},
    id::ApprovalId,
    question::Question,
};
use leptos::prelude::*;

use super::{
    action,
    decision::{Resolving, bound},
    draft::{Draft, Drafts, text_area, tick},
    icon::{Icon, icon},
    plain::{lines, name},
    post::post_from,
    problem,
};
use crate::live::Live;

/// The id of the form that answers a request, for the button in the bar.
pub fn form_id(id: ApprovalId) -> String {
    format!("answers-{id}")
}

/// `1 of 2 · Heading, choose one`
fn heading(i: usize, all: usize, question: &Question) -> String {
    let how = match (question.choices.is_empty(), question.multi) {
        (true, _) => "answer in words",
        (false, true) => "choose any",
        (false, false) => "choose one",
    };
    let place = if all > 1 { format!("{} of {all} · ", i + 1) } else { String::new() };
    match question.header.trim() {
        "" => format!("{place}{how}"),
        header => format!("{place}{}, {how}", name(header)),
    }
}

/// The drafts that answer question `i`: choices, and own words.
fn drafts_of(id: ApprovalId, i: usize, question: &Question, drafts: Drafts) -> Vec<Draft> {
    let mut all = vec![drafts.of(id, &format!("own[q{i}]"), "")];
    if question.multi {
        all.extend((0..question.choices.len()).map(|c| drafts.of(id, &format!("picks[q{i}c{c}]"), "")));
    } else {
        all.push(drafts.of(id, &format!("picks[q{i}]"), ""));
    }
    all
}

/// How many are answered, once the page follows what is typed.
pub fn count(detail: &ApprovalDetail, drafts: Drafts) -> AnyView {
    let hydrated = Live::here().hydrated;
    let all = detail.questions.len();
    let each: Vec<_> = detail
        .questions
        .iter()
        .enumerate()
        .map(|(i, question)| drafts_of(detail.row.id, i, question, drafts))
        .collect();
    let words = move || {
        if !hydrated.get() {
            return "Every question needs an answer.".to_owned();
        }
        // One that is filled is followed until it is not; before that all are.
        let filled = |field: &Draft| field.text.with(|text| !text.trim().is_empty());
        let answered = |fields: &&Vec<Draft>| fields.iter().any(filled);
        format!("{} of {all} answered.", each.iter().filter(answered).count())
    };
    view! { <span>{words}</span> }.into_any()
}

/// The questions of a request: to be answered where the caller may, to be read otherwise.
/// `beside` stands under them.
pub fn questions(
    detail: &ApprovalDetail,
    resolve: Resolving,
    drafts: Drafts,
    back: Option<&str>,
    beside: AnyView,
) -> AnyView {
    let open = detail.row.status == ApprovalStatus::Pending && detail.may_decide;
    let all = detail.questions.len();
    let each = detail.questions.iter().enumerate();
    let asked = if open {
        let form = form_id(detail.row.id);
        let (here, told) = (form.clone(), form.clone());
        let each = each.map(|(i, q)| to_answer(detail.row.id, i, all, q, drafts)).collect::<Vec<_>>();
        let failure = move || {
            let failure = problem::failure(resolve.value().get());
            problem::note(failure.filter(|f| drafts.is_told_in(&told, f)), "Nothing was sent.")
        };
        let inside = view! { {bound(detail, Outcome::Approve, back)} {each} {failure} };
        view! {
            <div class="questions" on:submit=move |_| drafts.sent_from(Some(&here))>
                {post_from(resolve, Some(form), "questions", Some("Answers".to_owned()), inside.into_any())}
            </div>
        }
        .into_any()
    } else {
        let each = each.map(|(i, q)| to_read(detail, i, all, q)).collect::<Vec<_>>();
        view! { <div class="questions">{each}</div> }.into_any()
    };
    view! {
        {asked}
        <details class="raw">
            <summary>{icon(Icon::Right, 14)}"The request as it came"</summary>
            {action::card(&detail.action, false, ().into_any())}
        </details>
        <p class="meta beside">{beside}</p>
    }
    .into_any()
}

fn to_answer(id: ApprovalId, i: usize, all: usize, question: &Question, drafts: Drafts) -> AnyView {
    let one = drafts.of(id, &format!("picks[q{i}]"), "");
    let choices = question
        .choices
        .iter()
        .enumerate()
        .map(|(c, choice)| {
            let box_of = if question.multi {
                let name = format!("picks[q{i}c{c}]");
                tick(drafts.of(id, &name, ""), "checkbox", name, "on".into())
            } else {
                tick(one.clone(), "radio", format!("picks[q{i}]"), c.to_string())
            };
            view! {
                <label class="choice">
                    {box_of}
                    <b>{name(&choice.label)}</b>
                    {described(&choice.description)}
                </label>
            }
        })
        .collect::<Vec<_>>();
    let (at, own) = (format!("own-{id}-{i}"), format!("own[q{i}]"));
    let help = format!("{at}-help");
    let counts = match (question.choices.is_empty(), question.multi) {
        (true, _) => "",
        (false, true) => "Added to what is ticked.",
        (false, false) => "Counts instead of a choice above.",
    };
    let area = text_area(drafts.of(id, &own, ""), at.clone(), own, "textarea", help.clone(), MESSAGE_MAX);
    view! {
        <fieldset class="question">
            <legend><small>{heading(i, all, question)}</small>{lines(&question.question)}</legend>
            <div class="choices">{choices}</div>
            <div class="field">
                <label for=at>"In your own words"</label>
                {area}
                <p class="help" id=help>{counts}</p>
            </div>
        </fieldset>
    }
    .into_any()
}

fn described(text: &str) -> Option<AnyView> {
    (!text.trim().is_empty()).then(|| view! { <small>{lines(text)}</small> }.into_any())
}

fn to_read(detail: &ApprovalDetail, i: usize, all: usize, question: &Question) -> AnyView {
    let answer = detail
        .receipt
        .as_ref()
        .and_then(|r| r.answers.iter().find(|(asked, _)| *asked == question.question))
        .map(|(_, answer)| view! { <p class="answer"><span class="meta">"Answer"</span><span>{lines(answer)}</span></p> });
    let choices = question
        .choices
        .iter()
        .map(|choice| {
            view! { <li class="choice"><b>{name(&choice.label)}</b>{described(&choice.description)}</li> }
        })
        .collect::<Vec<_>>();
    view! {
        <div class="question">
            <p class="legend"><small>{heading(i, all, question)}</small>{lines(&question.question)}</p>
            {answer}
            {(!question.choices.is_empty()).then(|| view! { <ul class="choices choices--read">{choices}</ul> })}
        </div>
    }
    .into_any()
}

/// Questions with their answers, in two lines each, for Chat.
pub fn answered(detail: &ApprovalDetail) -> Option<AnyView> {
    let answers = &detail.receipt.as_ref()?.answers;
    if answers.is_empty() {
        return None;
    }
    // In the order they were asked.
    let place = |asked: &str| detail.questions.iter().position(|q| q.question == asked).unwrap_or(usize::MAX);
    let mut answers: Vec<_> = answers.iter().collect();
    answers.sort_by_key(|(asked, _)| place(asked));
    let lines = answers
        .into_iter()
        .map(|(asked, answer)| view! { <dt>{lines(asked)}</dt><dd>{lines(answer)}</dd> })
        .collect::<Vec<_>>();
    Some(view! { <dl class="answers">{lines}</dl> }.into_any())
}
