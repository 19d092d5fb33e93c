//! Stores as the command line names them.

use std::ops::Deref;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use tokio::runtime::Runtime;
use tourbillon_durable::StoreError;
use tourbillon_durable::store::{EmbeddedStore, PostgresOptions, PostgresStore, Reply, Store};

use super::{DEFAULT_SCHEMA, StoreOptions};

/// How long a pause waits before it looks again which nodes know of it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// An open store without a node.
pub(super) struct OpenStore {
    store: Box<dyn Store>,
    /// The connections of a store in PostgreSQL live here.
    _runtime: Option<Runtime>,
}

impl OpenStore {
    /// Opens a store that exists, and makes and upgrades nothing.
    pub(super) fn open(options: &StoreOptions) -> Result<OpenStore, String> {
        match is_address(&options.store) {
            true => OpenStore::connect(options, false),
            false => OpenStore::existing(Path::new(&options.store)),
        }
    }

    /// Opens a store for an import: a directory or a schema may be new.
    pub(super) fn open_or_create(options: &StoreOptions) -> Result<OpenStore, String> {
        match is_address(&options.store) {
            true => OpenStore::connect(options, true),
            false => OpenStore::directory(Path::new(&options.store), true).map_err(|error| explain(&error)),
        }
    }

    fn connect(options: &StoreOptions, creates: bool) -> Result<OpenStore, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| format!("Tokio cannot be started: {error}"))?;
        let server = PostgresOptions::new(&options.store).and_then(|server| server.schema(&options.schema));
        let server = server.map_err(|error| error.to_string())?.connections(2).create(creates);
        let server = server.prepared_statements(options.prepared_statements);
        let store = runtime.block_on(PostgresStore::open(server)).map_err(|error| error.to_string())?;
        Ok(OpenStore { store: Box::new(store), _runtime: Some(runtime) })
    }

    /// Opens the store in a directory, which must have one in the format of this program.
    pub(super) fn existing(directory: &Path) -> Result<OpenStore, String> {
        OpenStore::directory(directory, false).map_err(|error| explain(&error))
    }

    /// Opens a backup, and upgrades one of an older format.
    pub(super) fn backup(directory: &Path) -> Result<OpenStore, String> {
        let opened = match OpenStore::directory(directory, false) {
            Err(StoreError::OlderFormat { .. }) => OpenStore::directory(directory, true),
            opened => opened,
        };
        opened.map_err(|error| explain(&error))
    }

    fn directory(directory: &Path, creates: bool) -> Result<OpenStore, StoreError> {
        let store = EmbeddedStore::options().create(creates).open(directory)?;
        Ok(OpenStore { store: Box::new(store), _runtime: None })
    }

    /// Pauses the store, and returns when no node begins a delivery any more: a node learns of the pause with the answer to its next heartbeat.
    pub(super) fn pause(&self, options: &StoreOptions) -> Result<(), String> {
        ask(|reply| self.store.set_paused(true, reply))?;
        self.wait_for_nodes().map_err(|error| options.paused_and(&error))
    }

    fn wait_for_nodes(&self) -> Result<(), String> {
        let before = ask(|reply| self.store.node_leases(reply))?;
        let mut present = before.clone();
        let mut has_told = false;
        loop {
            let (nodes, left) = present.not_renewed_since(&before);
            if nodes == 0 {
                return Ok(());
            }
            if !has_told {
                eprintln!("Waiting until {nodes} nodes know that the store is paused, for {left:.1?} at most ...");
                has_told = true;
            }
            std::thread::sleep(BETWEEN_LOOKS);
            present = ask(|reply| self.store.node_leases(reply))?;
        }
    }

    /// Closes the store, after everything is durable.
    pub(super) fn close(&self) -> Result<(), String> {
        ask(|reply| self.store.close(reply))
    }
}

impl Deref for OpenStore {
    type Target = dyn Store;

    fn deref(&self) -> &dyn Store {
        &*self.store
    }
}

fn explain(error: &StoreError) -> String {
    match error {
        StoreError::Locked(_) => {
            format!("{error}. The process that uses the store can copy it while it runs, with `Timers::backup`")
        }
        _ => error.to_string(),
    }
}

/// Returns whether the text names a server and not a directory.
pub(super) fn is_address(store: &str) -> bool {
    let parameters = ["host=", "hostaddr=", "port=", "user=", "password=", "dbname="];
    ["postgres://", "postgresql://"].iter().chain(&parameters).any(|start| store.starts_with(start))
}

/// Returns the address without its password.
pub(super) fn without_password(store: &str) -> String {
    if !is_address(store) {
        return store.to_owned();
    }
    let shown = match (store.split_once("://"), store.rsplit_once('@')) {
        (Some((scheme, rest)), Some((_, host))) => {
            let user = rest.split([':', '@']).next().unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        _ => store.to_owned(),
    };
    // A password may be quoted and have spaces: nothing behind its name is shown.
    match shown.split_once("password") {
        Some((before, _)) => format!("{before}..."),
        None => shown,
    }
}

impl StoreOptions {
    /// Returns the command that ends the pause of the store, without a password.
    pub(super) fn resume_command(&self) -> String {
        let store = without_password(&self.store);
        let schema = match &*self.schema {
            DEFAULT_SCHEMA => String::new(),
            schema => format!(" --schema {schema}"),
        };
        let prepared = if self.prepared_statements { "" } else { " --prepared-statements=false" };
        format!("tourbillon durable resume {store}{schema}{prepared}")
    }

    /// Returns the text of an error that has left the store paused, with the command that ends the pause.
    pub(super) fn paused_and(&self, error: &str) -> String {
        format!("{error}\nThe store is paused. When it may deliver: {}", self.resume_command())
    }
}

/// Calls a store and waits for its reply.
pub(super) fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, String> {
    let (sender, receiver) = channel();
    call(Reply::new(move |result| drop(sender.send(result))));
    receiver.recv().unwrap_or(Err(StoreError::Closed)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_from_a_directory_by_how_its_address_begins() {
        let addresses =
            ["postgres://host/app", "postgresql://host", "host=/run", "user=me host=/run", "dbname=app host=db"];
        assert!(addresses.into_iter().all(is_address));
        assert!(!["", "timers", "/var/lib/host=7/timers", "./user=me", "hosts"].into_iter().any(is_address));
    }

    #[test]
    fn a_resume_is_told_with_the_options_that_are_not_the_usual_ones() {
        let resume = |store: &str, schema: &str, prepared_statements: bool| {
            StoreOptions { store: store.to_owned(), schema: schema.to_owned(), prepared_statements }.resume_command()
        };
        assert_eq!(resume("timers", "tourbillon", true), "tourbillon durable resume timers");
        let (url, shown) = ("postgres://me:secret@db/app", "tourbillon durable resume postgres://me@db/app");
        assert_eq!(resume(url, "shop", true), format!("{shown} --schema shop"));
        assert_eq!(resume(url, "shop", false), format!("{shown} --schema shop --prepared-statements=false"));
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(without_password("postgres://me:secret@host:5432/app"), "postgres://me@host:5432/app");
        assert_eq!(without_password("postgres://host/app"), "postgres://host/app");
        assert_eq!(without_password("postgres://host/app?user=me&password=secret"), "postgres://host/app?user=me&...");
        assert_eq!(without_password("host=/run user=me password = 'my secret' dbname=app"), "host=/run user=me ...");
        assert_eq!(without_password("/var/lib/password/timers"), "/var/lib/password/timers");
    }
}
