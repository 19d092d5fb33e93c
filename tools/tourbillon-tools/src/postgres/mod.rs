//! A PostgreSQL server for the tests or measurements of one process, and PgBouncer before it.
//!
//! `TOURBILLON_TEST_POSTGRES=URL` names a running server. Otherwise the binaries of the Debian package `postgresql`, or those in the folder
//! `TOURBILLON_TEST_POSTGRES_BIN` (if that is empty: no binaries at all), make a cluster in a temporary directory, without a port: only its Unix socket is open. A shell waits for
//! the end of the process, however that ends, and then ends the server and removes the directory. A test can stop the server of a cluster
//! of its own, and start it again. [`Pooler`] does the same with PgBouncer.

mod place;
mod pooler;

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use place::ServerPlace;
pub use pooler::{PoolMode, Pooler};

use crate::not_tested;

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
    place: ServerPlace,
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
            not_tested("ON POSTGRESQL", &format!("{reason}, and TOURBILLON_TEST_POSTGRES is not set"));
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
        Ok(Cluster::start_in(ServerPlace::new(), programs, options))
    }

    /// Makes a cluster whose data are below a directory, and starts its server with these options.
    ///
    /// # Errors
    /// The text says what is missing.
    ///
    /// # Panics
    /// The binaries are there and do not work, as when the user `postgres` cannot reach the directory.
    pub fn start_below(directory: &Path, options: &str) -> Result<Cluster, String> {
        let programs = programs().ok_or("the package `postgresql` is not installed")?;
        Ok(Cluster::start_in(ServerPlace::with_data_below(directory), programs, options))
    }

    fn start_in(place: ServerPlace, programs: PathBuf, options: &str) -> Cluster {
        let (directory, data) = (&place.directory, &place.data);
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--pgdata"]);
        let made = place.run_there(initdb.arg(data)).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let stop = format!("'{}' stop -D '{}' -m fast", programs.join("pg_ctl").display(), data.display());
        let guard = place.guard("", &stop);
        let url = format!("host={} user=postgres dbname=postgres", directory.display());
        let own = OwnServer { programs, place, options: options.to_owned(), _guard: guard };
        own.start();
        Cluster { url, own: Some(own) }
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
        let signal = own.place.data.join("standby.signal");
        fs::write(&signal, "").expect("the directory is ours");
        if let Some((uid, gid)) = own.place.user {
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
        let socket = self.place.directory.display();
        let options = format!("-k '{socket}' -c listen_addresses= -c max_connections=200 {}", self.options);
        self.control(&["start", "-w", "-l", &self.place.log().display().to_string(), "-o", &options]);
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
        command.args(arguments).arg("-D").arg(&self.place.data).args(["-t", "60"]);
        let done = self.place.run_there(command.stdin(Stdio::null())).output().expect("pg_ctl runs");
        let log = fs::read_to_string(self.place.log()).unwrap_or_default();
        assert!(done.status.success(), "pg_ctl {}:\n{}\n{log}", arguments[0], String::from_utf8_lossy(&done.stderr));
    }
}

/// Finds the binaries: those that `TOURBILLON_TEST_POSTGRES_BIN` names, or the newest that Debian has installed. An empty name hides the latter.
fn programs() -> Option<PathBuf> {
    if let Some(named) = env::var_os("TOURBILLON_TEST_POSTGRES_BIN") {
        if named.is_empty() {
            return None;
        }
        let named = PathBuf::from(named);
        assert!(named.join("initdb").exists(), "TOURBILLON_TEST_POSTGRES_BIN: there is no {}/initdb", named.display());
        return Some(named);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number)?;
    Some(newest.join("bin"))
}
