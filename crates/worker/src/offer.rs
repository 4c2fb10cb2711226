//! The harnesses this worker offers, and how each is started.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use domain::{
    agent::{AgentSpec, Asks, Mode},
    worker::{Capabilities, HarnessOffer, Permissions, Supported},
};

use crate::drivers::{Driver, acp::Acp, claude, claude::Claude};

/// Variables every harness gets. Anything else, above all what other programs put
/// there for themselves, is left out.
const PASSED: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR"];
/// What a harness that talks to a model needs besides.
const PASSED_TO_CLAUDE: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Demo,
    Claude,
}

/// A harness, with what it takes to start it.
#[derive(Clone, Debug)]
pub struct Offer {
    pub told: HarnessOffer,
    kind: Kind,
    program: PathBuf,
    env: BTreeMap<String, String>,
}

/// What to start, and the driver for it.
#[derive(Debug)]
pub struct Start {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub driver: Driver,
}

impl Offer {
    /// How to start it for `agent` in `folder`. `native_session` is the conversation to
    /// take up, `fresh` the id of a new one.
    pub fn start(
        &self,
        agent: &AgentSpec,
        folder: &str,
        native_session: Option<&str>,
        fresh: uuid::Uuid,
    ) -> Start {
        let mode = &agent.mode;
        let (args, driver) = match self.kind {
            Kind::Demo => (Vec::new(), Driver::Acp(Acp::new(mode.to_owned(), folder.to_owned()))),
            Kind::Claude => {
                let session = native_session.map_or_else(|| fresh.to_string(), str::to_owned);
                let driver = Claude::new(session, mode.to_owned(), folder.to_owned(), agent.asks_everything);
                (driver.args(native_session.is_some()), Driver::Claude(driver))
            }
        };
        Start { program: self.program.clone(), args, env: self.env.clone(), driver }
    }
}

/// Everything that can be offered here. `demo_workspace` is the demo agent's folder.
pub fn find(exe: &Path, demo_workspace: &Path) -> Vec<Offer> {
    [demo(exe, demo_workspace), claude()].into_iter().flatten().collect()
}

fn passed(names: &[&[&str]]) -> BTreeMap<String, String> {
    let names = names.iter().flat_map(|n| n.iter());
    names.filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?))).collect()
}

fn mode(id: &str, title: &str, asks: Asks) -> Mode {
    Mode { id: id.to_owned(), title: title.to_owned(), asks }
}

fn version_of(program: &Path) -> Option<String> {
    // Without the worker's own environment: that may hold its token.
    let out = Command::new(program).arg("--version").env_clear().envs(passed(&[PASSED])).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

fn demo(exe: &Path, workspace: &Path) -> Option<Offer> {
    let program = match env::var_os("COUNTERSIGN_DEMO_AGENT") {
        Some(path) => PathBuf::from(path),
        None => exe.with_file_name("countersign-demo-agent"),
    };
    let version = version_of(&program)?;
    Some(Offer {
        told: HarnessOffer {
            id: "demo".to_owned(),
            title: "Demo agent".to_owned(),
            version,
            capabilities: Capabilities {
                permissions: Some(Permissions { native: true, held: true, ..Permissions::default() }),
                cancel: Some(Supported {}),
                journal: Some(Supported {}),
                ..Capabilities::default()
            },
            modes: vec![
                mode("ask", "Asks before every write", Asks::AsNeeded),
                mode("auto", "Writes without asking", Asks::Never),
            ],
            default_mode: "ask".to_owned(),
            default_folder: workspace.display().to_string(),
            problem: None,
        },
        kind: Kind::Demo,
        program,
        env: passed(&[PASSED]),
    })
}

fn claude() -> Option<Offer> {
    let named = env::var_os("CLAUDE_BIN").filter(|p| !p.is_empty()).map(PathBuf::from);
    let on_path = || {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|folder| folder.join("claude")).find(|file| file.is_file())
    };
    let program = named.or_else(on_path)?;
    let version = version_of(&program);
    let (a, b, c) = claude::OLDEST;
    let problem = match version.as_deref().map(parse_version) {
        None => Some(format!("{} cannot be run. Check CLAUDE_BIN.", program.display())),
        Some(Some(found)) if found >= claude::OLDEST => None,
        Some(_) => {
            Some(format!("Claude Code {a}.{b}.{c} or newer is needed. Update it and start the worker again."))
        }
    };
    let mut env = passed(&[PASSED, PASSED_TO_CLAUDE]);
    for name in [
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "DISABLE_ERROR_REPORTING",
    ] {
        env.insert(name.to_owned(), "1".to_owned());
    }
    Some(Offer {
        told: HarnessOffer {
            id: "claude".to_owned(),
            title: "Claude Code".to_owned(),
            version: version.unwrap_or_else(|| "unknown".to_owned()),
            capabilities: Capabilities {
                permissions: Some(Permissions {
                    native: true,
                    held: true,
                    updated_input: true,
                    message: true,
                    session_grants: true,
                    everything: true,
                    persistent_grants: false,
                }),
                questions: Some(Supported {}),
                cancel: Some(Supported {}),
                resume: Some(Supported {}),
                journal: Some(Supported {}),
                ..Capabilities::default()
            },
            modes: vec![
                mode("default", "Asks for commands and edits", Asks::AsNeeded),
                mode(
                    "acceptEdits",
                    "Changes, moves and deletes files without asking; asks for other commands",
                    Asks::Partly,
                ),
                mode("plan", "Plans without changing anything", Asks::AsNeeded),
                mode("dontAsk", "Never asks: what would need permission is refused", Asks::Never),
                mode("bypassPermissions", "Never asks: everything is allowed", Asks::Never),
            ],
            default_mode: "default".to_owned(),
            default_folder: env::current_dir().unwrap_or_default().display().to_string(),
            problem,
        },
        kind: Kind::Claude,
        program,
        env,
    })
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split(['.', '-', '+']).map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_odd_ones_are_too_old() {
        assert!(parse_version("2.1.332") >= Some(claude::OLDEST));
        assert!(parse_version("2.1.197") < Some(claude::OLDEST));
        assert!(parse_version("2.10.0-beta") >= Some(claude::OLDEST));
        assert_eq!(parse_version("two"), None);
    }
}
