//! Hostile input: random bytes, and recorded lines changed in their bytes and in their
//! structure. `COUNTERSIGN_TEST_SEED` tries a failure again; every failure names its seed.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::Index,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};
use serde_json::Value;

/// How long one test goes on at most, shrinking apart.
const TIME: Duration = Duration::from_secs(8);

/// Lines recorded from a real peer.
pub fn recorded(lines: &'static str) -> Vec<&'static str> {
    lines.lines().filter(|l| !l.is_empty()).collect()
}

/// Calls `check` with so many inputs, or as many as there is time for, but not with fewer
/// than a twentieth of them. A panic is shrunk and told with its seed.
pub fn fuzz<S: Strategy>(cases: u32, inputs: S, check: impl Fn(S::Value)) {
    let set = std::env::var("COUNTERSIGN_TEST_SEED").ok();
    let seed = set.map_or_else(rand_seed, |text| text.parse().expect("a number"));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_time: 10_000,
        ..Config::default()
    };
    let until = Instant::now() + TIME;
    let checked = Cell::new(0);
    let result = TestRunner::new(config).run(&inputs, |input| {
        if Instant::now() < until || checked.get() < cases / 20 {
            check(input);
            checked.set(checked.get() + 1);
        }
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = result {
        panic!("with COUNTERSIGN_TEST_SEED={seed}: {error}");
    }
    assert!(checked.get() >= cases / 20, "only {} of {cases} inputs were tried", checked.get());
}

fn rand_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Bytes that a failure shows as text.
#[derive(Clone)]
pub struct Raw(pub Vec<u8>);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Bytes that need not mean anything.
pub fn bytes() -> impl Strategy<Value = Raw> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..300),
        // What JSON is made of.
        vec(prop::sample::select(&br#"{}[]",:\tfnu0-1.eE "#[..]), 0..300),
    ];
    bytes.prop_map(Raw)
}

/// A recorded line, changed in up to four ways, as bytes.
pub fn changed(lines: Vec<&'static str>) -> impl Strategy<Value = Raw> {
    let some = prop::sample::select(lines.clone());
    let changes = vec(change(), 0..5);
    prop_oneof![
        1 => bytes(),
        12 => (some, prop::sample::select(lines), changes).prop_map(|(line, other, changes)| {
            let mut bytes = line.as_bytes().to_vec();
            for change in changes {
                change.make(&mut bytes, other);
            }
            Raw(bytes)
        }),
    ]
}

/// The same as text without line feeds, as a line is.
pub fn changed_line(lines: Vec<&'static str>) -> impl Strategy<Value = String> {
    changed(lines).prop_map(|bytes| String::from_utf8_lossy(&bytes.0).replace('\n', " "))
}

/// One change of a line.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Double(Index, usize),
    /// A node of the JSON gets another value.
    Replace(Index, Foreign),
    /// A node gets the value of another one, of another line.
    Transplant(Index, Index),
    Drop(Index),
    /// A member of the outermost object is there twice, with another value.
    TwiceNamed(Index, Foreign),
}

/// Values that nobody expects.
#[derive(Clone, Debug)]
enum Foreign {
    Plain(&'static str),
    Long(usize),
    Deep(usize),
    Wide(usize),
    Text(String),
}

fn foreign() -> impl Strategy<Value = Foreign> {
    const PLAIN: &[&str] = &[
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.0",
        "1e999",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        r#""""#,
        "[]",
        "{}",
        "[null]",
        r#""\ud800""#,
        r#""\u0000\u202e""#,
        r#""can_use_tool""#,
        r#""control_request""#,
        r#""allow""#,
        r#""bypassPermissions""#,
        r#""acceptEdits""#,
        r#""AskUserQuestion""#,
        r#""ExitPlanMode""#,
        r#""EnterPlanMode""#,
        r#""allow_once""#,
        r#""allow_always""#,
        r#""reject_once""#,
        r#""session/request_permission""#,
        r#""s""#,
        r#""success""#,
        r#""idle""#,
        r#""2.0""#,
    ];
    prop_oneof![
        8 => prop::sample::select(PLAIN).prop_map(Foreign::Plain),
        1 => (0_usize..70_000).prop_map(Foreign::Long),
        1 => (0_usize..3000).prop_map(Foreign::Deep),
        1 => (0_usize..300).prop_map(Foreign::Wide),
        2 => any::<String>().prop_map(Foreign::Text),
    ]
}

impl Foreign {
    fn json(&self) -> String {
        match self {
            Self::Plain(json) => (*json).to_owned(),
            Self::Long(n) => format!("\"{}\"", "x".repeat(*n)),
            Self::Deep(n) => format!("{}{}", "[".repeat(*n), "]".repeat(*n)),
            Self::Wide(n) => format!("[{}]", vec!["{\"a\":[]}"; *n].join(",")),
            Self::Text(text) => Value::from(text.as_str()).to_string(),
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(a, b)| Change::Flip(a, b)),
        1 => (at(), 0_usize..40).prop_map(|(a, n)| Change::Remove(a, n)),
        1 => (at(), vec(any::<u8>(), 1..10)).prop_map(|(a, b)| Change::Insert(a, b)),
        1 => (at(), 0_usize..60).prop_map(|(a, n)| Change::Double(a, n)),
        5 => (at(), foreign()).prop_map(|(a, f)| Change::Replace(a, f)),
        3 => (at(), at()).prop_map(|(a, b)| Change::Transplant(a, b)),
        2 => at().prop_map(Change::Drop),
        2 => (at(), foreign()).prop_map(|(a, f)| Change::TwiceNamed(a, f)),
    ]
}

/// Where every node of a value is.
fn nodes(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: String, all: &mut Vec<String>) {
        let below = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(map) => map.iter().for_each(|(name, v)| walk(v, below(name), all)),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| walk(v, below(&i.to_string()), all));
            }
            _ => {}
        }
        all.push(at);
    }
    let mut all = Vec::new();
    walk(value, String::new(), &mut all);
    all
}

/// Stands for a value that is put in as text, since not every JSON text is a `Value`.
const HERE: &str = "\u{1}here\u{1}";

impl Change {
    fn make(&self, bytes: &mut Vec<u8>, other: &str) {
        let len = bytes.len();
        match self {
            _ if len == 0 => {}
            Self::Flip(at, with) => bytes[at.index(len)] ^= with | 1,
            Self::Remove(at, n) => {
                let at = at.index(len);
                bytes.drain(at..(at + n).min(len));
            }
            Self::Insert(at, more) => {
                let at = at.index(len);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Double(at, n) => {
                let at = at.index(len);
                let part = bytes[at..(at + n).min(len)].to_vec();
                bytes.splice(at..at, part);
            }
            Self::Replace(..) | Self::Transplant(..) | Self::Drop(..) | Self::TwiceNamed(..) => {
                let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return };
                if let Some(text) = self.restructure(&mut value, other) {
                    *bytes = text.into_bytes();
                }
            }
        }
    }

    fn restructure(&self, value: &mut Value, other: &str) -> Option<String> {
        let all = nodes(value);
        match self {
            Self::Replace(at, with) => {
                *value.pointer_mut(&all[at.index(all.len())])? = Value::from(HERE);
                let here = Value::from(HERE).to_string();
                Some(value.to_string().replacen(&here, &with.json(), 1))
            }
            Self::Transplant(at, from) => {
                let other: Value = serde_json::from_str(other).ok()?;
                let theirs = nodes(&other);
                let piece = other.pointer(&theirs[from.index(theirs.len())])?.clone();
                *value.pointer_mut(&all[at.index(all.len())])? = piece;
                Some(value.to_string())
            }
            Self::Drop(at) => {
                let (above, name) = all[at.index(all.len())].rsplit_once('/')?;
                match value.pointer_mut(above)? {
                    Value::Object(map) => drop(map.remove(&name.replace("~1", "/").replace("~0", "~"))),
                    Value::Array(list) => drop(list.remove(name.parse().ok()?)),
                    _ => {}
                }
                Some(value.to_string())
            }
            Self::TwiceNamed(at, with) => {
                let names: Vec<&String> = value.as_object()?.keys().collect();
                let name = Value::from(names.get(at.index(names.len().max(1)))?.as_str());
                let text = value.to_string();
                Some(format!("{{{name}:{},{}", with.json(), &text[1..]))
            }
            _ => None,
        }
    }
}
