//! What the cases of a run share: the directory, the PostgreSQL server, and stores with many pending timers, which take long to fill.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tourbillon_tools::postgres::Cluster;

use super::load;
use super::place::{Place, fail, runtime};
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
    directory: TempDir,
    server: OnceCell<Option<Server>>,
    filled: RefCell<HashMap<(Backend, usize), Place>>,
    /// Where embedded stores with many timers are kept for other runs.
    kept: Option<PathBuf>,
    next: Cell<u32>,
}

/// A PostgreSQL server.
pub(super) struct Server {
    pub(super) url: String,
    _cluster: Option<Cluster>,
}

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
        Stage { directory, server: OnceCell::new(), filled: RefCell::default(), kept, next: Cell::new(0) }
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the server, which is started with the first call; `None` on a machine without PostgreSQL, after saying so.
    pub(super) fn server(&self) -> Option<&Server> {
        let start = || match std::env::var("TOURBILLON_TEST_POSTGRES") {
            Ok(url) => Some(Server { url, _cluster: None }),
            Err(_) => match Cluster::start(SERVER_OPTIONS) {
                Ok(cluster) => {
                    Server::run(cluster.url(), FILL_LOG);
                    Some(Server { url: cluster.url().to_owned(), _cluster: Some(cluster) })
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
        let place = self.place_to_fill(backend, pending)?;
        if !matches!(&place, Place::Directory(path) if path.exists()) {
            let begin = Instant::now();
            load::fill(&place, pending);
            eprintln!("{}: {pending} timers in {:.0} s", backend.system(), begin.elapsed().as_secs_f64());
        }
        self.keep_filled(backend, pending, place.clone());
        Some(place)
    }

    /// Returns the place of a store that gets so many timers: the same in every run if such stores are kept.
    pub(super) fn place_to_fill(&self, backend: Backend, pending: usize) -> Option<Place> {
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
