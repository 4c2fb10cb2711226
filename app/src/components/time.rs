//! Moments. The first render is in UTC on both sides; after hydration the same text
//! is in the reader's zone, and the title still gives UTC.

use domain::time::Timestamp;
use leptos::prelude::*;

use crate::{browser, live::Live};

/// How much of a moment is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `14:32:08`, with the day before it where it is not today.
    Clock,
    /// `14:32` today, else the day: `29 Nov`.
    Short,
    /// `30 Nov 14:32`.
    Full,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn day_of(at: Timestamp) -> String {
    let day = at.day();
    let number = |range: std::ops::Range<usize>| day.get(range).and_then(|t| t.parse::<usize>().ok());
    let month = number(5..7).and_then(|m| MONTHS.get(m.wrapping_sub(1))).unwrap_or(&"");
    format!("{} {month}", number(8..10).unwrap_or(0))
}

fn text(at: Timestamp, shape: Shape, hydrated: bool) -> String {
    let local = if hydrated { browser::local(at) } else { None };
    let Some(l) = local else {
        return match shape {
            Shape::Clock => at.clock(),
            Shape::Short | Shape::Full => format!("{} {}", day_of(at), at.hour_minute()),
        };
    };
    let day = format!("{} {}", l.day, MONTHS.get(l.month).unwrap_or(&""));
    match shape {
        Shape::Clock if l.today => format!("{:02}:{:02}:{:02}", l.hour, l.minute, l.second),
        Shape::Clock => format!("{day} {:02}:{:02}:{:02}", l.hour, l.minute, l.second),
        Shape::Short if l.today => format!("{:02}:{:02}", l.hour, l.minute),
        Shape::Short => day,
        Shape::Full => format!("{day} {:02}:{:02}", l.hour, l.minute),
    }
}

/// A `<time>` element.
pub fn time(at: Timestamp, shape: Shape) -> AnyView {
    let hydrated = Live::here().hydrated;
    view! {
        <time datetime=at.iso() title=format!("{} {} UTC", at.day(), at.clock())>
            {move || text(at, shape, hydrated.get())}
        </time>
    }
    .into_any()
}

fn later(by: std::time::Duration) -> String {
    if by.as_millis() < 100 {
        return format!("+{} ms", by.as_millis());
    }
    format!("+{}", domain::time::span(by))
}

/// How long after `from` something was: `+0.2 s`, with the moment itself as title.
pub fn after(from: Timestamp, at: Timestamp) -> AnyView {
    view! {
        <time datetime=at.iso() title=format!("{} {} UTC", at.day(), at.clock())>
            {later(at.since(from))}
        </time>
    }
    .into_any()
}
