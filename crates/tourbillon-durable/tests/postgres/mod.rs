//! Stores in PostgreSQL for tests, each in a schema of its own.

pub(crate) mod stories;

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};
use tourbillon_durable::StoreError;
use tourbillon_durable::store::{PostgresOptions, PostgresStore};
use tourbillon_tools::postgres;

/// The runtime of all stores of this process.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("Tokio runs")
    })
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// A schema for one test.
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Schema {
    /// Returns a schema that does not exist yet; `None` if there is no server.
    pub(crate) fn new() -> Option<Schema> {
        postgres::url().map(Schema::on)
    }

    /// Returns a schema that does not exist yet, on the server with this address.
    pub(crate) fn on(url: &str) -> Schema {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Schema { url: url.to_owned(), name: format!("test_{}_{number}", std::process::id()) }
    }

    /// Returns the options of a store in this schema.
    pub(crate) fn options(&self) -> PostgresOptions {
        self.options_with("")
    }

    /// Returns the options of a store in this schema, with something added to the address.
    pub(crate) fn options_with(&self, addition: &str) -> PostgresOptions {
        let joint = match (self.url.contains("://"), self.url.contains('?')) {
            _ if addition.is_empty() => "",
            (true, false) => "?",
            (true, true) => "&",
            (false, _) => " ",
        };
        let options = PostgresOptions::new(&format!("{}{joint}{addition}", self.url)).expect("the address is valid");
        options.schema(&self.name).expect("the name is valid")
    }

    /// Returns what an address is given so that its sessions have a setting.
    pub(crate) fn setting(&self, name: &str, value: &str) -> String {
        match self.url.contains("://") {
            true => format!("options=-c%20{name}%3D{value}"),
            false => format!("options='-c {name}={value}'"),
        }
    }

    /// Opens a store in this schema.
    pub(crate) fn store(&self) -> PostgresStore {
        self.open(self.options()).expect("the server works")
    }

    pub(crate) fn open(&self, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        wait(PostgresStore::open(options))
    }

    /// Connects as an application does.
    pub(crate) fn client(&self) -> Client {
        wait(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the server works");
            tokio::spawn(connection);
            client
        })
    }

    /// Runs statements, in which `tourbillon.` stands for this schema.
    pub(crate) fn run(&self, statements: &str) {
        wait(self.client().batch_execute(&self.sql(statements))).expect("the statements are right");
    }

    /// Sets the store's clock so far ahead of the server's.
    pub(crate) fn set_clock(&self, ahead: Duration) {
        self.run(&format!(
            "CREATE OR REPLACE FUNCTION tourbillon.now_micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
            $$ SELECT tourbillon.micros(clock_timestamp()) + {} $$",
            ahead.as_micros()
        ));
    }

    /// Writes this schema in the place of `tourbillon`.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace("tourbillon.", &format!("{}.", self.name))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
        }
    }
}
