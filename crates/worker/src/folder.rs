//! Where a worker keeps things: its data folder, held under a lock, and a short
//! folder for unix sockets, whose paths must stay under 100 bytes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use domain::id::{Incarnation, SessionId};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Why the data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("Another worker is using {0}. Stop it, or give this one its own folder with --data.")]
    Held(PathBuf),
    #[error(
        "{0} belongs to somebody else, or others may enter it. Remove it, or set XDG_RUNTIME_DIR to a folder of your own."
    )]
    Unsafe(PathBuf),
    #[error("{0} cannot be used: {1}.")]
    Io(PathBuf, io::Error),
}

/// The data folder of a worker. Held until dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    sockets: PathBuf,
    id: Uuid,
    _lock: File,
}

impl DataFolder {
    /// `$XDG_DATA_HOME/countersign/worker` or its usual place.
    pub fn usual() -> Option<PathBuf> {
        let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
        Some(base.join("countersign/worker"))
    }

    /// Opens the folder, makes what is missing, and takes its lock.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |e| FolderError::Io(path, e)
        };
        make_private(path).map_err(at(path))?;
        let path = path.canonicalize().map_err(at(path))?;
        let lock = private(OpenOptions::new().write(true).create(true).truncate(false))
            .open(path.join("lock"))
            .map_err(at(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| FolderError::Held(path.clone()))?;
        make_private(&path.join("sessions")).map_err(at(&path))?;
        let id = folder_id(&path.join("folder-id")).map_err(at(&path))?;
        let sockets = socket_folder(&path)?;
        Ok(Self { path, sockets, id, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the server knows this folder by.
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// The folder of a session; made if it is missing.
    pub fn session(&self, key: SessionId) -> io::Result<PathBuf> {
        let path = self.path.join("sessions").join(key.to_string());
        make_private(&path)?;
        Ok(path)
    }

    /// Every session that has a folder.
    pub fn sessions(&self) -> io::Result<Vec<SessionId>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.path.join("sessions"))? {
            if let Some(key) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
                all.push(key);
            }
        }
        Ok(all)
    }

    /// The socket of a holder.
    pub fn socket(&self, incarnation: Incarnation) -> PathBuf {
        // The random end of the id: version 4 and 7 both have it there.
        let id = incarnation.0.simple().to_string();
        self.sockets.join(format!("{}.sock", &id[16..]))
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // Only where no holder listens in it any more: otherwise it is not empty.
        let _ = fs::remove_dir(&self.sockets);
    }
}

/// Makes a folder and its parents, open to the owner alone.
pub fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Options for a file that only its owner may read.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Writes a small private file whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private(OpenOptions::new().write(true).create(true).truncate(true)).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder_of(path)
}

/// Makes sure that a file that was made or renamed is found under its name after the
/// machine has failed.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn folder_id(path: &Path) -> io::Result<Uuid> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::now_v7();
            write_whole(path, id.to_string().as_bytes())?;
            Ok(id)
        }
        Err(e) => Err(e),
    }
}

/// A folder with a short path, ours alone: an existing one of another owner or with a
/// wider mode could be a trap laid in `/tmp`.
fn socket_folder(data: &Path) -> Result<PathBuf, FolderError> {
    let uid = rustix::process::getuid().as_raw();
    let path = socket_folder_of(data);
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(FolderError::Io(path, e)),
    }
    let found = fs::symlink_metadata(&path).map_err(|e| FolderError::Io(path.clone(), e))?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(FolderError::Unsafe(path));
    }
    Ok(path)
}

/// Where the sockets of the data folder with this canonical path are.
pub fn socket_folder_of(data: &Path) -> PathBuf {
    let hash = hex::encode(&Sha256::digest(data.as_os_str().as_encoded_bytes())[..4]);
    let uid = rustix::process::getuid().as_raw();
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    run.filter(|r| r.is_absolute() && r.is_dir() && r.as_os_str().len() < 50)
        .map_or_else(|| PathBuf::from(format!("/tmp/cs-{uid}-{hash}")), |r| r.join(format!("cs-{hash}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_worker_is_kept_out_and_the_id_stays() {
        let path = std::env::temp_dir().join(format!("cs-folder-{}", Uuid::new_v4()));
        let first = DataFolder::open(&path).unwrap();
        assert!(matches!(DataFolder::open(&path), Err(FolderError::Held(_))));
        let (id, sockets) = (first.id(), first.sockets.clone());
        drop(first);
        let again = DataFolder::open(&path).unwrap();
        assert_eq!(again.id(), id);
        assert!(sockets.as_os_str().len() < 80);
        drop(again);
        fs::create_dir(&sockets).unwrap();
        fs::set_permissions(&sockets, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(DataFolder::open(&path), Err(FolderError::Unsafe(_))));
        fs::remove_dir(sockets).unwrap();
        fs::remove_dir_all(path).unwrap();
    }
}
