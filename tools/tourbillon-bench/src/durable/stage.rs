//! What the cases of a run share: the directory, the PostgreSQL server, and stores with many pending timers, which take long to fill.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tourbillon_durable::Timers;
use tourbillon_tools::postgres::{Cluster, StopMode};

use super::load;
use super::place::{Place, close, fail, runtime};
use crate::system_kind::{DURABLE_EMBEDDED, DURABLE_POSTGRES};

/// Tourbillon on a store of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Backend {
    Embedded,
    Postgres,
}

impl Backend {
    /// The name of the system in figures.
    pub(super) const fn system(self) -> &'static str {
        match self {
            Backend::Embedded => DURABLE_EMBEDDED,
            Backend::Postgres => DURABLE_POSTGRES,
        }
    }
}

/// What the cases of a run share.
pub(super) struct Stage {
    /// Before the directory, which has its data: fields are dropped in this order.
    server: OnceCell<Option<Server>>,
    directory: TempDir,
    filled: RefCell<HashMap<(Backend, usize), Place>>,
    /// Where embedded stores with many timers are kept for other runs.
    kept: Option<PathBuf>,
    next: Cell<u32>,
}

/// A PostgreSQL server.
pub(super) struct Server {
    pub(super) url: String,
    cluster: Option<Cluster>,
}

/// A store that was kept has the number of timers that it is named after, but for one in so many.
const MOST_DIFFERENCE: u64 = 1_000;

/// How the server is started: durable, and with memory for a working set of some million rows.
const SERVER_OPTIONS: &str = "-c shared_buffers=512MB -c min_wal_size=2GB -c max_wal_size=4GB \
     -c shared_preload_libraries=pg_stat_statements";

/// Makes a new server like one that has been in use: its write-ahead log has 128 segments that it uses again. A new server has none. While
/// it creates one, 16 MB of zeros and some synchronisations of the disk, no commit goes on.
const FILL_LOG: &str = "DO $$ BEGIN
        FOR segment IN 1..128 LOOP
            PERFORM pg_logical_emit_message(false, 'tourbillon-bench', '');
            PERFORM pg_switch_wal();
        END LOOP;
    END $$;
    CHECKPOINT";

impl Stage {
    pub(super) fn new(parent: Option<&Path>, kept: Option<PathBuf>) -> Stage {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = tempfile::Builder::new().prefix("tourbillon-durable-").tempdir_in(parent);
        let directory = directory.unwrap_or_else(|error| fail(&error.to_string()));
        if is_in_memory(directory.path()) {
            eprintln!(
                "WARNING: {} is in memory: nothing there is durable, and the figures are those of no disk. Name a directory on a disk with --directory",
                directory.path().display()
            );
        }
        Stage { directory, server: OnceCell::new(), filled: RefCell::default(), kept, next: Cell::new(0) }
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the server, which is started with the first call; `None` on a machine without PostgreSQL, after saying so.
    pub(super) fn server(&self) -> Option<&Server> {
        let start = || match std::env::var("TOURBILLON_TEST_POSTGRES") {
            Ok(url) => Some(Server { url, cluster: None }),
            Err(_) => match Cluster::start_below(self.directory(), SERVER_OPTIONS) {
                Ok(cluster) => {
                    Server::run(cluster.url(), FILL_LOG);
                    Some(Server { url: cluster.url().to_owned(), cluster: Some(cluster) })
                }
                Err(reason) => {
                    eprintln!("NOT MEASURED ON POSTGRESQL: {reason}");
                    None
                }
            },
        };
        self.server.get_or_init(start).as_ref()
    }

    /// Returns a place without a store; `None` if there is no server for it.
    pub(super) fn place(&self, backend: Backend) -> Option<Place> {
        let number = self.next.replace(self.next.get() + 1);
        match backend {
            Backend::Embedded => Some(Place::Directory(self.directory.path().join(format!("store-{number}")))),
            Backend::Postgres => {
                let schema = format!("bench_{}_{number}", std::process::id());
                Some(Place::Schema { url: self.server()?.url.clone(), schema })
            }
        }
    }

    /// Returns a place with so many pending timers that are due in some weeks. It is filled once for all cases.
    pub(super) fn filled(&self, backend: Backend, pending: usize) -> Option<Place> {
        if let Some(place) = self.filled.borrow().get(&(backend, pending)) {
            return Some(place.clone());
        }
        let place = self.place_of_filled(backend, pending)?;
        if !is_filled(&place, pending) {
            self.remove(&place);
            let begin = Instant::now();
            load::fill(&place, pending);
            eprintln!("{}: {pending} timers in {:.0} s", backend.system(), begin.elapsed().as_secs_f64());
        }
        self.keep_filled(backend, pending, place.clone());
        Some(place)
    }

    /// Returns the place of a store that gets so many timers, without a store: one of an earlier run is removed.
    pub(super) fn place_to_fill(&self, backend: Backend, pending: usize) -> Option<Place> {
        let place = self.place_of_filled(backend, pending)?;
        self.remove(&place);
        Some(place)
    }

    /// Returns the place of a store with so many timers: the same in every run if such stores are kept.
    fn place_of_filled(&self, backend: Backend, pending: usize) -> Option<Place> {
        match (&self.kept, backend) {
            (Some(kept), Backend::Embedded) => Some(Place::Directory(kept.join(format!("pending-{pending}")))),
            _ => self.place(backend),
        }
    }

    /// Keeps a place with so many pending timers for other cases.
    pub(super) fn keep_filled(&self, backend: Backend, pending: usize, place: Place) {
        self.filled.borrow_mut().insert((backend, pending), place);
    }

    /// Removes a store that is no longer needed.
    pub(super) fn remove(&self, place: &Place) {
        match place {
            Place::Directory(path) => drop(std::fs::remove_dir_all(path)),
            Place::Schema { url, schema } => Server::run(url, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")),
        }
    }
}

/// Returns whether the file system of a directory is in memory.
fn is_in_memory(directory: &Path) -> bool {
    let mut stat = Command::new("stat");
    let kind = stat.args(["--file-system", "--format=%T"]).arg(directory).output();
    kind.is_ok_and(|kind| matches!(String::from_utf8_lossy(&kind.stdout).trim(), "tmpfs" | "ramfs"))
}

/// Returns whether an earlier run has left a store with so many pending timers. One that was killed has left fewer, or some hundred more.
fn is_filled(place: &Place, pending: usize) -> bool {
    let Place::Directory(path) = place else { return false };
    if !path.exists() {
        return false;
    }
    let timers = place.open(Timers::builder());
    let counts = runtime().block_on(timers.counts()).unwrap_or_else(|error| fail(&error.to_string()));
    close(&timers);
    let is_near = counts.armed.abs_diff(pending as u64) <= pending as u64 / MOST_DIFFERENCE;
    if !is_near {
        eprintln!("{} has {} pending timers and not {pending}: it is made anew", path.display(), counts.armed);
    }
    is_near
}

impl Drop for Server {
    /// Ends the server of this process before its data are removed.
    fn drop(&mut self) {
        if let Some(cluster) = &self.cluster {
            cluster.stop(StopMode::Immediate);
        }
    }
}

impl Server {
    /// Runs statements.
    pub(super) fn run(url: &str, statements: &str) {
        Server::with_client(url, async |client| client.batch_execute(statements).await);
    }

    /// Returns the number that a query finds.
    pub(super) fn number(url: &str, query: &str) -> f64 {
        Server::with_client(url, async |client| Ok(client.query_one(query, &[]).await?.get::<_, f64>(0)))
    }

    fn with_client<T>(
        url: &str,
        work: impl AsyncFnOnce(tokio_postgres::Client) -> Result<T, tokio_postgres::Error>,
    ) -> T {
        let result = runtime().block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            work(client).await
        });
        result.unwrap_or_else(|error| fail(&format!("PostgreSQL: {error}")))
    }
}

/// Waits until something is true. Exits this program if it is not after a minute.
pub(super) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        if begin.elapsed() > Duration::from_secs(60) {
            fail(&format!("{what} took more than a minute"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
