//! What only a browser has: its clock and zone, the document, the clipboard, keys.
//! On the server each of these does nothing, so views can name them freely.

use domain::time::Timestamp;

/// A moment in the reader's zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub year: i32,
    /// 0 to 11.
    pub month: usize,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    /// Whether the moment is on the reader's current day.
    pub today: bool,
}

#[cfg(feature = "hydrate")]
mod real {
    use js_sys::{Date, Function, Object, Reflect};
    use leptos::{ev::KeyboardEvent, prelude::*};
    use wasm_bindgen::{JsCast, JsValue};
    use web_sys::{Element, Event, EventTarget, HtmlElement, HtmlInputElement, HtmlTextAreaElement};

    use super::{Local, Timestamp};

    /// Milliseconds since 1970.
    pub fn now_ms() -> f64 {
        Date::now()
    }

    /// A number from 0 to 1.
    pub fn chance() -> f64 {
        js_sys::Math::random()
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^52")]
    pub fn local(at: Timestamp) -> Option<Local> {
        let date = Date::new(&JsValue::from_f64(at.0 as f64));
        let now = Date::new_0();
        let day = |d: &Date| (d.get_full_year(), d.get_month(), d.get_date());
        Some(Local {
            year: i32::try_from(date.get_full_year()).unwrap_or_default(),
            month: usize::try_from(date.get_month()).unwrap_or_default(),
            day: date.get_date(),
            hour: date.get_hours(),
            minute: date.get_minutes(),
            second: date.get_seconds(),
            today: day(&date) == day(&now),
        })
    }

    /// The theme the document was drawn with.
    pub fn theme() -> Option<String> {
        document().document_element()?.get_attribute("data-theme")
    }

    /// Switches the theme at once and keeps it for a year.
    pub fn set_theme(theme: &str) {
        if let Some(html) = document().document_element() {
            let _ = match theme {
                "light" | "dark" => html.set_attribute("data-theme", theme),
                _ => html.remove_attribute("data-theme"),
            };
        }
        let cookie = format!("theme={theme}; Path=/; Max-Age=31536000; SameSite=Lax");
        let _ = Reflect::set(&document(), &"cookie".into(), &cookie.into());
    }

    /// Says in the document that the page now answers to clicks and keys.
    pub fn mark_hydrated() {
        if let Some(html) = document().document_element() {
            let _ = html.set_attribute("data-hydrated", "");
        }
    }

    /// Puts exactly this text on the clipboard. The clipboard exists on safe origins only.
    pub fn copy(text: &str) {
        let write = || -> Option<()> {
            let clipboard = Reflect::get(&window().navigator(), &"clipboard".into()).ok()?;
            let write: Function =
                Reflect::get(clipboard.dyn_ref::<Object>()?, &"writeText".into()).ok()?.dyn_into().ok()?;
            write.call1(&clipboard, &text.into()).ok()?;
            Some(())
        };
        let _ = write();
    }

    /// Sends the form around the text field where Ctrl and Enter were pressed.
    pub fn send_on_ctrl_enter(ev: &KeyboardEvent) {
        if ev.key() != "Enter" || !(ev.ctrl_key() || ev.meta_key()) || ev.repeat() {
            return;
        }
        ev.prevent_default();
        if let Some(form) =
            ev.target().and_then(|t| t.dyn_into::<HtmlTextAreaElement>().ok()).and_then(|field| field.form())
        {
            let _ = form.request_submit();
        }
    }

    /// Hands on what was typed and ticked before the page answered, as if it were now.
    pub fn adopt_typed() {
        let tell = |target: &EventTarget, what: &str| {
            if let Ok(event) = Event::new(what) {
                let _ = target.dispatch_event(&event);
            }
        };
        let fields = document().get_elements_by_tag_name("textarea");
        for field in
            (0..fields.length()).filter_map(|i| fields.item(i)?.dyn_into::<HtmlTextAreaElement>().ok())
        {
            if field.default_value().is_ok_and(|first| first != field.value()) {
                tell(&field, "input");
            }
        }
        let ticks = document().get_elements_by_tag_name("input");
        for tick in (0..ticks.length()).filter_map(|i| ticks.item(i)?.dyn_into::<HtmlInputElement>().ok()) {
            if tick.checked() != tick.default_checked() {
                tell(&tick, "change");
            }
        }
    }

    /// Whether the box of an event is ticked.
    pub fn ticked(ev: &Event) -> bool {
        let tick = ev.target().and_then(|t| t.dyn_into::<HtmlInputElement>().ok());
        tick.is_some_and(|tick| tick.checked())
    }

    /// Puts the cursor into the first field of a popover that has just opened.
    pub fn focus_field(ev: &Event) {
        let field = || -> Option<HtmlElement> {
            let popover = ev.target()?.dyn_into::<Element>().ok()?;
            popover.matches(":popover-open").ok()?.then_some(())?;
            popover.query_selector("textarea, input:not([type=hidden])").ok()??.dyn_into().ok()
        };
        if let Some(field) = field() {
            let _ = field.focus();
        }
    }

    /// `J` and `K` move the focus among the rows of a list. Typing is never taken.
    pub fn move_on_key(ev: &KeyboardEvent) {
        if ev.ctrl_key() || ev.meta_key() || ev.alt_key() || ev.repeat() {
            return;
        }
        let step: i32 = match ev.key().as_str() {
            "j" => 1,
            "k" => -1,
            _ => return,
        };
        let focused: Option<Element> = document().active_element();
        if focused.as_ref().is_some_and(|el| {
            matches!(el.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT")
                || el.closest("[popover]").ok().flatten().is_some()
        }) {
            return;
        }
        let rows = document().get_elements_by_class_name("row");
        let all: Vec<HtmlElement> =
            (0..rows.length()).filter_map(|i| rows.item(i)?.dyn_into().ok()).collect();
        let here = all.iter().position(|row| focused.as_ref().is_some_and(|f| row.is_same_node(Some(f))));
        let next = match (here, step) {
            (None, _) => 0,
            (Some(i), 1) => i + 1,
            (Some(i), _) => i.wrapping_sub(1),
        };
        if let Some(row) = all.get(next) {
            let _ = row.focus();
        }
    }
}

#[cfg(not(feature = "hydrate"))]
mod real {
    use leptos::ev::KeyboardEvent;

    use super::{Local, Timestamp};

    pub fn now_ms() -> f64 {
        0.0
    }
    pub fn chance() -> f64 {
        0.0
    }
    pub fn local(_: Timestamp) -> Option<Local> {
        None
    }
    pub fn theme() -> Option<String> {
        None
    }
    pub fn set_theme(_: &str) {}
    pub fn mark_hydrated() {}
    pub fn copy(_: &str) {}
    pub fn send_on_ctrl_enter(_: &KeyboardEvent) {}
    pub fn adopt_typed() {}
    pub fn ticked(_: &leptos::web_sys::Event) -> bool {
        false
    }
    pub fn focus_field(_: &leptos::web_sys::Event) {}
    pub fn move_on_key(_: &KeyboardEvent) {}
}

pub use real::{
    adopt_typed, chance, copy, focus_field, local, mark_hydrated, move_on_key, now_ms, send_on_ctrl_enter,
    set_theme, theme, ticked,
};
