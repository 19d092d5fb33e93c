//! PgBouncer before a PostgreSQL server.
//!
//! The Debian package `pgbouncer` has it, or `TOURBILLON_TEST_PGBOUNCER=PATH` names the program. Only its Unix socket is open.

use std::env;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::place::ServerPlace;

/// It names the socket. Nothing listens on it.
const PORT: u16 = 6432;

/// How long PgBouncer may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// From this version on PgBouncer can know named prepared statements in transaction mode.
const KNOWS_PREPARED_STATEMENTS: (u32, u32) = (1, 21);

/// For how long a client of the pooler has a connection of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolMode {
    /// Until the client disconnects.
    Session,
    /// Until its transaction ends. The next one may be on another connection of the server.
    Transaction,
    /// The same, and the pooler prepares the client's statements on each connection on which they are used.
    TransactionPrepared,
}

/// A PgBouncer that runs until it is dropped.
#[derive(Debug)]
pub struct Pooler {
    url: String,
    /// Its standard input is open as long as this process lives.
    _guard: Child,
}

impl Pooler {
    /// Starts a pooler before a server, whose address has the form `host=... user=... dbname=...`, with so many connections to it.
    ///
    /// # Errors
    /// The text says what is missing.
    ///
    /// # Panics
    /// PgBouncer is there and does not work: that is no reason to skip tests.
    pub fn start(server: &str, mode: PoolMode, connections: u32) -> Result<Pooler, String> {
        let program = program().ok_or("the package `pgbouncer` is not installed")?;
        if server.contains("://") {
            return Err("PgBouncer reads addresses of the form host=... only, and the server's has another".to_owned());
        }
        let version = version(&program);
        let prepared = match mode {
            PoolMode::TransactionPrepared if version < KNOWS_PREPARED_STATEMENTS => {
                return Err(format!("PgBouncer {}.{} does not know prepared statements", version.0, version.1));
            }
            PoolMode::TransactionPrepared => "max_prepared_statements = 100",
            _ if version < KNOWS_PREPARED_STATEMENTS => "",
            _ => "max_prepared_statements = 0",
        };
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction | PoolMode::TransactionPrepared => "transaction",
        };
        let place = ServerPlace::new();
        let settings = place.directory.join("pgbouncer.ini");
        let text = format!(
            "[databases]\ntimers = {server}\n[pgbouncer]\nunix_socket_dir = {socket}\nlisten_port = {PORT}\nauth_type = any\n\
             pool_mode = {mode}\n{prepared}\nmax_client_conn = 400\ndefault_pool_size = {connections}\nlogfile = {log}\n",
            socket = place.directory.display(),
            log = place.log().display(),
        );
        fs::write(&settings, text).expect("the directory is ours");
        let begin = format!("'{}' -q '{}' </dev/null &", program.display(), settings.display());
        let guard = place.guard(&begin, "kill $!\nwait");
        let (socket, start) = (place.directory.join(format!(".s.PGSQL.{PORT}")), Instant::now());
        while UnixStream::connect(&socket).is_err() {
            let log = || fs::read_to_string(place.log()).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "PgBouncer does not start:\n{}", log());
            thread::sleep(Duration::from_millis(10));
        }
        let url = format!("host={} port={PORT} user=postgres dbname=timers", place.directory.display());
        Ok(Pooler { url, _guard: guard })
    }

    /// Returns the address of the pooler, for clients.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Finds PgBouncer: Debian installs it where only root looks for programs.
fn program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("TOURBILLON_TEST_PGBOUNCER") {
        let named = PathBuf::from(named);
        assert!(named.exists(), "TOURBILLON_TEST_PGBOUNCER: there is no {}", named.display());
        return Some(named);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.exists())
}

fn version(program: &PathBuf) -> (u32, u32) {
    let told = Command::new(program).arg("--version").output().expect("pgbouncer runs");
    let told = String::from_utf8_lossy(&told.stdout);
    let number = told.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = number.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => panic!("pgbouncer --version says {told:?}"),
    }
}
