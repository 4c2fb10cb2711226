//! The `/live` socket of this tab.
//!
//! The server sends `{"versions":{topic: n}}` (all on connect, then those that
//! changed), `{"reread":true}` when this tab has lagged, and `{"ping":n}`, answered
//! with `{"pong":n}`. A socket without a frame for [`DEAD_MS`] counts as gone, even if
//! the browser has not noticed.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use leptos::prelude::*;
use serde::Deserialize;
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{MessageEvent, WebSocket};

use super::{Link, Live};
use crate::browser::{chance, now_ms};

/// Pings come at most 30 s apart.
const DEAD_MS: f64 = 45_000.0;
/// The first and the longest wait before a new try.
const RETRY_MS: (f64, f64) = (500.0, 20_000.0);
/// What the server closes with when the sign-in is over.
const SIGNED_OUT: u16 = 4401;

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    versions: BTreeMap<String, u64>,
    #[serde(default)]
    reread: bool,
    ping: Option<u64>,
}

struct Tab {
    live: Live,
    socket: Option<WebSocket>,
    /// The versions last heard of.
    seen: BTreeMap<String, u64>,
    heard_ms: f64,
    /// Tries since the last frame.
    tries: i32,
    /// Each socket has a number; what an older one still says is not heard.
    number: u32,
    retry_planned: bool,
    over: bool,
}

type Shared = Rc<RefCell<Tab>>;

/// Opens the socket and keeps it open for as long as the page lives.
pub fn open(live: Live) {
    let tab: Shared = Rc::new(RefCell::new(Tab {
        live,
        socket: None,
        seen: BTreeMap::new(),
        heard_ms: now_ms(),
        tries: 0,
        number: 0,
        retry_planned: false,
        over: false,
    }));
    connect(&tab);

    let watched = Rc::clone(&tab);
    let _ = set_interval_with_handle(
        move || {
            let (linked, silent) = {
                let tab = watched.borrow();
                (tab.socket.is_some(), now_ms() - tab.heard_ms > DEAD_MS)
            };
            if linked && silent {
                lose(&watched);
            }
        },
        Duration::from_secs(5),
    );

    // A page that was asleep may hold a dead socket and old data. What a person sees
    // is read again before their click counts.
    for (target, name) in [(true, "visibilitychange"), (false, "online"), (false, "pageshow")] {
        let tab = Rc::clone(&tab);
        let wake = Closure::<dyn FnMut()>::new(move || {
            if document().visibility_state() == web_sys::VisibilityState::Visible {
                wake(&tab);
            }
        });
        let handler = wake.as_ref().unchecked_ref();
        let _ = if target {
            document().add_event_listener_with_callback(name, handler)
        } else {
            window().add_event_listener_with_callback(name, handler)
        };
        wake.forget();
    }
}

fn wake(tab: &Shared) {
    let (live, dead, over) = {
        let tab = tab.borrow();
        let open = tab.socket.as_ref().is_some_and(|s| s.ready_state() <= WebSocket::OPEN);
        (tab.live, !open || now_ms() - tab.heard_ms > DEAD_MS, tab.over)
    };
    if over {
        return;
    }
    live.reread();
    if dead {
        tab.borrow_mut().tries = 0;
        connect(tab);
    }
}

fn connect(tab: &Shared) {
    let Ok(href) = window().location().origin() else { return };
    // http to ws, https to wss.
    let address = format!("{}/live", href.replacen("http", "ws", 1));
    let number = {
        let mut tab = tab.borrow_mut();
        if let Some(old) = tab.socket.take() {
            let _ = old.close();
        }
        tab.number += 1;
        tab.heard_ms = now_ms();
        tab.number
    };
    let Ok(socket) = WebSocket::new(&address) else {
        lose(tab);
        return;
    };

    let at = Rc::clone(tab);
    let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |ev: MessageEvent| {
        if at.borrow().number == number
            && let Some(text) = ev.data().as_string()
        {
            hear(&at, &text);
        }
    });
    socket.set_onmessage(Some(on_message.as_ref().unchecked_ref()));

    let at = Rc::clone(tab);
    let on_close = Closure::<dyn FnMut(web_sys::CloseEvent)>::new(move |ev: web_sys::CloseEvent| {
        if at.borrow().number == number {
            if ev.code() == SIGNED_OUT {
                at.borrow_mut().over = true;
            }
            lose(&at);
        }
    });
    socket.set_onclose(Some(on_close.as_ref().unchecked_ref()));

    // A socket's closures live as long as the socket may call them; a tab opens few.
    on_message.forget();
    on_close.forget();
    tab.borrow_mut().socket = Some(socket);
}

fn hear(tab: &Shared, text: &str) {
    let Ok(frame) = serde_json::from_str::<Frame>(text) else { return };
    let (live, changed) = {
        let mut tab = tab.borrow_mut();
        tab.heard_ms = now_ms();
        tab.tries = 0;
        if let (Some(n), Some(socket)) = (frame.ping, &tab.socket) {
            let _ = socket.send_with_str(&format!("{{\"pong\":{n}}}"));
        }
        let mut changed = Vec::new();
        for (name, version) in frame.versions {
            if tab.seen.get(&name) != Some(&version) {
                changed.extend(tab.live.topic(&name));
                tab.seen.insert(name, version);
            }
        }
        (tab.live, changed)
    };
    // Signals are set without the borrow: they run whatever depends on them.
    if live.link.get_untracked() != Link::Live {
        live.link.set(Link::Live);
    }
    if frame.reread {
        live.reread();
    } else {
        for topic in changed {
            topic.update(|n| *n += 1);
        }
    }
}

fn lose(tab: &Shared) {
    let (live, over) = {
        let mut tab = tab.borrow_mut();
        tab.number += 1;
        // A server that was started again counts from anew: the next map is all news.
        tab.seen.clear();
        if let Some(socket) = tab.socket.take() {
            let _ = socket.close();
        }
        (tab.live, tab.over)
    };
    if !matches!(live.link.get_untracked(), Link::Lost(_)) {
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
        live.link.set(Link::Lost(domain::time::Timestamp(now_ms() as i64)));
    }
    if over {
        // The next read says that nobody is signed in, with the way to sign in.
        live.reread();
        return;
    }
    let wait = {
        let mut tab = tab.borrow_mut();
        if tab.retry_planned {
            return;
        }
        tab.retry_planned = true;
        let most = (RETRY_MS.0 * 2_f64.powi(tab.tries)).min(RETRY_MS.1);
        tab.tries += 1;
        // Half fixed, half by chance: many tabs do not come back in the same moment.
        most / 2.0 + chance() * most / 2.0
    };
    let at = Rc::clone(tab);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 20,000")]
    set_timeout(
        move || {
            at.borrow_mut().retry_planned = false;
            if at.borrow().socket.is_none() {
                connect(&at);
            }
        },
        Duration::from_millis(wait as u64),
    );
}
