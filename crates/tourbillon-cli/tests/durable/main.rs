//! `tourbillon durable`, as an operator uses it.
//!
//! Without a server the tests of stores in PostgreSQL print `NOT TESTED ON POSTGRESQL` and pass: see `tourbillon_tools::postgres`.
#![cfg(feature = "durable")]

mod poolers;
mod postgres;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tourbillon_durable::{BlockingTimers, NewTimer};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    command.arg("durable").args(arguments).stdin(Stdio::null()).output().expect("the program runs")
}

/// Runs a command that must succeed, and returns what it prints.
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Runs a command that must fail, and returns the error.
fn failed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).expect("it prints text")
}

fn fill(directory: &Path) {
    let timers = BlockingTimers::open(directory).unwrap();
    let timer = |number: u32| NewTimer::after("mail", Duration::from_secs(3600)).key(number.to_string());
    assert!(timers.create_all((0..30).map(timer).collect()).unwrap().iter().all(Result::is_ok));
    timers.shutdown(Duration::from_secs(30)).unwrap();
}

fn inspected(store: &str) -> serde_json::Value {
    serde_json::from_str(&done(&["inspect", store, "--json"])).expect("it is JSON")
}

#[test]
fn o4_a_store_is_inspected_backed_up_restored_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (store, copy, restored) = (path("timers"), path("copy"), path("restored"));
    fill(Path::new(&store));
    let shown = done(&["inspect", &store, "--verify"]);
    assert!(shown.contains("30  pending") && shown.contains("all indexes agree"), "{shown}");
    done(&["backup", &store, &copy]);
    assert!(failed(&["backup", &store, &copy]).contains("not empty"));
    let told = done(&["restore", &copy, &restored]);
    assert!(told.contains("30 rows") && told.contains("tourbillon durable resume"), "{told}");
    assert_eq!(inspected(&restored)["is_paused"], true);
    done(&["resume", &restored]);
    let resumed = inspected(&restored);
    assert_eq!((&resumed["is_paused"], &resumed["armed"]), (&false.into(), &30.into()));
    done(&["pause", &restored]);
    assert_eq!(inspected(&restored)["is_paused"], true);
}

#[test]
fn o4_a_copy_may_be_named_by_a_path_beside_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    fill(&directory.path().join("timers"));
    for arguments in [["backup", "timers", "copy"], ["restore", "copy", "restored"], ["backup", "timers", "a/b/c"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
        let output = command.arg("durable").args(arguments).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for copy in ["copy", "restored", "a/b/c"] {
        assert_eq!(inspected(directory.path().join(copy).to_str().unwrap())["armed"], 30);
    }
}

#[test]
fn o4_timers_are_exported_and_imported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (store, file, other) = (path("timers"), path("timers.jsonl"), path("other"));
    fill(Path::new(&store));
    done(&["export", &store, &file]);
    assert_eq!(done(&["export", &store, "-"]), std::fs::read_to_string(&file).unwrap());
    let told = done(&["import", &file, &other]);
    assert!(told.contains("30 rows: 30 written, 0 there already"), "{told}");
    let again: serde_json::Value = serde_json::from_str(&done(&["import", &file, &other, "--json"])).unwrap();
    assert_eq!((&again["written"], &again["existing"]), (&0.into(), &30.into()));
    let inspection = inspected(&other);
    assert_eq!((&inspection["is_paused"], &inspection["armed"]), (&true.into(), &30.into()));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let third = path("third");
    assert!(failed(&["import", &file, &third]).contains("export again"));
    assert!(!Path::new(&third).exists(), "nothing was begun");
}

/// Runs an import from the standard input.
fn import_text(text: &str, store: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    command.args(["durable", "import", "-", store]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program runs");
    // It may end before it has read everything.
    let _ = process.stdin.take().expect("a pipe").write_all(text.as_bytes());
    process.wait_with_output().expect("it ends")
}

#[test]
fn o4_an_import_that_fails_pauses_nothing_or_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (store, other) = (path("timers"), path("other"));
    fill(Path::new(&store));
    for garbage in ["", "no export\n", "no line break"] {
        let output = import_text(garbage, &store);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains("this is no export"), "{error}");
        assert_eq!(inspected(&store)["is_paused"], false, "{garbage:?}");
        import_text(garbage, &other);
        assert!(!Path::new(&other).exists(), "nothing was begun");
    }
    let export = done(&["export", &store, "-"]);
    let output = import_text(&export[..export.len() / 2], &other);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("export again") && error.contains(&format!("tourbillon durable resume {other}")), "{error}");
    assert_eq!(inspected(&other)["is_paused"], true);
    let output = import_text(&export, &other);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(inspected(&other)["armed"], 30);
}

#[test]
fn o4_an_import_that_left_rows_out_has_a_status_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (store, other, file) = (path("timers"), path("other"), path("timers.jsonl"));
    // The same keys, in other timers.
    [&store, &other].into_iter().for_each(|store| fill(Path::new(store)));
    done(&["export", &store, &file]);
    for arguments in [["import", &file, &other].as_slice(), &["import", &file, &other, "--json"]] {
        let output = run(arguments);
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(told.contains("30 were not written") || told.contains("\"conflicts\":30"), "{told}");
    }
}

#[test]
fn q8_o5_a_store_that_is_missing_newer_damaged_or_in_use_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let missing = path("missing");
    assert!(failed(&["inspect", &missing]).contains("has no store of durable timers"));
    assert!(!Path::new(&missing).exists(), "a look makes nothing");
    let store = path("timers");
    fill(Path::new(&store));
    let open = BlockingTimers::open(&store).unwrap();
    assert!(failed(&["inspect", &store]).contains("another process has the store open"));
    open.shutdown(Duration::from_secs(30)).unwrap();
    let format = Path::new(&store).join("FORMAT");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, "Tourbillon durable timers\nformat 99\n").unwrap();
    assert!(failed(&["inspect", &store]).contains("use a newer program"));
    std::fs::write(&format, "Tourbillon durable timers\nformat 1\n").unwrap();
    for error in [failed(&["inspect", &store]), failed(&["backup", &store, &missing])] {
        assert!(error.contains("format 1") && error.contains("upgrades it"), "{error}");
    }
    assert!(std::fs::read_to_string(&format).unwrap().contains("format 1"), "a look upgrades nothing");
    assert!(
        done(&["restore", &store, &path("restored")]).contains("30 rows"),
        "a backup of the format before is restored"
    );
    std::fs::write(&format, text).unwrap();
    std::fs::write(Path::new(&store).join("acknowledged"), "nonsense").unwrap();
    let error = failed(&["inspect", &store]);
    assert!(error.contains("damaged") && error.contains("restore the newest backup"), "{error}");
    assert!(failed(&["inspect", "postgres://127.0.0.1:1/none"]).contains("cannot be reached"));
}
