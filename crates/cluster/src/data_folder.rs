//! The data folder, held by one process at a time.
//!
//! The lock is an `flock` on the file `lock` in it, which the kernel drops with
//! the process, however it ends; the number written in the file is only for the
//! message. The file is never removed: two processes could then hold a lock each
//! on a file of that name.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A data folder that belongs to this process until it is dropped.
pub struct DataFolder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// Why the data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// Another process holds it.
    #[error("The data folder {} is in use{}. Stop that one first, or choose another data folder.", path.display(), by(*pid))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who holds it, where that can be read.
        pid: Option<u32>,
    },
    /// Others may change what is in it.
    #[error("The data folder {} can be changed by other users. Close it with: chmod 700 {}", path.display(), path.display())]
    Open {
        /// The folder.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error("The data folder {} belongs to another user (uid {owner}). Choose another, or start Countersign as that user.", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The operating system refused something.
    #[error("The data folder {} can't be used: {source}.", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by another Countersign (process {pid})")).unwrap_or_default()
}

impl DataFolder {
    /// Makes the folder where it is missing, and locks it.
    ///
    /// It is closed to other users. For root it lets them pass through (0711),
    /// not look: the user `countersign` must reach the cluster inside.
    pub fn open(path: &Path) -> Result<Self, DataFolderError> {
        let root = rustix::process::geteuid().is_root();
        let io = |source| DataFolderError::Io { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        match DirBuilder::new().mode(if root { 0o711 } else { 0o700 }).create(path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(cause)),
            _ => {}
        }
        let metadata = path.metadata().map_err(io)?;
        let mode = metadata.mode() & 0o777;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(DataFolderError::Foreign { path: path.to_owned(), owner: metadata.uid() });
        }
        if mode & 0o022 != 0 {
            return Err(DataFolderError::Open { path: path.to_owned() });
        }
        // Also mends what a strict umask took away when the folder was made.
        if root && mode & 0o011 != 0o011 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | 0o011)).map_err(io)?;
        }
        let path = path.canonicalize().map_err(io)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = lock.read_to_string(&mut text);
                return Err(DataFolderError::InUse { path, pid: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(io)?;
        Ok(Self { path, _lock: lock })
    }

    /// Its absolute path, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the data is when nobody says otherwise: `/var/lib/countersign` for
    /// root (`/root` cannot be entered by the user that runs Postgres), else the
    /// folder the platform has for it. `None` without a home folder.
    pub fn default_path() -> Option<PathBuf> {
        let root = rustix::process::geteuid().is_root();
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        default_path(root, cfg!(target_os = "macos"), folder("XDG_DATA_HOME"), folder("HOME"))
    }
}

fn default_path(root: bool, mac: bool, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from("/var/lib/countersign"));
    }
    if mac {
        return Some(home?.join("Library/Application Support/countersign"));
    }
    Some(xdg.or_else(|| Some(home?.join(".local/share")))?.join("countersign"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_the_platform() {
        let home = || Some(PathBuf::from("/home/ada"));
        let shown = |path: Option<PathBuf>| path.unwrap().display().to_string();
        assert_eq!(shown(default_path(true, false, None, home())), "/var/lib/countersign");
        assert_eq!(shown(default_path(false, false, None, home())), "/home/ada/.local/share/countersign");
        assert_eq!(shown(default_path(false, false, Some("/x".into()), home())), "/x/countersign");
        assert_eq!(
            shown(default_path(false, true, None, home())),
            "/home/ada/Library/Application Support/countersign"
        );
        assert_eq!(default_path(false, false, None, None), None);
    }
}
