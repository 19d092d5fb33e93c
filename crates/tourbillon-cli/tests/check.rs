//! Tests the command as a user types it: a plain run keeps every promise, and every planted fault breaks exactly its own row.

use std::process::{Command, Output};

use serde_json::Value;

/// A small check, so that each test takes seconds.
const SMALL: [&str; 5] = ["check", "--for=500ms", "--timers=2000", "--threads=2", "--json"];

fn tourbillon(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tourbillon")).args(arguments).output().expect("the program can be run")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the ids of the promises that a run found broken.
fn broken(report: &Value) -> Vec<&str> {
    let rows = report["promises"].as_array().expect("a list of promises");
    let broken = rows.iter().filter(|row| row["kept"] == false);
    broken.map(|row| row["id"].as_str().expect("an id")).collect()
}

/// Asserts that a run with a fault exits with 1, and that only its row is broken.
fn assert_found(promise: &str) {
    let output = tourbillon(&[&SMALL[..], &["--break", promise, "--seed=7"]].concat());
    let report = json(&output);
    assert_eq!(broken(&report), [promise], "{report:#}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((&report["kept"], &report["planted"]), (&Value::from(false), &Value::from(promise)));
    let repeat = report["repeat"].as_str().expect("a command");
    assert!(repeat.contains("--seed 7") && repeat.ends_with(&format!("--break {promise}")), "{repeat}");
}

#[test]
fn a_plain_run_keeps_every_promise_and_counts_something_for_each() {
    let output = tourbillon(&SMALL);
    let report = json(&output);
    assert_eq!(broken(&report), [""; 0], "{report:#}");
    assert_eq!(output.status.code(), Some(0));
    let rows = report["promises"].as_array().expect("a list of promises");
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert!(row["checked"] == true && row["counted"][0].is_string(), "{row:#}");
    }
    assert!(report["fires_checked"].as_u64() > Some(1_000) && report["early"] == 0);
}

#[test]
fn p2_the_ledger_of_each_surface_balances() {
    let report = json(&tourbillon(&SMALL));
    let surfaces = report["surfaces"].as_array().expect("a list of surfaces");
    for surface in surfaces {
        let number = |name: &str| surface[name].as_u64().expect("a number");
        assert!(number("armed") > 0, "{surface:#}");
        assert_eq!(number("armed"), number("fired") + number("cancelled") + number("stopped"), "{surface:#}");
    }
    assert!(surfaces.len() >= 12, "{report:#}");
}

#[test]
fn p1_a_timer_that_is_early_is_found() {
    assert_found("P1");
}

#[test]
fn p2_an_outcome_that_is_told_twice_is_found() {
    assert_found("P2");
}

#[test]
fn p3_a_wrong_order_is_found() {
    assert_found("P3");
}

#[test]
fn p4_a_driver_that_oversleeps_is_found() {
    assert_found("P4");
}

#[test]
fn p5_a_cliff_is_found() {
    assert_found("P5");
}

#[test]
fn p6_a_panic_that_takes_the_driver_with_it_is_found() {
    assert_found("P6");
}

#[test]
fn p7_memory_that_is_not_used_again_is_found() {
    assert_found("P7");
}

#[test]
fn p8_the_wrong_clock_is_found() {
    assert_found("P8");
}

#[test]
fn p9_a_driver_that_wakes_up_for_nothing_is_found() {
    assert_found("P9");
}

#[test]
fn p10_a_callback_under_a_lock_is_found_and_not_waited_for() {
    assert_found("P10");
}

#[test]
fn p11_a_driver_on_a_blocked_executor_is_found() {
    assert_found("P11");
}

#[test]
fn a_report_for_people_has_a_row_for_each_promise_and_no_colour_in_a_pipe() {
    let output = tourbillon(&["--for", "300ms", "--timers", "1000", "--seed", "42"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for row in 1..=11 {
        assert!(text.lines().any(|line| line.starts_with(&format!("P{row} ")) && line.contains(" kept ")), "{text}");
    }
    assert!(text.contains("p99.9") && text.contains("seed 42") && text.contains("All promises kept."), "{text}");
    assert!(!text.contains('\x1b') && output.stderr.is_empty());
}

#[test]
fn the_report_opens_with_what_the_check_does_and_the_help_names_the_promises() {
    let output = tourbillon(&["--for", "200ms", "--timers", "1000", "--threads", "2", "--seed", "42"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = text.lines().take(2).collect();
    assert!(
        lines[0].starts_with("Checking 11 promises for 200ms: this arms, moves, cancels and fires timers"),
        "{text}"
    );
    assert_eq!(lines[1], "1,000 sleeps pending at a time on 2 threads; seed 42.");
    for arguments in [&["--help"][..], &["check", "--help"]] {
        let help = String::from_utf8(tourbillon(arguments).stdout).expect("text");
        assert!(help.contains("P1   never early           no timer completes before its deadline"), "{help}");
        assert!((1..=11).all(|promise| help.contains(&format!("  P{promise} "))), "{help}");
    }
}

#[test]
fn bad_usage_is_answered_in_a_sentence_and_exits_with_2() {
    let cases: [(&[&str], &str); 8] = [
        (&["--for", "0s"], "a check lasts from 200ms to 24h"),
        (&["--for", "10"], "10 of what? Type 10s"),
        (&["check", "--threads", "0"], "there must be 1 to 1,024 threads"),
        (&["check", "--timers", "0"], "there must be 1 to 10,000,000 timers"),
        (&["check", "--timers", "99999999999"], "there must be 1 to 10,000,000 timers"),
        (&["check", "--break", "P12"], "the promises are P1 to P11"),
        (&["check", "--seed", "x"], "a seed is a whole number"),
        (&["nonsense"], "nonsense"),
    ];
    for (arguments, sentence) in cases {
        let output = tourbillon(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(sentence), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn info_tells_what_the_machine_offers_in_both_forms() {
    let text = String::from_utf8(tourbillon(&["info"]).stdout).expect("text");
    let output = tourbillon(&["info", "--json"]);
    let facts = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("wake-up floor") && facts["wake_up_floor"]["p50_ns"].is_u64(), "{text}\n{facts:#}");
    assert!(facts["cores"].as_u64() > Some(0) && facts["architecture"].is_string());
    if cfg!(target_os = "linux") {
        for fact in ["kernel", "io_uring", "back_end", "membarrier", "timer_slack_ns", "clock_is_vdso"] {
            assert!(!facts[fact].is_null(), "{fact}: {facts:#}");
        }
    }
}
