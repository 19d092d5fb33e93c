//! Places of stores: a directory, or a schema of a PostgreSQL server. A child process gets its place as an argument.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::Runtime;
use tourbillon_durable::store::{EmbeddedStore, PostgresOptions, PostgresStore};
use tourbillon_durable::{StoreError, Timers, TimersBuilder};

/// Where a store is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Directory(PathBuf),
    Schema { url: String, schema: String },
}

impl Place {
    /// Returns the place as an argument of a child process.
    pub(super) fn to_argument(&self) -> String {
        match self {
            Place::Directory(path) => format!("directory:{}", path.display()),
            Place::Schema { url, schema } => format!("schema:{schema}:{url}"),
        }
    }

    /// Parses the argument of [`Place::to_argument`].
    pub(super) fn from_argument(text: &str) -> Result<Place, String> {
        if let Some(path) = text.strip_prefix("directory:") {
            return Ok(Place::Directory(path.into()));
        }
        let parts = text.strip_prefix("schema:").and_then(|rest| rest.split_once(':'));
        let (schema, url) = parts.ok_or_else(|| format!("{text:?} is no place of a store"))?;
        Ok(Place::Schema { url: url.to_owned(), schema: schema.to_owned() })
    }

    /// Opens the timers there. Exits this program if that fails.
    pub(super) fn open(&self, builder: TimersBuilder) -> Timers {
        self.try_open(builder).unwrap_or_else(|error| fail(&error.to_string()))
    }

    fn try_open(&self, builder: TimersBuilder) -> Result<Timers, StoreError> {
        let timers = match self {
            Place::Directory(path) => builder.build(EmbeddedStore::open(path)?),
            Place::Schema { url, schema } => {
                let options = PostgresOptions::new(url)?.schema(schema)?;
                builder.build(runtime().block_on(PostgresStore::open(options))?)
            }
        };
        timers.map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}

/// Ends timers, and exits this program if the store did not take everything.
pub(super) fn close(timers: &Timers) {
    if let Err(error) = runtime().block_on(timers.shutdown(Duration::from_secs(30))) {
        fail(&error.to_string());
    }
}

/// Returns the runtime of all clients, and of the store in PostgreSQL.
pub(super) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("Tokio runs")
    })
}

/// Exits this program with an error about a durable store.
pub(super) fn fail(why: &str) -> ! {
    eprintln!("error: durable: {why}");
    std::process::exit(1);
}
