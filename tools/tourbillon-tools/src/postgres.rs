//! A PostgreSQL server for the tests or measurements of one process.
//!
//! `TOURBILLON_TEST_POSTGRES=URL` names a running server. Otherwise the binaries of the Debian package `postgresql` make a cluster in a
//! temporary directory, without a port: only its Unix socket is open. A shell waits for the end of the process, however that ends, and
//! then ends the server and removes the directory. A test can stop the server of a cluster of its own, and start it again.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A server that runs.
#[derive(Debug)]
pub struct Cluster {
    url: String,
    /// What starts and stops the server; `None` if it is not this process's.
    own: Option<OwnServer>,
}

/// The server of a cluster that this process has made.
#[derive(Debug)]
struct OwnServer {
    programs: PathBuf,
    directory: PathBuf,
    user: Option<(u32, u32)>,
    options: String,
    /// Its standard input is open as long as this process lives.
    _guard: Child,
}

/// How a server is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopMode {
    /// It ends all connections, and writes what it has in memory.
    Fast,
    /// It ends at once, as by a crash, and recovers when it is started again.
    Immediate,
}

/// Returns the address of the server, which is started with the first call; `None` on a machine that has none, after saying so.
#[must_use]
pub fn url() -> Option<&'static str> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| match env::var("TOURBILLON_TEST_POSTGRES") {
        Ok(url) => Ok(Cluster { url, own: None }),
        Err(_) => Cluster::start("-c fsync=off"),
    });
    match cluster {
        Ok(cluster) => Some(cluster.url()),
        Err(reason) => {
            println!("NOT TESTED ON POSTGRESQL: {reason}, and TOURBILLON_TEST_POSTGRES is not set");
            None
        }
    }
}

impl Cluster {
    /// Makes a cluster and starts its server with these options.
    ///
    /// # Errors
    /// The text says what is missing.
    ///
    /// # Panics
    /// The binaries are there and do not work: that is no reason to skip tests.
    pub fn start(options: &str) -> Result<Cluster, String> {
        let programs = programs().ok_or("the package `postgresql` is not installed")?;
        let directory = temporary_directory();
        let user = unprivileged_user(&directory);
        let data = directory.join("data");
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--pgdata"]);
        let made = as_user(&mut initdb, user).arg(&data).current_dir(&directory).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let script = format!(
            "trap '' INT TERM HUP
            cat >/dev/null
            '{pg_ctl}' stop -D '{data}' -m fast
            rm -rf '{socket}'",
            pg_ctl = programs.join("pg_ctl").display(),
            data = data.display(),
            socket = directory.display(),
        );
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = as_user(&mut shell, user).current_dir(&directory).spawn().expect("a shell runs");
        let url = format!("host={} user=postgres dbname=postgres", directory.display());
        let own = OwnServer { programs, directory, user, options: options.to_owned(), _guard: guard };
        own.start();
        Ok(Cluster { url, own: Some(own) })
    }

    /// Stops the server, and returns when it has ended.
    ///
    /// # Panics
    /// The server is not one that [`start`](Cluster::start) has made, or does not end.
    pub fn stop(&self, mode: StopMode) {
        self.own().stop(mode);
    }

    /// Starts the server that was stopped, and returns when it takes connections.
    ///
    /// # Panics
    /// The server is not one that [`start`](Cluster::start) has made, or does not start.
    pub fn start_again(&self) {
        self.own().start();
    }

    /// Starts the server that was stopped as a standby, which can be read and not written until it is promoted (`SELECT pg_promote()`).
    ///
    /// # Panics
    /// The server is not one that [`start`](Cluster::start) has made, or does not start.
    pub fn start_as_standby(&self) {
        let own = self.own();
        let signal = own.directory.join("data/standby.signal");
        fs::write(&signal, "").expect("the directory is ours");
        if let Some((uid, gid)) = own.user {
            chown(&signal, Some(uid), Some(gid)).expect("root can give a file away");
        }
        own.start();
    }

    fn own(&self) -> &OwnServer {
        self.own.as_ref().expect("only a server that this process has made is stopped")
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl OwnServer {
    fn start(&self) {
        let socket = self.directory.display();
        let options = format!("-k '{socket}' -c listen_addresses= -c max_connections=200 {}", self.options);
        self.control(&["start", "-w", "-l", &self.log().display().to_string(), "-o", &options]);
    }

    fn stop(&self, mode: StopMode) {
        let mode = match mode {
            StopMode::Fast => "fast",
            StopMode::Immediate => "immediate",
        };
        self.control(&["stop", "-w", "-m", mode]);
    }

    /// Runs `pg_ctl`, which waits for what it was asked for.
    fn control(&self, arguments: &[&str]) {
        let mut command = Command::new(self.programs.join("pg_ctl"));
        command.args(arguments).arg("-D").arg(self.directory.join("data")).args(["-t", "60"]).stdin(Stdio::null());
        let done = as_user(&mut command, self.user).current_dir(&self.directory).output().expect("pg_ctl runs");
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        assert!(done.status.success(), "pg_ctl {}:\n{}\n{log}", arguments[0], String::from_utf8_lossy(&done.stderr));
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}

/// Finds the newest installed binaries.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number)?;
    Some(newest.join("bin"))
}

/// Makes a directory whose name is short: the name of a socket has at most 107 bytes.
fn temporary_directory() -> PathBuf {
    for number in 0.. {
        let path = Path::new("/tmp").join(format!("tourbillon-pg-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
                return path;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    unreachable!("some name is free")
}

/// Returns the user and group that the server runs as, if this process is root: PostgreSQL refuses to run as root.
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

fn as_user(command: &mut Command, user: Option<(u32, u32)>) -> &mut Command {
    match user {
        Some((uid, gid)) => command.uid(uid).gid(gid),
        None => command,
    }
}
