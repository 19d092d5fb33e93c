//! Damaged files: a store is then refused or gives an error, and never has other timers than before (Q8, D57).

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tourbillon_durable::StoreError;
use tourbillon_durable::store::TimerRow;

use crate::support::{all_rows, create_all, options, verify};

/// Makes a store with timers in tables and in the journal, and returns its rows.
fn fill(directory: &Path) -> Vec<TimerRow> {
    let store = options().write_buffer(1 << 20).open(directory).unwrap();
    for batch in 0..12 {
        create_all(&store, batch * 250..batch * 250 + 250).unwrap();
        if batch == 9 {
            // So that what follows is in the journal only.
            wait_for_tables(directory);
        }
    }
    all_rows(&store).unwrap()
}

fn wait_for_tables(directory: &Path) {
    let tables = directory.join("tables/keyspaces/1/tables");
    let has_tables = || fs::read_dir(&tables).is_ok_and(|entries| entries.count() > 0);
    for _ in 0..1000 {
        if has_tables() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the engine writes tables");
}

/// A kind of damage to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    FlipBit,
    ZeroPage,
    Truncate,
    Delete,
}

/// Damages a file at `part` of 16 parts of its content; returns whether that changed anything.
fn damage(path: &Path, kind: Damage, part: usize) -> bool {
    let mut bytes = fs::read(path).unwrap();
    let before = bytes.clone();
    // Journals end with zeros that mean nothing.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let at = used * part / 16;
    match kind {
        _ if used == 0 => return false,
        Damage::FlipBit => bytes[at] ^= 0x40,
        Damage::ZeroPage => {
            let page = at / 4096 * 4096;
            let end = bytes.len().min(page + 4096);
            bytes[page..end].fill(0);
        }
        Damage::Truncate => bytes.truncate(at),
        Damage::Delete => {
            fs::remove_file(path).unwrap();
            return true;
        }
    }
    fs::write(path, &bytes).unwrap();
    bytes != before
}

#[test]
fn d57_q8_no_damage_of_any_file_is_silent() {
    let directory = TempDir::new().unwrap();
    let original = directory.path().join("original");
    let rows = fill(&original);
    assert_eq!(rows.len(), 3000);
    let copy = directory.path().join("copy");
    let cases: Vec<(Damage, usize)> = (1..16)
        .step_by(4)
        .map(|part| (Damage::FlipBit, part))
        .chain((0..16).step_by(6).map(|part| (Damage::ZeroPage, part)))
        .chain([(Damage::Truncate, 1), (Damage::Truncate, 15), (Damage::Delete, 0)])
        .collect();
    let (mut refused, mut harmless) = (0, 0);
    for file in files(&original) {
        // A lock has no content, and its file is made anew.
        if file.ends_with("lock") {
            continue;
        }
        for (kind, part) in &cases {
            copy_directory(&original, &copy);
            if !damage(&copy.join(&file), *kind, *part) {
                continue;
            }
            match read_all(&copy) {
                Ok(found) => {
                    assert!(found == rows, "{kind:?} in part {part} of {} was silent", file.display());
                    harmless += 1;
                }
                Err(StoreError::Damaged(text)) => {
                    assert!(text.contains("restore the newest backup"), "{text}");
                    refused += 1;
                }
                Err(StoreError::NewerFormat { .. }) if file.ends_with("FORMAT") => refused += 1,
                Err(other) => panic!("{kind:?} in part {part} of {}: {other:?}", file.display()),
            }
        }
    }
    println!("{refused} cases of damage were refused, {harmless} did no harm");
    assert!(refused > 30, "most of them matter");
}

fn read_all(directory: &Path) -> Result<Vec<TimerRow>, StoreError> {
    let store = options().open(directory)?;
    verify(&store)?;
    all_rows(&store)
}

#[test]
fn d57_q1_a_record_that_a_power_failure_tore_is_no_damage() {
    let directory = TempDir::new().unwrap();
    let store = options().open(directory.path()).unwrap();
    create_all(&store, 1..=50).unwrap();
    let journal = directory.path().join("tables/0.jnl");
    let first = used(&journal);
    create_all(&store, 51..=100).unwrap();
    drop(store);
    let intact = fs::read(&journal).unwrap();
    let record = intact[first..used(&journal)].to_vec();
    let mut changed = record.clone();
    changed[record.len() / 2] ^= 1;
    let mut holed = record.clone();
    holed[2048..4096].fill(0);
    for torn in [&record[..5], &record[..record.len() / 2], &record[..record.len() - 1], &changed, &holed] {
        let mut bytes = intact[..used_bytes(&intact)].to_vec();
        bytes.extend_from_slice(torn);
        fs::write(&journal, &bytes).unwrap();
        let store = options().open(directory.path()).unwrap();
        assert_eq!(verify(&store).unwrap().rows, 100, "nothing that was acknowledged is missing");
    }
    // The same damage where it was acknowledged is an error.
    let mut bytes = intact.clone();
    bytes[first + record.len() / 2] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    let refused = options().open(directory.path()).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged(_)), "{refused:?}");
    assert_eq!(fs::read(&journal).unwrap(), bytes, "and nothing was changed");
}

fn used(path: &Path) -> usize {
    used_bytes(&fs::read(path).unwrap())
}

fn used_bytes(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Returns the files below a directory, relative to it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                found.push(path.strip_prefix(directory).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Makes a copy of a directory, in the place of another.
fn copy_directory(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    for file in files(from) {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let bytes = fs::read(from.join(&file)).unwrap();
        // The zeros at the end of a journal as a hole.
        fs::write(&target, &bytes[..used_bytes(&bytes)]).unwrap();
        fs::File::options().write(true).open(&target).unwrap().set_len(bytes.len() as u64).unwrap();
    }
}
