//! The command line and the environment. Everything that can be set is here.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use url::Url;

/// Countersign decides with people what coding agents may do.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the server, its database if none is given, and one local worker.
    Serve(Settings),
    /// What only the owner of the machine may do.
    Admin {
        #[command(subcommand)]
        command: AdminCommand,
    },
}

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Print a new one-time link for an admin: the first one, or to set a password again.
    Reset {
        /// The admin's name; the oldest admin if absent.
        name: Option<String>,
        #[command(flatten)]
        at: Place,
    },
}

/// Where the data are and how people reach the server.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// Folder for the private database, keys and the local worker.
    #[arg(long, env = "COUNTERSIGN_DATA")]
    pub data: Option<PathBuf>,
    /// A Postgres to use instead of a private one.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The address people and workers use, if it is not the one listened on; nothing follows its host.
    #[arg(long, env = "PUBLIC_URL", value_parser = own_address)]
    pub public_url: Option<Url>,
    /// The address to listen on. A taken port on the default address moves to the next free one.
    #[arg(long, env = "COUNTERSIGN_LISTEN")]
    pub listen: Option<SocketAddr>,
}

#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    pub place: Place,
    /// Folder with the built pages; found beside the program by default.
    #[arg(long, env = "COUNTERSIGN_SITE")]
    pub site: Option<PathBuf>,
    /// Do not start a local worker.
    #[arg(long, env = "COUNTERSIGN_NO_WORKER")]
    pub no_worker: bool,
    /// Connections to the database.
    #[arg(long, env = "COUNTERSIGN_DB_CONNECTIONS", default_value_t = 16)]
    pub db_connections: u32,
}

/// An address that is all Countersign's: its pages are at the root, and so is its cookie.
fn own_address(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("an address like https://countersign.example is needed".into());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("nothing may follow the host: give Countersign a name or a port of its own".into());
    }
    Ok(url)
}

/// The default address and how many ports after it are tried.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7717);
pub const PORTS_TRIED: u16 = 20;

/// How the server is reached, and what follows for cookies and hosts.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Without a slash at the end.
    pub url: String,
    /// Behind TLS: cookies are `Secure` and `__Host-`.
    pub tls: bool,
    /// Neither TLS nor loopback: signing in is refused with the reason.
    pub insecure: bool,
    /// `host` or `host:port` values accepted in `Host`.
    hosts: Vec<String>,
    port: u16,
}

impl Reach {
    pub fn new(public: Option<&Url>, listening: SocketAddr) -> Self {
        let port = listening.port();
        let loopback = |host: &str| matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        let mut hosts: Vec<String> = Vec::new();
        let (url, tls, insecure) = match public {
            Some(url) => {
                let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
                let authority = match url.port() {
                    Some(port) => format!("{host}:{port}"),
                    None => host.clone(),
                };
                hosts.push(authority);
                let tls = url.scheme() == "https";
                (url.as_str().trim_end_matches('/').to_owned(), tls, !tls && !loopback(&host))
            }
            None => (format!("http://{}", written(listening)), false, false),
        };
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            hosts.push(format!("{host}:{port}"));
        }
        if !listening.ip().is_unspecified() {
            hosts.push(written(listening));
        }
        Self { url, tls, insecure, hosts, port }
    }

    /// Whether a `Host` header names this server.
    pub fn accepts_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|h| h.eq_ignore_ascii_case(host))
    }

    /// Whether an `Origin` header is one of ours.
    pub fn accepts_origin(&self, origin: &str) -> bool {
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        if origin.eq_ignore_ascii_case(&self.url) {
            return true;
        }
        scheme == "http" && !self.tls && self.accepts_host(host)
            // A worker or a person on the machine itself, beside a TLS proxy.
            || scheme == "http" && ["localhost", "127.0.0.1", "[::1]"].iter().any(|h| host == format!("{h}:{}", self.port))
    }

    /// The cookie's name. Cookies are shared across ports, so on loopback it holds the port.
    pub fn cookie(&self) -> String {
        if self.tls { "__Host-countersign".to_owned() } else { format!("countersign-{}", self.port) }
    }
}

fn written(at: SocketAddr) -> String {
    if at.ip().is_unspecified() { format!("127.0.0.1:{}", at.port()) } else { at.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn loopback_accepts_its_names_and_nothing_else() {
        let reach = Reach::new(None, at("127.0.0.1:7717"));
        assert_eq!(reach.url, "http://127.0.0.1:7717");
        assert!(reach.accepts_host("localhost:7717"));
        assert!(!reach.accepts_host("localhost:7718"));
        assert!(!reach.accepts_host("evil.example"));
        assert!(reach.accepts_origin("http://localhost:7717"));
        assert!(!reach.accepts_origin("https://evil.example"));
        assert!(!reach.accepts_origin("null"));
        assert_eq!(reach.cookie(), "countersign-7717");
    }

    #[test]
    fn a_public_address_behind_tls_has_strict_cookies() {
        let url = Url::parse("https://decide.example/").expect("a url");
        let reach = Reach::new(Some(&url), at("0.0.0.0:80"));
        assert!(reach.tls && !reach.insecure);
        assert!(reach.accepts_host("decide.example"));
        assert!(reach.accepts_origin("https://decide.example"));
        assert!(!reach.accepts_origin("http://decide.example"));
        assert_eq!(reach.cookie(), "__Host-countersign");
    }

    #[test]
    fn a_path_behind_the_host_is_refused() {
        for good in ["https://decide.example", "https://decide.example/", "http://127.0.0.1:80"] {
            assert!(own_address(good).is_ok(), "{good}");
        }
        for bad in
            ["https://box.example/decide", "https://box.example/?a", "decide.example", "ftp://x", "box:80"]
        {
            assert!(own_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_http_elsewhere_is_told_apart() {
        let url = Url::parse("http://box.lan:7717").expect("a url");
        assert!(Reach::new(Some(&url), at("0.0.0.0:7717")).insecure);
    }
}
