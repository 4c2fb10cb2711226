//! The programs of Postgres on this machine: `postgres` and `initdb`, as a pair
//! from one folder. A cluster made by one major version is only read by that
//! version, so the data folder chooses; a new one gets the newest.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sqlx::postgres::PgConnection;

use crate::account::Account;
use crate::npm::{self, Npm};
use crate::{ClusterError, OLDEST, Say};

/// A version of Postgres: `15.18`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Decides which programs read which data.
    pub major: u32,
    /// Repairs only.
    pub minor: u32,
}

impl Version {
    /// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, or the part
    /// with the number alone; `19beta1` is 19.0.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        let mut parts = number.split(|c: char| !c.is_ascii_digit());
        let major = parts.next()?.parse().ok()?;
        let dotted = number.contains('.');
        let minor = parts.next().filter(|_| dotted).and_then(|part| part.parse().ok()).unwrap_or(0);
        Some(Self { major, minor })
    }

    pub(crate) async fn of_server(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let text: String = sqlx::query_scalar("SHOW server_version").fetch_one(connection).await?;
        Self::parse(&text).ok_or_else(|| sqlx::Error::Protocol(format!("unknown server version {text}")))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where programs came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// They were on this machine.
    Installed,
    /// Countersign fetched them with npm.
    Npm,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Installed => "installed",
            Self::Npm => "npm's",
        })
    }
}

/// `postgres` and `initdb` of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The folder of both, without symlinks: `postgres` finds its libraries from there.
    pub bin: PathBuf,
    /// What `postgres --version` says.
    pub version: Version,
    /// Where they came from.
    pub origin: Origin,
}

impl Programs {
    pub(crate) fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    pub(crate) fn initdb(&self) -> PathBuf {
        self.bin.join("initdb")
    }

    /// The programs in `bin`, if both are there and run as `account`.
    pub(crate) fn at(bin: &Path, origin: Origin, account: Option<Account>) -> Option<Self> {
        // A link in PATH stands for the folder it points into; a wrapper script is its own.
        let postgres = bin.join("postgres").canonicalize().ok()?;
        let bin = postgres.parent()?.to_owned();
        if !bin.join("initdb").exists() {
            return None;
        }
        let mut command = Command::new(&postgres);
        command.arg("--version").current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        let told = command.output().ok().filter(|told| told.status.success())?;
        let version = Version::parse(&String::from_utf8_lossy(&told.stdout))?;
        Some(Self { bin, version, origin })
    }
}

/// The folders to look in, in order.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Folders that may hold `postgres` and `initdb`.
    pub folders: Vec<PathBuf>,
    /// The same in words, for a message.
    pub words: String,
}

impl Search {
    /// `PATH`, Debian's folder, Homebrew's kegs and Postgres.app.
    pub fn of_this_machine(path: Option<&OsStr>) -> Self {
        const PATTERNS: [(&str, &str, &str); 5] = [
            ("/usr/lib/postgresql", "", "bin"),
            ("/usr", "pgsql-", "bin"),
            ("/opt/homebrew/opt", "postgresql@", "bin"),
            ("/usr/local/opt", "postgresql@", "bin"),
            ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
        ];
        let mut folders: Vec<PathBuf> = path
            .map(|path| std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect())
            .unwrap_or_default();
        for (root, prefix, last) in PATTERNS {
            let Ok(entries) = std::fs::read_dir(root) else { continue };
            let mut found: Vec<PathBuf> = entries
                .filter_map(Result::ok)
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.path().join(last))
                .collect();
            found.sort();
            folders.append(&mut found);
        }
        Self {
            folders,
            words: "PATH, /usr/lib/postgresql, the kegs of Homebrew, Postgres.app and npm's package"
                .to_owned(),
        }
    }
}

/// The installed programs to use: those of the major version `wanted`, or the
/// newest that is new enough when any will do. The newest repair wins.
pub fn find_programs(search: &Search, wanted: Option<u32>) -> Option<Programs> {
    find_for(search, wanted, None)
}

fn find_for(search: &Search, wanted: Option<u32>, account: Option<Account>) -> Option<Programs> {
    let mut seen = Vec::new();
    search
        .folders
        .iter()
        .filter_map(|folder| folder.join("postgres").canonicalize().ok()?.parent().map(Path::to_owned))
        .filter(|bin| {
            let new = !seen.contains(bin);
            seen.push(bin.clone());
            new
        })
        .filter_map(|bin| Programs::at(&bin, Origin::Installed, account))
        .filter(|found| match wanted {
            Some(major) => found.version.major == major,
            None => found.version.major >= OLDEST,
        })
        .max_by_key(|found| found.version)
}

/// The major version that made the cluster in `folder`, `None` when there is none yet.
pub(crate) fn version_of_folder(folder: &Path) -> Result<Option<u32>, ClusterError> {
    let file = folder.join("PG_VERSION");
    match std::fs::read_to_string(&file) {
        Ok(text) => match Version::parse(&text) {
            Some(version) => Ok(Some(version.major)),
            None => Err(ClusterError::Io {
                doing: format!("reading {}", file.display()),
                source: std::io::Error::other("it holds no version"),
            }),
        },
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ClusterError::Io { doing: format!("reading {}", file.display()), source }),
    }
}

/// Installed programs, else npm's.
pub(crate) async fn choose(
    search: &Search,
    npm: &Npm,
    data: &Path,
    wanted: Option<u32>,
    account: Option<Account>,
    say: Say<'_>,
) -> Result<Programs, ClusterError> {
    if let Some(found) = find_for(search, wanted, account) {
        return Ok(found);
    }
    match (npm::programs(npm, data, wanted, account, say).await, wanted) {
        (Ok(found), _) => Ok(found),
        (Err(_), Some(version)) => Err(ClusterError::NoSuchVersion {
            folder: data.join(crate::postmaster::FOLDER),
            version,
            looked: search.words.clone(),
        }),
        (Err(npm), None) => {
            let os_release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
            Err(ClusterError::NoPrograms {
                npm,
                install: install_line(cfg!(target_os = "macos"), &os_release),
            })
        }
    }
}

/// How to install Postgres here, as one sentence.
fn install_line(mac: bool, os_release: &str) -> String {
    if mac {
        return "Install it with: brew install postgresql@17".to_owned();
    }
    let ids: Vec<&str> = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .collect();
    let command = ids.iter().find_map(|&id| match id {
        "debian" | "ubuntu" => Some("sudo apt-get install postgresql"),
        "fedora" | "rhel" | "centos" => Some("sudo dnf install postgresql-server"),
        "alpine" => Some("apk add postgresql"),
        "arch" => Some("sudo pacman -S postgresql"),
        "suse" | "opensuse" => Some("sudo zypper install postgresql-server"),
        _ => None,
    });
    match command {
        Some(command) => format!("Install it with: {command}"),
        None => format!("Install Postgres {OLDEST} or newer, or set DATABASE_URL to a database you have."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_write_them() {
        let read = |text| Version::parse(text).map(|v| (v.major, v.minor));
        assert_eq!(read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(read("18.4 (Homebrew)"), Some((18, 4)));
        assert_eq!(read("19beta1"), Some((19, 0)));
        assert_eq!(read("15\n"), Some((15, 0)));
        assert_eq!(read("postgres"), None);
    }

    /// A folder with a `postgres` that only tells its version.
    fn pretend(root: &Path, version: &str) -> PathBuf {
        let bin = root.join(version).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for name in ["postgres", "initdb"] {
            std::fs::write(bin.join(name), format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n"))
                .unwrap();
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        bin
    }

    #[test]
    fn the_data_folder_chooses_and_a_new_one_gets_the_newest() {
        let root = std::env::temp_dir().join(format!("cs-programs-{}", uuid::Uuid::now_v7()));
        let folders = ["13.9", "16.2", "15.3", "15.10"].map(|version| pretend(&root, version)).to_vec();
        let search = Search { folders, words: String::new() };
        let found = |wanted| find_programs(&search, wanted).map(|p| p.version.to_string());
        assert_eq!(found(None).as_deref(), Some("16.2"));
        assert_eq!(found(Some(15)).as_deref(), Some("15.10"));
        assert_eq!(found(Some(17)), None);
        let old = Search { folders: vec![root.join("13.9/bin")], words: String::new() };
        assert_eq!(find_programs(&old, None), None, "13 is too old");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_install_line_fits_the_platform() {
        assert!(install_line(false, "ID=ubuntu\nID_LIKE=debian\n").contains("apt-get"));
        assert!(install_line(false, "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"").contains("dnf"));
        assert!(install_line(true, "").contains("brew"));
        assert!(install_line(false, "").contains("DATABASE_URL"));
    }
}
