//! Tests the command as a user types it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tourbillon-bench")).args(arguments).output();
    output.expect("the program can be run")
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// A short scenario with one system.
const SHORT: [&str; 8] = ["churn", "--quick", "--pending", "0,10", "--system", "tokio-current", "--rounds", "1"];

#[test]
fn json_lines_parse_and_can_be_plotted() {
    let output = bench(&[&SHORT[..], &["--json"]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("every line is an object");
        assert_eq!((&line["scenario"], &line["system"]), (&"churn".into(), &"tokio-current".into()));
        assert!(line["case"].is_string() && line["metric"].is_string() && line["value"].is_f64());
    }
    let folder = folder("plotted");
    let file = folder.join("figures.jsonl");
    fs::write(&file, text).expect("a file can be written");
    let (file, to) = (file.display().to_string(), folder.display().to_string());
    assert!(bench(&["plot", &file, "--to", &to]).status.success());
    let plot = fs::read_to_string(folder.join("churn.svg")).expect("the plot is there");
    assert!(plot.starts_with("<svg") && plot.contains("tokio-current"));
}

#[test]
fn a_table_has_a_title_in_words_and_a_row_a_system() {
    let output = bench(&SHORT);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["Arm and cancel one timer, driver has turned", "10 others pending", "tokio-current", "x ours"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn every_size_of_scale_has_its_figures_and_its_plot() {
    let output = bench(&["scale", "--pending", "100,1000", "--rounds", "1", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    // Two sizes, two systems, four metrics.
    assert_eq!(text.lines().count(), 16, "{text}");
    let folder = folder("scale");
    let file = folder.join("figures.jsonl");
    fs::write(&file, text).expect("a file can be written");
    assert!(bench(&["plot", &file.display().to_string(), "--to", &folder.display().to_string()]).status.success());
    let plot = fs::read_to_string(folder.join("scale.svg")).expect("the plot is there");
    assert!(plot.contains("tourbillon: reset") && plot.contains("resident bytes"));
}

#[test]
fn a_verdict_compares_with_tokio() {
    const COMPARED: [&str; 7] =
        ["reset", "--quick", "--pending", "10", "--system", "tourbillon,tokio-current", "--verdict"];
    let output = bench(&[&COMPARED[..], &["--rounds", "6"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("rows: "), "{text}");
    let is_behind = text.contains("  behind: ");
    assert_eq!(output.status.code(), Some(i32::from(is_behind)), "{text}");
    // A single round is not enough to judge.
    let output = bench(&[&COMPARED[..], &["--rounds", "1"]].concat());
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("too few rounds"));
}

#[cfg(not(feature = "virtual"))]
#[test]
fn a_build_without_virtual_time_says_how_to_get_it() {
    let output = bench(&["virtual"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--features virtual -- virtual\n"));
    let output = bench(&["virtual", "--json"]);
    assert!(output.status.success() && output.stdout.is_empty(), "among JSON lines there is nothing else");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--features virtual -- virtual\n"));
}

#[cfg(feature = "virtual")]
#[test]
fn sleeps_in_paused_time_are_compared_with_tokios() {
    let output = bench(&["virtual", "--quick", "--rounds", "1", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    for case in ["in-turn,sleeps=2000", "at-once,sleeps=10000", "tasks=50,sleeps=50"] {
        let of_case = |line: &&Value| line["case"] == case && line["metric"] == "times_tokio";
        let systems: Vec<_> = lines.iter().filter(of_case).map(|line| line["system"].clone()).collect();
        assert!(systems.contains(&"tourbillon".into()), "{case}: {systems:?}");
    }
}

#[test]
fn what_cannot_be_done_is_an_error_and_not_a_silence() {
    let file = folder("nothing").join("nothing.jsonl");
    fs::write(&file, "nonsense\n").expect("a file can be written");
    let errors: [&[&str]; 3] =
        [&["plot", &file.display().to_string()], &["plot", "/no/such/file"], &["churn", "--system", "nobody"]];
    for arguments in errors {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("error: "), "{arguments:?}");
    }
}
