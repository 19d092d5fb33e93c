//! Runs the functions of the fuzz targets on the inputs in `tools/fuzz-targets/seeds`.

use std::fs;
use std::path::Path;

/// Runs each of a target's inputs, and prints its name first, so that a failing input is known.
fn all_of(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz-targets/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 9, "only {} inputs in {}", files.len(), folder.display());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(file).unwrap());
    }
}

#[test]
fn p1_p3_p5_queues_agree_with_the_naive_one_on_what_fuzzing_has_found() {
    all_of("queue", tourbillon_fuzz::queue);
}

#[test]
fn p1_p2_p6_p7_engines_and_their_surfaces_keep_their_promises_on_what_fuzzing_has_found() {
    all_of("engine", tourbillon_fuzz::engine);
}

#[test]
fn p6_p8_cron_lines_that_fuzzing_has_found_are_read_or_refused() {
    all_of("cron", tourbillon_fuzz::cron);
}

#[test]
fn p6_times_that_fuzzing_has_found_are_read_or_refused() {
    all_of("times", tourbillon_fuzz::times);
}

#[test]
fn p6_names_that_fuzzing_has_found_are_known_or_refused() {
    all_of("words", tourbillon_fuzz::words);
}
