//! Kills processes with durable timers, a few times: `tourbillon-bench durable --case kill --kills 1000` does the same for longer.

use std::process::Command;

use serde_json::Value;

/// How many processes are killed on each store.
const KILLS: &str = "5";

#[test]
fn q1_q2_q3_every_acknowledged_operation_is_accounted_for_after_kills() {
    let output = Command::new(env!("CARGO_BIN_EXE_tourbillon-bench"))
        .args(["durable", "--case", "kill", "--kills", KILLS, "--json"])
        .output()
        .expect("the program can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{errors}");
    assert!(output.status.success(), "{errors}");
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is an object"))
        .collect();
    let figure = |system: &str, metric: &str| {
        let is_it = |line: &&Value| line["system"] == system && line["metric"] == metric;
        lines.iter().find(is_it).and_then(|line| line["value"].as_f64())
    };
    for system in ["tourbillon-embedded", "tourbillon-postgres"] {
        if system == "tourbillon-postgres" && errors.contains("NOT MEASURED ON POSTGRESQL") {
            tourbillon_tools::not_tested("ON POSTGRESQL", "it is not installed");
            continue;
        }
        assert!(figure(system, "acknowledged").is_some_and(|count| count > 0.0), "{system}: {lines:?}");
        for metric in ["lost", "cancelled_delivered", "unexplained_duplicates", "early", "wrong"] {
            assert_eq!(figure(system, metric), Some(0.0), "{system}: {metric}");
        }
    }
}
