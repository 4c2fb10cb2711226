//! `countersign-worker run`: settings in, exit status out.

use std::{collections::HashMap, io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use url::Url;

use crate::{
    connection::{Connection, Final, Stop},
    folder::{DataFolder, FolderError, make_private},
    offer,
    session::{self, Settings},
    tether::own_program,
};

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http(s)://host:port` of the server.
    pub server: String,
    pub token: Token,
    pub data: Option<PathBuf>,
    /// `local`, `docker` or `agentcore`.
    pub environment: String,
    /// At a proper end, leave the harnesses to the next worker.
    pub leave_harnesses: bool,
    /// How long a harness may have nothing to do before it is ended; nothing: for ever.
    pub idle_end: Option<Duration>,
    /// End at once when standard input does: whoever started this worker is gone.
    pub until_stdin_ends: bool,
}

/// Where the worker's token comes from. Never from an argument: those are readable by
/// everybody on the machine.
#[derive(Clone)]
pub enum Token {
    File(PathBuf),
    Text(String),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(…)"),
        }
    }
}

/// Why a worker ended, with the exit status that stands for it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Usage(String),
    #[error(
        "The server at {0} does not accept this worker's token. Make a new one on its Workers page and put it into the token file."
    )]
    Unauthorized(Url),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(
        "Another worker with this data folder has linked to the server, or its agents wait for the decisions of a worker with another token. This one ends and writes nothing to any agent. If that worker is no more, revoke it on the Agents page and start this one again."
    )]
    Fenced,
    #[error("This worker is too old or too new for the server. Install the worker that came with it.")]
    Version,
    #[error("The worker cannot work: {0}.")]
    Io(#[from] std::io::Error),
}

impl RunError {
    /// 1 general, 2 token or usage, 3 data folder, 4 fenced, 5 journal, 6 version.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Io(_) => 1,
            Self::Usage(_) | Self::Unauthorized(_) => 2,
            Self::Folder(_) => 3,
            Self::Fenced => 4,
            Self::Version => 6,
        }
    }
}

/// The websocket address of a server.
fn link_url(server: &str) -> Result<Url, RunError> {
    let bad = || {
        RunError::Usage(format!(
            "\"{server}\" is not an address. Give http://host:port or https://host:port."
        ))
    };
    let mut url = Url::parse(server).map_err(|_| bad())?;
    let scheme = match url.scheme() {
        "http" => "ws",
        "https" => "wss",
        _ => return Err(bad()),
    };
    if url.host_str().is_none() || !url.username().is_empty() || url.password().is_some() {
        return Err(bad());
    }
    url.set_scheme(scheme).map_err(|()| bad())?;
    let path = format!("{}/link", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn bearer(token: &Token) -> Result<HeaderValue, RunError> {
    let text = match token {
        Token::Text(text) => text.clone(),
        Token::File(path) => std::fs::read_to_string(path).map_err(|e| {
            RunError::Usage(format!("The token file {} cannot be read: {e}.", path.display()))
        })?,
    };
    let bad = || {
        RunError::Usage(
            "The token is empty or not a token. Make one on the server's Workers page.".to_owned(),
        )
    };
    if text.trim().is_empty() {
        return Err(bad());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim())).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Ends the process with its standard input. The journal stands any end; the harnesses
/// stay in their holders for the next worker.
fn end_with_stdin() {
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    // Standard error may have gone with the server.
    let _ = writeln!(
        std::io::stderr(),
        "The server that started this worker is gone. The next one goes on with its sessions."
    );
    std::process::exit(1);
}

/// Runs a worker until it is told to stop or may not go on.
pub async fn run(options: Options) -> Result<(), RunError> {
    let url = link_url(&options.server)?;
    let token = bearer(&options.token)?;
    let exe = std::env::current_exe()?;
    let path = options.data.or_else(DataFolder::usual).ok_or_else(|| {
        RunError::Usage("There is no home folder to keep data in. Give one with --data.".to_owned())
    })?;
    let data = DataFolder::open(&path)?;
    if options.until_stdin_ends {
        std::thread::spawn(end_with_stdin);
    }
    let workspace = data.path().join("demo-workspace");
    make_private(&workspace)?;
    let offers = offer::find(&exe, &workspace);
    if offers.is_empty() {
        eprintln!(
            "No harness was found: neither countersign-demo-agent beside this program nor claude on PATH."
        );
    }
    let exe = own_program()?;
    let settings = Arc::new(Settings { data, exe, offers, idle_end: options.idle_end });
    let mut sessions = HashMap::new();
    for key in settings.data.sessions()? {
        match session::open_if_due(key, &settings) {
            Ok(handle) => sessions.extend(handle.map(|h| (key, h))),
            // The others can go on; this one's harness waits for someone to look.
            Err(error) => eprintln!("{error}"),
        }
    }
    let (tell, stop) = mpsc::channel(1);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let leave = options.leave_harnesses;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = tell.send(Stop { end_harnesses: !leave }).await;
    });
    let mut connection = Connection::new(settings, url.clone(), token, options.environment, sessions);
    match connection.run(stop).await {
        None => Ok(()),
        Some(Final::Unauthorized) => Err(RunError::Unauthorized(url)),
        Some(Final::Fenced) => Err(RunError::Fenced),
        Some(Final::Version) => Err(RunError::Version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_under_the_servers_own_path() {
        let url = |s| link_url(s).map(|u| u.to_string());
        assert_eq!(url("http://h:1").unwrap(), "ws://h:1/link");
        assert_eq!(url("https://h/sub/").unwrap(), "wss://h/sub/link");
        assert!(url("h:1").is_err());
        assert!(url("https://user:secret@h").is_err());
    }
}
