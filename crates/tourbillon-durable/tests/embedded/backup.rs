//! Backups are made while the store is used, and are paused until they are allowed to deliver.

use std::fs;

use tempfile::TempDir;
use tourbillon_durable::StoreError;
use tourbillon_durable::store::Store;

use crate::conformance::ask::{arm, ask, cancel_key, own, take};
use crate::support::{all_rows, create_all, options, overdue, verify};

#[test]
fn o4_a_backup_is_the_store_of_one_moment_and_starts_paused() {
    let directory = TempDir::new().unwrap();
    let copy = directory.path().join("copy");
    let store = options().open(directory.path().join("timers")).unwrap();
    create_all(&store, 1..=2000).unwrap();
    let before = all_rows(&store).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = tourbillon_durable::store::Reply::new(move |result| sender.send(result).unwrap());
    store.backup(copy.clone(), reply);
    // The store goes on while it is copied: each batch is in the copy as a whole or not at all.
    for batch in 0..20 {
        create_all(&store, 10_000 + batch * 10..10_000 + batch * 10 + 10).unwrap();
    }
    let rows = receiver.recv().unwrap().unwrap();
    assert!((2000..=2200).contains(&rows) && rows % 10 == 0, "{rows} rows");

    let restored = options().open(&copy).unwrap();
    assert_eq!(verify(&restored).unwrap().rows, rows);
    assert_eq!(all_rows(&restored).unwrap()[..2000], before);
    assert!(ask(|reply| restored.counts(reply)).unwrap().is_paused);
    assert!(own(&restored, 1).is_paused, "its owner is told");
    assert_eq!(cancel_key(&restored, "key 1").cancelled, 1, "it can be changed");
    let entry = arm(&restored, 30_000, overdue(30_000));
    drop(restored);

    let restored = options().open(&copy).unwrap();
    assert!(own(&restored, 1).is_paused, "it is still paused");
    ask(|reply| restored.set_paused(false, reply)).unwrap();
    let owner = own(&restored, 1);
    assert!(!owner.is_paused);
    take(&restored, &owner, entry);
    assert!(!ask(|reply| store.counts(reply)).unwrap().is_paused, "the store itself never was");
}

#[test]
fn o4_a_backup_does_not_overwrite_anything() {
    let directory = TempDir::new().unwrap();
    let copy = directory.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("precious"), "data").unwrap();
    let store = options().open(directory.path().join("timers")).unwrap();
    create_all(&store, 1..=3).unwrap();
    let refused = ask(|reply| store.backup(copy.clone(), reply)).unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);
    fs::remove_file(copy.join("precious")).unwrap();
    assert_eq!(ask(|reply| store.backup(copy.clone(), reply)), Ok(3), "an empty directory is fine");
    ask(|reply| store.backup(copy.clone(), reply)).unwrap_err();
}

#[test]
fn q8_an_interrupted_backup_is_an_error_and_stays_as_it_is() {
    let directory = TempDir::new().unwrap();
    let copy = directory.path().join("copy");
    let store = options().open(directory.path().join("timers")).unwrap();
    create_all(&store, 1..=3).unwrap();
    assert_eq!(ask(|reply| store.backup(copy.clone(), reply)), Ok(3));
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // As if the process had been killed right before the end of the creation.
    fs::rename(copy.join("FORMAT"), copy.join("FORMAT.new")).unwrap();
    fs::write(copy.join("BACKUP.new"), "An unfinished backup\n").unwrap();
    let left = names();
    for opened in [options().open(&copy), options().create(false).open(&copy)] {
        let Err(StoreError::Damaged(text)) = opened.map(drop) else { panic!("the copy lacks timers") };
        assert!(text.contains("interrupted backup") && text.contains("another backup"), "{text}");
        assert_eq!(names(), left);
    }
    // As if it had been killed right after that: nothing is missing.
    fs::rename(copy.join("FORMAT.new"), copy.join("FORMAT")).unwrap();
    assert_eq!(verify(&options().open(&copy).unwrap()).unwrap().rows, 3);
}

#[test]
fn o4_a_backup_that_would_take_the_room_of_the_store_is_refused_and_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("timers");
    create_all(&options().open(&path).unwrap(), 1..=3).unwrap();
    // No disk has that much room.
    let store = options().reserve(u64::MAX - 1).open(&path).unwrap();
    let copy = directory.path().join("copy");
    for is_there in [false, true] {
        let refused = ask(|reply| store.backup(copy.clone(), reply)).unwrap_err();
        let StoreError::Full(text) = refused else { panic!("{refused:?}") };
        assert!(text.contains(copy.to_str().unwrap()) && text.contains("backup"), "{text}");
        if is_there {
            assert_eq!(fs::read_dir(&copy).unwrap().count(), 0);
        } else {
            assert!(!copy.exists());
            fs::create_dir(&copy).unwrap();
        }
    }
    assert_eq!(cancel_key(&store, "key 2").cancelled, 1, "the store goes on");
}
