//! The command line, as far as a control-protocol client uses it. What the real
//! program refuses is refused with its words and its exit status.

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub mode: String,
    pub session: Option<String>,
    pub resume: Option<String>,
    pub fork: bool,
    /// Without the prompt surface every ask is refused at once.
    pub prompts: bool,
    pub await_initialize: bool,
    pub replay: bool,
    /// `--settings` makes everything ask.
    pub asks_all: bool,
    /// Bypassing permissions may be switched on later.
    pub may_bypass: bool,
}

/// What the program is to do first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    Version,
    Serve(Box<Flags>),
}

const MODES: &[&str] = &["default", "manual", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"];
/// Options with a value that change nothing here.
const IGNORED: &[&str] = &[
    "--setting-sources",
    "--model",
    "--fallback-model",
    "--mcp-config",
    "--allowedTools",
    "--disallowedTools",
    "--append-system-prompt",
    "--system-prompt",
    "--add-dir",
    "--max-turns",
    "--agents",
    "--effort",
];
/// Options without one that change nothing here.
const IGNORED_PLAIN: &[&str] =
    &["--strict-mcp-config", "--include-partial-messages", "--bare", "--safe-mode"];

/// Reads the arguments. The error is what the program writes to standard error before
/// it ends with exit status 1. `root` without `sandbox` may not bypass permissions.
pub fn read(arguments: &[String], root: bool, sandbox: bool) -> Result<Start, String> {
    let mut flags = Flags { mode: "default".to_owned(), ..Flags::default() };
    let (mut print, mut verbose, mut input, mut output) = (false, false, String::new(), String::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, mut given) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let mut value = || {
            given
                .take()
                .or_else(|| rest.next().cloned())
                .ok_or_else(|| format!("error: option '{name} <value>' argument missing"))
        };
        match name {
            "--version" | "-v" => return Ok(Start::Version),
            "-p" | "--print" => print = true,
            "--verbose" => verbose = true,
            "--input-format" => input = value()?,
            "--output-format" => output = value()?,
            "--permission-prompt-tool" => flags.prompts = value()? == "stdio",
            "--permission-prompts" => flags.prompts = flags.prompts && value()? != "none",
            "--permission-mode" => {
                let mode = value()?;
                if !MODES.contains(&mode.as_str()) {
                    return Err(format!(
                        "error: option '--permission-mode <mode>' argument '{mode}' is invalid."
                    ));
                }
                flags.mode = if mode == "manual" { "default".to_owned() } else { mode };
            }
            "--session-id" => flags.session = Some(value()?),
            "--resume" | "-r" => flags.resume = Some(value()?),
            "--fork-session" => flags.fork = true,
            "--await-initialize" => flags.await_initialize = true,
            "--replay-user-messages" => flags.replay = true,
            "--settings" => flags.asks_all = asks_all(&value()?),
            "--dangerously-skip-permissions" => "bypassPermissions".clone_into(&mut flags.mode),
            "--allow-dangerously-skip-permissions" => flags.may_bypass = true,
            _ if IGNORED.contains(&name) => drop(value()?),
            _ if IGNORED_PLAIN.contains(&name) => {}
            _ => return Err(format!("error: unknown option '{name}'")),
        }
    }
    if !print || input != "stream-json" {
        return Err("Error: this program speaks only -p with --input-format stream-json.".to_owned());
    }
    if output != "stream-json" || !verbose {
        return Err("When using --print, --output-format=stream-json requires --verbose".to_owned());
    }
    if flags.session.is_some() && flags.resume.is_some() && !flags.fork {
        return Err(
            "Error: --session-id can only be used with --resume if --fork-session is also specified."
                .to_owned(),
        );
    }
    if flags.mode == "bypassPermissions" {
        if root && !sandbox {
            return Err(
                "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
                    .to_owned(),
            );
        }
        flags.may_bypass = true;
    }
    Ok(Start::Serve(Box::new(flags)))
}

fn asks_all(settings: &str) -> bool {
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap_or_default();
    settings["permissions"]["ask"].as_array().is_some_and(|all| all.iter().any(|rule| rule == "*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(more: &[&str]) -> Result<Start, String> {
        let usual = ["-p", "--input-format", "stream-json", "--output-format", "stream-json"];
        let all: Vec<String> = usual.iter().chain(more).map(|a| (*a).to_owned()).collect();
        read(&all, true, false)
    }

    #[test]
    fn the_flags_of_a_client_are_read_and_what_is_wrong_is_refused() {
        let Ok(Start::Serve(flags)) = start(&[
            "--verbose",
            "--permission-prompt-tool",
            "stdio",
            "--permission-mode",
            "manual",
            "--setting-sources=",
            "--strict-mcp-config",
            "--session-id",
            "s",
            "--settings",
            r#"{"permissions":{"ask":["*"]}}"#,
        ]) else {
            panic!("refused")
        };
        assert!(flags.prompts && flags.asks_all && !flags.may_bypass);
        assert_eq!((flags.mode.as_str(), flags.session.as_deref()), ("default", Some("s")));
        assert!(start(&[]).unwrap_err().contains("requires --verbose"));
        assert!(start(&["--verbose", "--wrong"]).unwrap_err().contains("unknown option"));
        assert!(start(&["--verbose", "--permission-mode", "x"]).unwrap_err().contains("invalid"));
        assert!(start(&["--verbose", "--session-id", "a", "--resume", "b"]).is_err());
        assert!(
            start(&["--verbose", "--permission-mode", "bypassPermissions"]).unwrap_err().contains("root")
        );
        assert_eq!(read(&["--version".to_owned()], true, false), Ok(Start::Version));
    }
}
