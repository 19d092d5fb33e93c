//! Checks the ids at the beginning of test names, as in `fn d39_p2_a_cancel_...`: each is written without leading zeros, so that
//! `cargo test -- d9_` finds all tests of D9, and has one line in `docs/ids.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn no_id_in_a_test_name_has_a_leading_zero() {
    let padded: Vec<_> = ids_in_sources().into_iter().filter(|(id, _)| id[1..].starts_with('0')).collect();
    assert!(padded.is_empty(), "write d9_, not d09_: {padded:#?}");
}

#[test]
fn each_id_in_a_test_name_has_one_line_in_the_list_of_ids() {
    let list = fs::read_to_string(root().join("docs/ids.md")).expect("docs/ids.md");
    for (id, place) in ids_in_sources() {
        let row = format!("| {} |", id.to_uppercase());
        let rows = list.lines().filter(|line| line.starts_with(&row)).count();
        assert_eq!(rows, 1, "{place}: docs/ids.md has {rows} lines that begin with `{row}`");
    }
}

#[test]
fn a_name_may_begin_with_several_ids() {
    assert_eq!(ids_of("fn d39_p02_a_cancel_of_2_timers_wins() {"), ["d39", "p02"]);
    assert_eq!(ids_of("    async fn p10_calls_run_outside() {"), ["p10"]);
    assert!(ids_of("fn a_plain_name() {").is_empty());
    assert!(ids_of("/// A word like d39_ in a comment").is_empty());
}

/// Returns the ids in the names of functions of the workspace, each with a place where it occurs.
fn ids_in_sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["crates", "tools"] {
        read_sources(&root().join(folder), &mut |path, text| {
            for (index, line) in text.lines().enumerate() {
                for id in ids_of(line) {
                    found.entry(id.to_owned()).or_insert_with(|| format!("{}:{}", path.display(), index + 1));
                }
            }
        });
    }
    assert!(found.len() > 100, "found {} ids only", found.len());
    found
}

/// Returns the ids that the name of a function begins with, if the line has one.
fn ids_of(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let name = line.strip_prefix("fn ").unwrap_or_default();
    name.split('_').take_while(|part| is_id(part)).collect()
}

fn is_id(part: &str) -> bool {
    let number = part.strip_prefix(|c: char| c.is_ascii_lowercase()).unwrap_or_default();
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

fn read_sources(folder: &Path, file: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                read_sources(&path, file);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            file(&path, &fs::read_to_string(&path).expect("a source can be read"));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tests run in the repository")
}
