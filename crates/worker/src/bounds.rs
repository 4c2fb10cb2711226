//! How large what a harness says may be. Whatever it writes, what is kept of it and
//! every frame made of it stay within these; beyond them it is cut or refused.

use domain::event::{EVENT_TEXT_MAX, EventBody, cut};
use link::frame::MAX_FRAME;

use crate::{drivers::Ask, journal::Request};

/// The longest name or id of a harness's, in bytes.
pub const NAME_MAX: usize = 1024;
/// The longest sentence of a harness's, in bytes.
const SENTENCE_MAX: usize = 4 * 1024;
/// Requests of a session whose end the server does not know. With more than these it is
/// not people who are asked.
pub const UNSETTLED_MAX: usize = 256;
/// The same in bytes of what they ask for.
const UNSETTLED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The largest request, as JSON with its input as base64: a frame less the rest of its message.
const ASK_MAX: usize = MAX_FRAME - 64 * 1024;

/// Whether `text` can be a name or an id.
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX && !text.contains('\0')
}

/// A NUL becomes its picture: the database takes none.
fn without_nul(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{2400}");
    }
}

/// A sentence for people that may hold words of a harness.
pub fn sentence(mut text: String) -> String {
    without_nul(&mut text);
    if cut(&mut text, SENTENCE_MAX - 4) > 0 {
        text.push('…');
    }
    text
}

fn name(text: &mut String) {
    prose(text, NAME_MAX);
}

/// Cuts a text to `most` bytes; how many were left out.
fn prose(text: &mut String, most: usize) -> u64 {
    without_nul(text);
    cut(text, most)
}

/// An event that fits a frame whatever it was made of. Ids that are cut join no more.
#[must_use]
pub fn event(mut body: EventBody) -> EventBody {
    match &mut body {
        EventBody::Started { native_session, .. } => native_session.iter_mut().for_each(name),
        EventBody::Said { text, sub_agent } => {
            prose(text, EVENT_TEXT_MAX);
            sub_agent.iter_mut().for_each(name);
        }
        EventBody::Thought { text } | EventBody::Notice { text, .. } => {
            prose(text, EVENT_TEXT_MAX);
        }
        EventBody::Called { call_id, tool, summary, input, sub_agent } => {
            [call_id, tool, summary].into_iter().chain(sub_agent).for_each(name);
            prose(input, EVENT_TEXT_MAX);
        }
        EventBody::Returned { call_id, output, left_out, .. } => {
            name(call_id);
            *left_out += prose(output, EVENT_TEXT_MAX);
        }
        EventBody::Background { tasks } => {
            tasks.truncate(UNSETTLED_MAX);
            tasks.iter_mut().for_each(name);
        }
        EventBody::Mode { mode } => name(mode),
        EventBody::Ended { detail, .. } => *detail = detail.take().map(sentence),
    }
    body
}

/// Whether so many requests are not settled that no more can be taken.
pub fn are_too_many<'a>(requests: impl IntoIterator<Item = &'a Request>) -> bool {
    let (mut count, mut bytes) = (0, 0);
    for request in requests.into_iter().filter(|r| !r.reported) {
        count += 1;
        bytes += request.ask.input.0.len();
    }
    count >= UNSETTLED_MAX || bytes >= UNSETTLED_BYTES_MAX
}

/// Whether a request can be told to the server, and shown.
pub fn fits(ask: &Ask) -> bool {
    let names = [&ask.native_id, &ask.tool];
    let more = [&ask.sub_agent, &ask.sub_agent_title, &ask.call_id];
    names.into_iter().chain(more.into_iter().flatten()).all(|name| is_name(name))
        && ask.options.iter().all(|option| is_name(&option.id) && is_name(&option.name))
        && ask.grants.iter().all(|grant| !grant.native.contains('\0') && !grant.words.contains('\0'))
        && serde_json::to_vec(ask).is_ok_and(|json| json.len() <= ASK_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_shown_and_never_told() {
        let text = || "a\0b".to_owned();
        let bodies = [
            EventBody::Said { text: text(), sub_agent: Some(text()) },
            EventBody::Thought { text: text() },
            EventBody::Notice { text: text(), alarm: false },
            EventBody::Called {
                call_id: text(),
                tool: text(),
                summary: text(),
                input: text(),
                sub_agent: Some(text()),
            },
            EventBody::Returned { call_id: text(), output: text(), is_error: false, left_out: 0 },
            EventBody::Background { tasks: vec![text()] },
            EventBody::Mode { mode: text() },
            EventBody::Ended { status: domain::run::RunStatus::Error, detail: Some(text()) },
        ];
        for body in bodies {
            let told = serde_json::to_string(&event(body)).unwrap();
            assert!(!told.contains("\\u0000") && told.contains('\u{2400}'), "{told}");
        }
        assert!(!is_name(&text()));
    }
}
