//! A PostgreSQL server for the tests or measurements of one process.
//!
//! `TOURBILLON_TEST_POSTGRES=URL` names a running server. Otherwise the binaries of the Debian package `postgresql` make a cluster in a
//! temporary directory, without a port: only its Unix socket is open. A shell waits for the end of the process, however that ends, and
//! then ends the server and removes the directory.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// A server that runs.
#[derive(Debug)]
pub struct Cluster {
    url: String,
    /// Its standard input is open as long as this process lives.
    _guard: Option<Child>,
}

/// Returns the address of the server, which is started with the first call; `None` on a machine that has none, after saying so.
#[must_use]
pub fn url() -> Option<&'static str> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| match env::var("TOURBILLON_TEST_POSTGRES") {
        Ok(url) => Ok(Cluster { url, _guard: None }),
        Err(_) => Cluster::start("-c fsync=off"),
    });
    match cluster {
        Ok(cluster) => Some(cluster.url()),
        Err(reason) => {
            println!("NOT TESTED ON POSTGRESQL: {reason}");
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
        let programs =
            programs().ok_or("the package `postgresql` is not installed, and TOURBILLON_TEST_POSTGRES is not set")?;
        let directory = temporary_directory();
        let user = unprivileged_user(&directory);
        let data = directory.join("data");
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--pgdata"]);
        let made = as_user(&mut initdb, user).arg(&data).current_dir(&directory).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let script = format!(
            "trap '' INT TERM HUP
            '{postgres}' -D '{data}' -k '{socket}' -c listen_addresses= -c max_connections=200 {options} >'{socket}/log' 2>&1 &
            cat >/dev/null
            kill -INT $!; wait $!
            rm -rf '{socket}'",
            postgres = programs.join("postgres").display(),
            data = data.display(),
            socket = directory.display(),
        );
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = as_user(&mut shell, user).current_dir(&directory).spawn().expect("a shell runs");
        wait_for(&directory);
        let url = format!("host={} user=postgres dbname=postgres", directory.display());
        Ok(Cluster { url, _guard: Some(guard) })
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
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

/// Waits until the server takes connections: it then says so in the last line of its file of the process.
fn wait_for(directory: &Path) {
    let start = Instant::now();
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    while read("data/postmaster.pid").lines().last().map(str::trim) != Some("ready") {
        assert!(start.elapsed() < Duration::from_secs(60), "PostgreSQL did not start:\n{}", read("log"));
        thread::sleep(Duration::from_millis(20));
    }
}
