//! The path of a Unix socket: bound so that only its owner can ever connect, and taken over only from a process that is gone.
//!
//! The address of a socket has room for about a hundred bytes. A longer path is an [error](InspectError::PathTooLong): clients could not
//! connect to it. The new socket first has another path, in a folder beside its own, which may be longer. Then Linux reaches it by the number
//! of the opened folder, `/proc/self/fd/7/s`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::inspect::{Address, InspectError};

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

/// A folder beside a path that only this user can enter. Dropping it removes it, and what may be in it.
struct PrivateFolder {
    path: PathBuf,
    /// A path of the same folder under which sockets can be bound.
    short: PathBuf,
    /// Open as long as `short` is used, if that names the folder by its number.
    _opened: Option<File>,
}

/// The names in the folder: of a new socket, and of an old one.
const NEW: &str = "s";
const OLD: &str = "o";
/// The most bytes of a path, without the zero at its end.
const LONGEST: usize = if cfg!(any(target_os = "linux", target_os = "android")) { 107 } else { 103 };
/// How many names of folders are tried. One is taken only if a process with the same id was killed here.
const TRIES: u32 = 16;

impl PrivateFolder {
    fn beside(path: &Path) -> io::Result<PrivateFolder> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let mut tries = 0;
        loop {
            // Short, for systems on which the socket in it has only this path.
            let folder = parent.join(format!(".{:x}{tries:x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return PrivateFolder::reached(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds a path of the folder that is short enough.
    fn reached(path: PathBuf) -> io::Result<PrivateFolder> {
        let mut folder = PrivateFolder { short: path.clone(), path, _opened: None };
        if cfg!(tourbillon_proc) && SocketAddr::from_pathname(folder.path.join(NEW)).is_err() {
            let opened = File::open(&folder.path)?;
            folder.short = format!("/proc/self/fd/{}", opened.as_raw_fd()).into();
            folder._opened = Some(opened);
        }
        Ok(folder)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What is not there cannot be removed.
        for name in [NEW, OLD] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns an error if no socket can have this path.
pub(super) fn check_length(path: &Path) -> Result<(), InspectError> {
    match path.as_os_str().len() > LONGEST {
        true => Err(InspectError::PathTooLong { path: path.to_owned(), longest: LONGEST }),
        false => Ok(()),
    }
}

/// Binds a socket that only its owner may use. It gets its path when it has its permissions: before that, other users cannot reach it.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = PrivateFolder::beside(path)?;
    let new = folder.short.join(NEW);
    let socket = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    // Unlike a rename, a link does not replace the socket of a process that was faster.
    fs::hard_link(&new, path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
        _ => error,
    })?;
    Ok(socket)
}

/// Removes a socket that no process listens at.
pub(super) fn remove_stale(path: &Path) -> Result<(), InspectError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(InspectError::NotASocket(path.to_owned()));
    }
    let address = || Address::Unix(path.to_owned());
    match UnixStream::connect(path) {
        Ok(_) => Err(InspectError::InUse(address())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match take_away(path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(InspectError::InUse(address())),
            Err(error) => Err(InspectError::Refused(address(), error)),
        },
        Err(error) => Err(InspectError::Refused(address(), error)),
    }
}

/// Removes the socket at `path` and returns `true`, unless another process has put its own there meanwhile, which stays. (Its inode may be
/// that of the old socket.)
fn take_away(path: &Path) -> io::Result<bool> {
    let folder = PrivateFolder::beside(path)?;
    let old = folder.short.join(OLD);
    match fs::rename(path, &old) {
        Ok(()) => {}
        // Another process has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(&old) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        _ => fs::hard_link(&old, path).map(|()| false),
    }
}

pub(super) fn file_id(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder whose path has this many bytes.
    #[cfg(tourbillon_proc)]
    fn folder_of_length(length: usize) -> PathBuf {
        let name = format!("tourbillon-long-{}", std::process::id());
        let temp = std::env::temp_dir().join(&name);
        // The folder for temporary files may have a long path itself.
        let temp = if temp.as_os_str().len() + 2 > length { Path::new("/tmp").join(name) } else { temp };
        let folder = temp.join("f".repeat(length - temp.as_os_str().len() - 1));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    #[cfg(tourbillon_proc)]
    fn e9_p6_a_socket_can_have_the_longest_path_that_the_system_allows_and_no_longer_one() {
        let folder = folder_of_length(LONGEST - "/a".len());
        let path = folder.join("a");
        assert_eq!(path.as_os_str().len(), LONGEST);
        check_length(&path).unwrap();
        let socket = bind(&path).unwrap();
        UnixStream::connect(&path).expect("clients can use the path");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!take_away(&path).unwrap(), "a process listens");
        drop(socket);
        remove_stale(&path).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left behind");

        let longer = folder.join("ab");
        let Err(error @ InspectError::PathTooLong { .. }) = check_length(&longer) else { panic!("it is too long") };
        assert!(error.to_string().contains("has 108 bytes"), "{error}");
        assert!(SocketAddr::from_pathname(&longer).is_err(), "the system says the same");
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn e9_a_socket_that_took_the_place_of_a_stale_one_is_not_removed() {
        let folder = std::env::temp_dir().join(format!("tourbillon-path-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.sock");
        drop(bind(&path).unwrap());

        // Two processes have found it stale; one has been faster.
        assert!(take_away(&path).unwrap());
        let fresh = bind(&path).unwrap();
        assert!(!take_away(&path).unwrap());
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("the fresh socket is at its path");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(fresh);

        remove_stale(&path).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left behind");
        fs::remove_dir(folder).unwrap();
    }
}
