//! The commands behind a pooler in transaction mode that does not know prepared statements.
//!
//! Without PgBouncer these tests print `NOT TESTED THROUGH PGBOUNCER` and pass: see `tourbillon_tools::postgres`.

use std::path::Path;
use std::process::{Command, Stdio};

use tourbillon_tools::not_tested;
use tourbillon_tools::postgres::{PoolMode, Pooler};

use super::postgres::Database;
use super::{done, fill};

/// The option as a flag, as a variable of the environment and as a line of the file.
const FLAG: &str = "--prepared-statements=false";
const VARIABLE: (&str, &str) = ("TOURBILLON_PREPARED_STATEMENTS", "false");
#[cfg(feature = "serve")]
const LINE: &str = "prepared_statements = false\n";

/// Fewer than a store has, so that transactions move from one connection to another.
const CONNECTIONS: u32 = 4;

/// Starts a pooler before a database of its own; `None` if the machine lacks one of them, after saying so.
fn pooled_database() -> Option<(Pooler, Database)> {
    let database = Database::new()?;
    let say = |reason: String| not_tested("THROUGH PGBOUNCER", &reason);
    let pooler = Pooler::start(&database.url, PoolMode::Transaction, CONNECTIONS).map_err(say).ok()?;
    Some((pooler, database))
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    command.args(arguments).env_remove(VARIABLE.0).stdin(Stdio::null());
    command
}

/// Runs a command to its end, and returns what it prints, or else its error.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn expect_advice(result: Result<String, String>) {
    let error = result.expect_err("the pooler does not know prepared statements");
    let advice = error.contains("set the option prepared_statements to false") && error.contains(FLAG);
    assert!(advice, "{error}");
}

#[test]
fn q8_o4_stores_behind_a_pooler_need_an_option_that_the_error_of_the_commands_names() {
    let Some((pooler, database)) = pooled_database() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (from, file, other) = (path("from"), path("1"), path("2"));
    fill(Path::new(&from));
    done(&["export", &from, &file]);
    let import = ["durable", "import", &file, pooler.url()];
    expect_advice(run(&mut program(&import)));
    let told = run(program(&import).arg(FLAG)).unwrap();
    assert!(told.contains("30 written") && told.contains(FLAG), "the command that ends the pause works, too: {told}");
    for arguments in
        [["inspect", pooler.url()].as_slice(), &["export", pooler.url(), &other], &["resume", pooler.url()]]
    {
        let command = || program(&[&["durable"], arguments].concat());
        expect_advice(run(&mut command()));
        run(command().arg(FLAG)).unwrap();
        run(command().env(VARIABLE.0, VARIABLE.1)).unwrap();
    }
    assert_eq!(database.inspected("tourbillon")["is_paused"], false);
}

#[cfg(feature = "serve")]
#[test]
fn q8_o9_the_service_behind_a_pooler_needs_an_option_that_its_error_names() {
    let Some((pooler, _database)) = pooled_database() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    std::fs::write(&file, LINE).unwrap();
    // The first key makes the schema.
    let create = || program(&["key", "create", "--store", pooler.url()]);
    expect_advice(run(&mut create()));
    assert!(run(create().arg(FLAG)).unwrap().starts_with("tbk_"));
    let serve = || program(&["serve", "--listen", "127.0.0.1:0", "--store", pooler.url()]);
    expect_advice(until_it_listens(&mut serve()));
    for command in
        [serve().arg(FLAG), serve().env(VARIABLE.0, VARIABLE.1), serve().arg("--config").arg(&file), serve().args(SET)]
    {
        until_it_listens(command).unwrap();
    }
}

/// The options that a node behind such a pooler should have, by their paths.
#[cfg(feature = "serve")]
const SET: [&str; 4] = ["--set", "prepared_statements=false", "--set", "hints=false"];

/// Starts a server and ends it when it listens. Returns the line that says so, or else its error.
#[cfg(feature = "serve")]
fn until_it_listens(command: &mut Command) -> Result<String, String> {
    use std::io::{BufRead, BufReader, Read};

    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let listens = lines.into_iter().find(|line| line.contains("Listening on"));
    if listens.is_some() {
        process.kill().expect("it can be ended");
    }
    let mut error = String::new();
    process.stderr.take().expect("a pipe").read_to_string(&mut error).expect("it prints text");
    process.wait().expect("it has ended");
    listens.ok_or(error)
}
