//! Icons: strokes on a 16 px grid, drawn in the colour of the text. The shared
//! attributes are in `style/icon.css`.

use leptos::prelude::*;

/// What an icon shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    Agents,
    Approvals,
    Ask,
    Auto,
    Cancelled,
    Chat,
    Command,
    Copy,
    Edit,
    Expired,
    Fail,
    Info,
    Left,
    Linked,
    Lock,
    Moon,
    More,
    No,
    Off,
    Offline,
    Ok,
    Out,
    Plan,
    Play,
    Plug,
    Plus,
    Raw,
    Right,
    Running,
    Search,
    Send,
    Stop,
    Sun,
    Todo,
    Unknown,
    Users,
    Waiting,
    Words,
}

impl Icon {
    /// The inside of the `<svg>`. Static text of ours, so `inner_html` is safe.
    const fn strokes(self) -> &'static str {
        match self {
            Self::Agents => r#"<path d="M2.75 3.25h10.5v9.5H2.75zM5.25 6l2 2-2 2M8.75 10.25h2"/>"#,
            Self::Approvals => r#"<path d="M3.5 7.25 6.5 10.25 12.5 2.75M2.75 13.25h10.5"/>"#,
            Self::Ask => r#"<path d="M5.5 5.75a2.5 2.5 0 1 1 3.6 2.25C8.3 8.4 8 8.9 8 9.75M8 12.4v.1"/>"#,
            Self::Auto => {
                r#"<circle cx="8" cy="8" r="5.25"/><path d="M8 2.75v10.5A5.25 5.25 0 0 0 8 2.75z" fill="currentColor"/>"#
            }
            Self::Cancelled => r#"<circle cx="8" cy="8" r="5.5"/><path d="m4.2 11.8 7.6-7.6"/>"#,
            Self::Chat => r#"<path d="M2.75 3.25h10.5v7.5H7.5l-3 2.5v-2.5H2.75z"/>"#,
            Self::Command => r#"<path d="m2.75 4 4 4-4 4M8 12.25h5.25"/>"#,
            Self::Copy => r#"<path d="M5.75 5.75h7.5v7.5h-7.5zM10.25 5.5V2.75h-7.5v7.5H5.5"/>"#,
            Self::Edit => r#"<path d="M3.25 1.75h6l3.5 3.5v9h-9.5zM6 10.25h4M8 8.25v4"/>"#,
            Self::Expired => {
                r#"<path d="M4 2.5h8M4 13.5h8M5 2.75v2L8 8l3-3.25v-2M5 13.25v-2L8 8l3 3.25v2"/>"#
            }
            Self::Fail => {
                r#"<path d="M5.6 2.5h4.8l3.1 3.1v4.8l-3.1 3.1H5.6l-3.1-3.1V5.6zM8 5.25v3.5M8 10.9v.1"/>"#
            }
            Self::Info => r#"<circle cx="8" cy="8" r="5.75"/><path d="M8 7.5v3.25M8 5.2v.1"/>"#,
            Self::Left => r#"<path d="M10 3.5 5.5 8l4.5 4.5"/>"#,
            Self::Linked => {
                r#"<circle cx="8" cy="8" r="3" fill="currentColor" stroke="none"/><circle cx="8" cy="8" r="5.5"/>"#
            }
            Self::Lock => r#"<path d="M3.75 7.25h8.5v6h-8.5zM5.25 7V5a2.75 2.75 0 0 1 5.5 0v2"/>"#,
            Self::Moon => r#"<path d="M12.9 9.7A5.5 5.5 0 0 1 6.3 3.1a5.5 5.5 0 1 0 6.6 6.6z"/>"#,
            Self::More => r#"<path d="M2.75 4.25h10.5M2.75 8h10.5M2.75 11.75h10.5"/>"#,
            Self::No => r#"<circle cx="8" cy="8" r="5.5"/><path d="m6 6 4 4M10 6l-4 4"/>"#,
            Self::Off => r#"<circle cx="8" cy="8" r="5.5"/>"#,
            Self::Offline => {
                r#"<path d="M2 5.75a9 9 0 0 1 12 0M4.25 8.5a5.6 5.6 0 0 1 7.5 0M6.5 11.1a2.3 2.3 0 0 1 3 0M2.5 13.5l11-11"/>"#
            }
            Self::Ok => r#"<circle cx="8" cy="8" r="5.5"/><path d="m5.4 8.2 1.9 1.9 3.4-4.1"/>"#,
            Self::Out => r#"<path d="M6.25 2.75h-3.5v10.5h3.5M6.5 8h7M10.75 5.25 13.5 8l-2.75 2.75"/>"#,
            Self::Plan => r#"<path d="M2.75 4h1M2.75 8h1M2.75 12h1M6.25 4h7M6.25 8h7M6.25 12h7"/>"#,
            Self::Play => r#"<path d="M4.5 2.75v10.5L13 8z"/>"#,
            Self::Plug => {
                r#"<path d="M5.75 1.75v3M10.25 1.75v3M4.25 4.75h7.5v2.5a3.75 3.75 0 0 1-7.5 0zM8 11v3.25"/>"#
            }
            Self::Plus => r#"<path d="M8 2.75v10.5M2.75 8h10.5"/>"#,
            Self::Raw => {
                r#"<path d="M6 2.5c-2 0-1.5 2-1.5 3.25S4 8 3 8c1 0 1.5 1 1.5 2.25S4 13.5 6 13.5M10 2.5c2 0 1.5 2 1.5 3.25S12 8 13 8c-1 0-1.5 1-1.5 2.25S12 13.5 10 13.5"/>"#
            }
            Self::Right => r#"<path d="m6 3.5 4.5 4.5L6 12.5"/>"#,
            Self::Running => {
                r#"<circle cx="8" cy="8" r="5.5" stroke-dasharray="6 2.64"/><circle cx="8" cy="8" r="1.75" fill="currentColor" stroke="none"/>"#
            }
            Self::Search => r#"<circle cx="7" cy="7" r="4.25"/><path d="m10.25 10.25 3.25 3.25"/>"#,
            Self::Send => r#"<path d="M8 13.25V3M3.75 7.25 8 3l4.25 4.25"/>"#,
            Self::Stop => r#"<path d="M3.75 3.75h8.5v8.5h-8.5z"/>"#,
            Self::Sun => {
                r#"<circle cx="8" cy="8" r="2.75"/><path d="M8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1"/>"#
            }
            Self::Todo => r#"<circle cx="8" cy="8" r="5.5" stroke-dasharray="1.5 2.82"/>"#,
            Self::Unknown => {
                r#"<path d="M8 1.75 14.25 8 8 14.25 1.75 8zM6.6 6.6A1.5 1.5 0 1 1 8.6 8c-.4.2-.6.5-.6.9M8 10.7v.1"/>"#
            }
            Self::Users => {
                r#"<circle cx="6" cy="5.25" r="2.5"/><path d="M1.75 13.25c0-2.4 1.8-3.75 4.25-3.75s4.25 1.35 4.25 3.75M10.75 3a2.4 2.4 0 0 1 0 4.5M12 9.8c1.4.5 2.25 1.7 2.25 3.45"/>"#
            }
            Self::Waiting => {
                r#"<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5a5.5 5.5 0 0 1 0 11z" fill="currentColor" stroke="none"/>"#
            }
            Self::Words => r#"<path d="M2.75 3.25h4v4.5l-2 3M9.25 3.25h4v4.5l-2 3"/>"#,
        }
    }
}

/// An icon of `size` px. It says nothing by itself: a word stands beside it.
pub fn icon(icon: Icon, size: u8) -> AnyView {
    view! {
        <svg class="i" width=size.to_string() height=size.to_string() viewBox="0 0 16 16" aria-hidden="true" inner_html=icon.strokes()></svg>
    }
    .into_any()
}
