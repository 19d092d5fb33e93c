//! Where a server of this process lives: a temporary directory, and the user that it runs as.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory of one server, and a user other than root, as which PostgreSQL and PgBouncer refuse to run.
#[derive(Debug)]
pub(super) struct ServerPlace {
    pub(super) directory: PathBuf,
    /// Where PostgreSQL has its data.
    pub(super) data: PathBuf,
    /// The user and the group, if this process is root.
    pub(super) user: Option<(u32, u32)>,
}

impl ServerPlace {
    /// Makes a directory for everything.
    pub(super) fn new() -> ServerPlace {
        let place = ServerPlace::for_socket();
        place.make(&place.data);
        place
    }

    /// Makes a directory below this one for the data, and another one for the socket and the messages.
    pub(super) fn with_data_below(parent: &Path) -> ServerPlace {
        let place = ServerPlace::for_socket();
        let data = parent.join("postgres");
        if place.user.is_some() {
            // The server, which is not root, has to pass.
            let mut permissions = fs::metadata(parent).expect("the directory is there").permissions();
            permissions.set_mode(permissions.mode() | 0o011);
            fs::set_permissions(parent, permissions).expect("root can change a directory");
        }
        place.make(&data);
        ServerPlace { data, ..place }
    }

    fn make(&self, data: &Path) {
        fs::create_dir(data).unwrap_or_else(|error| panic!("{}: {error}", data.display()));
        fs::set_permissions(data, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
        if let Some((uid, gid)) = self.user {
            chown(data, Some(uid), Some(gid)).expect("root can give a directory away");
        }
    }

    /// Makes a directory whose name is short: the name of a socket has at most 107 bytes.
    fn for_socket() -> ServerPlace {
        for number in 0.. {
            let directory = Path::new("/tmp").join(format!("tourbillon-pg-{}-{number}", std::process::id()));
            match fs::create_dir(&directory) {
                Ok(()) => {
                    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
                    let user = unprivileged_user(&directory);
                    return ServerPlace { data: directory.join("data"), directory, user };
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", directory.display()),
            }
        }
        unreachable!("some name is free")
    }

    /// Returns the command with the directory and the user of this place.
    pub(super) fn run_there<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(&self.directory)
    }

    /// Starts a shell that runs `begin`, waits until the process has ended or has dropped the child, runs `end`, and removes the directory.
    pub(super) fn guard(&self, begin: &str, end: &str) -> Child {
        let places = format!("'{}' '{}'", self.data.display(), self.directory.display());
        let script = format!("trap '' INT TERM HUP\n{begin}\ncat >/dev/null\n{end}\nrm -rf {places}");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.run_there(&mut shell).spawn().expect("a shell runs")
    }

    /// Returns the file that the server writes its messages to.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}

/// Returns the user and group that the server runs as, if this process is root.
fn unprivileged_user(directory: &Path) -> Option<(u32, u32)> {
    if fs::metadata(directory).expect("the directory is there").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a Unix has users");
    let user = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(str::parse::<u32>);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    let (uid, gid) = user("postgres").or_else(|| user("nobody")).expect("there is a user other than root");
    chown(directory, Some(uid), Some(gid)).expect("root can give a directory away");
    Some((uid, gid))
}
