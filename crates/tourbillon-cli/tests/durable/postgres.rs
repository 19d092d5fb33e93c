//! The commands on stores in PostgreSQL.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use super::{done, failed, fill, run};

/// A database for one test.
pub(super) struct Database {
    runtime: Runtime,
    server: &'static str,
    name: String,
    pub(super) url: String,
}

impl Database {
    /// Makes a database; `None` if there is no server.
    pub(super) fn new() -> Option<Database> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = tourbillon_tools::postgres::url()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_cli_{}_{number}", std::process::id());
        let joint = match (server.contains("://"), server.contains('?')) {
            (true, false) => "?",
            (true, true) => "&",
            (false, _) => " ",
        };
        let url = format!("{server}{joint}dbname={name}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = Database { runtime, server, name, url };
        database.ask(server, &format!("CREATE DATABASE {}", database.name));
        Some(database)
    }

    /// Runs statements, and returns the first column of all rows that they answer with.
    fn ask(&self, url: &str, statements: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server works");
            tokio::spawn(connection);
            let answer = client.simple_query(statements).await.expect("the statements are right");
            let value = |message: &tokio_postgres::SimpleQueryMessage| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            };
            answer.iter().filter_map(value).collect()
        })
    }

    fn run(&self, statements: &str) {
        self.ask(&self.url, statements);
    }

    /// Returns all schemas, tables, columns and functions.
    fn catalog(&self) -> Vec<String> {
        self.ask(
            &self.url,
            "SELECT concat_ws(' ', oid, nspname) FROM pg_namespace ORDER BY oid;
            SELECT concat_ws(' ', oid, relname, relnamespace, relkind) FROM pg_class ORDER BY oid;
            SELECT concat_ws(' ', attrelid, attname, atttypid) FROM pg_attribute ORDER BY attrelid, attnum;
            SELECT concat_ws(' ', oid, proname, md5(prosrc)) FROM pg_proc ORDER BY oid",
        )
    }

    pub(super) fn inspected(&self, schema: &str) -> Value {
        let shown = done(&["inspect", &self.url, "--schema", schema, "--json"]);
        serde_json::from_str(&shown).expect("it is JSON")
    }

    /// Runs the commands for a store that exists, which must all fail and change nothing, and returns their errors.
    fn refused(&self, schema: &str, directory: &Path) -> Vec<String> {
        let file = directory.join("refused.jsonl");
        let before = self.catalog();
        let errors = [
            failed(&["inspect", &self.url, "--schema", schema]),
            failed(&["export", &self.url, file.to_str().unwrap(), "--schema", schema]),
            failed(&["pause", &self.url, "--schema", schema]),
            failed(&["resume", &self.url, "--schema", schema]),
        ];
        assert_eq!(self.catalog(), before, "the database is as it was");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "no file was made");
        errors.into()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ask(self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// Returns the rows of an export without their shards: a directory has one, and PostgreSQL has many.
fn rows(export: &str) -> Vec<Value> {
    let rows = std::fs::read_to_string(export).unwrap();
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).expect("it is JSON");
        row.as_object_mut()?.remove("shard").map(|_| row)
    };
    rows.lines().filter_map(row).collect()
}

#[test]
fn o4_timers_move_to_postgresql_and_back_and_are_paused_resumed_and_inspected_there() {
    let Some(database) = Database::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (from, first, second, back, third) = (path("from"), path("1"), path("2"), path("back"), path("3"));
    let store = [&*database.url, "--schema", "shop"];
    fill(Path::new(&from));
    done(&["export", &from, &first]);
    let told = done(&["import", &first, store[0], store[1], store[2]]);
    assert!(told.contains("30 rows: 30 written") && told.contains("tourbillon durable resume"), "{told}");
    let inspection = database.inspected("shop");
    assert_eq!((&inspection["is_paused"], &inspection["armed"]), (&true.into(), &30.into()));
    done(&["export", store[0], &second, store[1], store[2]]);
    assert_eq!((rows(&second).len(), rows(&second)), (30, rows(&first)));
    done(&["import", &second, &back]);
    done(&["export", &back, &third]);
    assert_eq!(rows(&third), rows(&first));
    assert!(done(&["import", &second, store[0], store[1], store[2]]).contains("30 there already"));
    for (command, is_paused) in [("resume", false), ("pause", true)] {
        done(&[command, store[0], store[1], store[2]]);
        assert_eq!(database.inspected("shop")["is_paused"], is_paused, "{command}");
    }
    let error = failed(&["inspect", store[0], store[1], store[2], "--verify"]);
    assert!(error.contains("for stores in directories"), "{error}");
    for wrong in
        [["backup", store[0], &path("copy")], ["backup", &from, store[0]], ["restore", store[0], &path("copy")]]
    {
        let error = failed(&wrong);
        assert!(error.contains("pg_dump"), "{error}");
    }
    assert!(!Path::new(&path("copy")).exists(), "nothing was begun");
}

#[test]
fn o4_a_pause_is_told_when_the_nodes_know_of_it_or_have_lost_their_leases() {
    let Some(database) = Database::new() else { return };
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("empty.jsonl");
    let from = empty.path().join("from");
    fill(&from);
    done(&["export", from.to_str().unwrap(), file.to_str().unwrap()]);
    done(&["import", file.to_str().unwrap(), &database.url, "--resume"]);
    let until = "(SELECT alive_until FROM tourbillon.nodes WHERE node = '00000000-0000-0000-0000-000000000001')";
    for command in [&["pause", &database.url][..], &["import", file.to_str().unwrap(), &database.url]] {
        // A node that hangs: it has a lease for a while, and does not renew it.
        database.run(
            "INSERT INTO tourbillon.nodes (node, alive_until)
            VALUES ('00000000-0000-0000-0000-000000000001', tourbillon.now_micros() + 2000000)
            ON CONFLICT (node) DO UPDATE SET alive_until = excluded.alive_until",
        );
        let output = run(command);
        let over = database.ask(&database.url, &format!("SELECT tourbillon.now_micros() >= {until}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("Waiting until 1 nodes know"), "{told}");
        assert_eq!(over, ["t"], "{command:?} has waited for the end of the lease");
    }
    // A node that renews its lease has heard of the pause.
    database.run("UPDATE tourbillon.nodes SET alive_until = tourbillon.now_micros() + 3600000000");
    let url = database.url.clone();
    let pausing = std::thread::spawn(move || run(&["pause", &url]));
    while !pausing.is_finished() {
        database.run("UPDATE tourbillon.nodes SET alive_until = alive_until + 1");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(pausing.join().unwrap().status.success());
}

#[test]
fn o4_o5_a_mistyped_schema_or_database_is_an_error_that_changes_nothing() {
    let Some(database) = Database::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    for error in database.refused("tourbilon", directory.path()) {
        let place = format!("the database {:?} has no schema \"tourbilon\"", database.name);
        assert!(error.contains(&place) && error.contains("Verify the address"), "{error}");
    }
    for error in database.refused("public", directory.path()) {
        assert!(error.contains("\"public\"") && error.contains("has no durable timers"), "{error}");
    }
    let mistyped = database.url.replace(&database.name, "no_such_database");
    let output = run(&["inspect", &mistyped]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no_such_database"));
}

#[test]
fn o5_a_look_at_a_store_of_an_older_or_newer_format_changes_nothing() {
    let Some(database) = Database::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (from, file) = (directory.path().join("from"), directory.path().join("export"));
    let file = file.to_str().unwrap();
    fill(&from);
    done(&["export", from.to_str().unwrap(), file]);
    done(&["import", file, &database.url, "--resume"]);
    let empty = tempfile::tempdir().unwrap();
    database.run("DROP TABLE tourbillon.api_keys; DELETE FROM tourbillon.formats WHERE version > 3");
    for error in database.refused("tourbillon", empty.path()) {
        assert!(error.contains("format 3") && error.contains("upgrades it"), "{error}");
    }
    assert!(done(&["import", file, &database.url, "--resume"]).contains("30 there already"), "an import upgrades");
    assert_eq!(database.inspected("tourbillon")["armed"], 30);
    database.run("INSERT INTO tourbillon.formats (version) VALUES (99)");
    for error in database.refused("tourbillon", empty.path()) {
        assert!(error.contains("format 99") && error.contains("use a newer program"), "{error}");
    }
}
