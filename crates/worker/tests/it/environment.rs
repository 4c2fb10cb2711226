//! The whole environment of a harness: what is on the list, and nothing else.

use std::collections::BTreeMap;

use domain::run::RunStatus;

use crate::{lines, process::parent, world::World};

/// What every harness gets.
const EVERY: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR"];
/// What Claude Code gets besides: the way to the endpoint, and the account.
const CLAUDE: &[&str] = &[
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
/// What the worker sets for Claude Code.
const SET: &[&str] = &[
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
];
/// Some of what a worker may have and no harness may.
const KEPT: &[&str] = &[
    "ANTHROPIC_MODEL",
    "AWS_SECRET_ACCESS_KEY",
    "CLAUDECODE",
    "CLAUDE_CODE_USE_BEDROCK",
    "COUNTERSIGN_TEST_KEPT",
    "DATABASE_URL",
    "GITHUB_TOKEN",
    "IS_SANDBOX",
    "NODE_OPTIONS",
];

/// The environment a process was started with.
fn environment(process: u32) -> BTreeMap<String, String> {
    let bytes = std::fs::read(format!("/proc/{process}/environ")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let named = text.split_terminator('\0').map(|line| line.split_once('=').unwrap());
    named.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Starts a worker that has a value for every name, and compares what its harness gets.
async fn gets(mut world: World, listed: &[&[&str]], set: &[&str]) {
    let given = |name: &&str| {
        let value = match *name {
            // The script needs them.
            "PATH" => std::env::var("PATH").unwrap(),
            "TMPDIR" => std::env::temp_dir().display().to_string(),
            name => format!("the {name} of the worker"),
        };
        ((*name).to_owned(), value)
    };
    world.env.extend([EVERY, CLAUDE, SET, KEPT].concat().iter().map(given));
    world.start().await;
    let run = world.begin("go").await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let mut expected: BTreeMap<String, String> = listed.concat().iter().map(given).collect();
    expected.extend(set.iter().map(|name| ((*name).to_owned(), "1".to_owned())));
    let process = world.pid(run).await;
    assert_eq!(environment(process), expected);
    assert_eq!(environment(parent(process)), BTreeMap::new(), "of the holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_gets_what_is_listed_with_proxies_and_certificates_and_nothing_else() {
    gets(lines::claude_without_worker("idle; cat").await, &[EVERY, CLAUDE], SET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_model_gets_no_key_either() {
    gets(World::scripted_without_worker("over; cat").await, &[EVERY], &[]).await;
}
