//! What goes wrong with a directory and its disk: each is a typed error, and loses nothing.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use tempfile::TempDir;
use tourbillon_durable::store::{EmbeddedStore, Reply, RowState, Store, Verdict, WriteAnswer};
use tourbillon_durable::{StoreError, TimerId};

use crate::conformance::ask::{arm, ask, cancel_key, create_op, finish, own, take, write};
use crate::support::{all_rows, close, create_all, far, options, overdue, verify};

#[test]
fn q1_a_store_that_is_opened_again_has_everything() {
    let directory = TempDir::new().unwrap();
    let (before, owner) = {
        let store = options().open(directory.path()).unwrap();
        create_all(&store, 1..=20).unwrap();
        let owner = own(&store, 1);
        take(&store, &owner, arm(&store, 30, overdue(30)));
        assert_eq!(cancel_key(&store, "key 7").cancelled, 1);
        (all_rows(&store).unwrap(), owner)
    };
    assert_eq!(before.len(), 20);
    let store = options().open(directory.path()).unwrap();
    assert_eq!(all_rows(&store).unwrap(), before);
    assert_eq!(verify(&store).unwrap().rows, 20);
    let counts = ask(|reply| store.counts(reply)).unwrap();
    assert_eq!((counts.armed, counts.claimed, counts.dead), (19, 1, 0));
    let ended = ask(|reply| store.history(TimerId::from_u128(7), reply)).unwrap();
    assert_eq!(ended.len(), 1);
    // What the owner before the restart has claimed is an orphan of the owner after it (Q7).
    let next = own(&store, 1);
    assert!(next.shards[0].1 > owner.shards[0].1, "the epoch is higher");
    let shards = next.shards.iter().map(|(shard, _)| *shard).collect();
    let orphans = ask(|reply| store.orphans("mail".into(), shards, 10, reply)).unwrap();
    assert_eq!(orphans.iter().map(|entry| entry.id.timer.as_u128()).collect::<Vec<_>>(), [30]);
}

#[test]
fn q8_a_directory_that_is_open_already_is_refused() {
    let directory = TempDir::new().unwrap();
    let store = options().open(directory.path()).unwrap();
    let refused = options().open(directory.path()).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Locked(text) if text.contains(directory.path().to_str().unwrap()) && text.contains("shutdown"))
    );
    drop(store);
    options().open(directory.path()).unwrap();
}

#[test]
fn o5_q8_a_store_of_a_newer_format_is_refused_and_not_touched() {
    let directory = TempDir::new().unwrap();
    drop(options().open(directory.path()).unwrap());
    let format = directory.path().join("FORMAT");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace("format 2", "format 99")).unwrap();
    let refused = options().open(directory.path()).unwrap_err();
    assert_eq!(refused, StoreError::NewerFormat { found: 99, known: 2 });
    fs::write(&format, text).unwrap();
    options().open(directory.path()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn q8_a_directory_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{Uid, geteuid};

    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let path = directory.path().to_owned();
    let opened = std::thread::spawn(move || {
        // Nothing is forbidden to root, so this thread becomes another user for the rest of its life.
        if geteuid().is_root() {
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(Some(nobody), Some(nobody), Some(nobody)).unwrap();
        }
        options().open(path.join("timers")).map(drop)
    });
    let refused = opened.join().unwrap().unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused:?}");
}

#[test]
fn q8_a_file_where_the_directory_should_be_is_an_error() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("timers");
    fs::write(&path, "not a directory").unwrap();
    let refused = options().open(&path).unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "not a directory");
}

#[test]
fn u2_a_disk_without_room_refuses_creates_and_goes_on_with_cancels_and_deliveries() {
    let directory = TempDir::new().unwrap();
    drop({
        let store = options().open(directory.path()).unwrap();
        create_all(&store, 1..=3).unwrap();
        arm(&store, 4, overdue(4));
        store
    });
    // No disk has that much room.
    let store = options().reserve(u64::MAX - 1).open(directory.path()).unwrap();
    assert_eq!(write(&store, create_op(5, far(5))), WriteAnswer::Full);
    assert_eq!(cancel_key(&store, "key 2").cancelled, 1);
    let owner = own(&store, 1);
    let due = ask(|reply| {
        let shards = owner.shards.iter().map(|(shard, _)| *shard).collect();
        let until = owner.now;
        let query = tourbillon_durable::store::DueQuery { kind: "mail".into(), shards, after: None, until, limit: 10 };
        store.due(query, reply);
    });
    let (row, _) = take(&store, &owner, due.unwrap().entries[0]);
    assert_eq!(finish(&store, &row, Verdict::Done), Ok(None));
    assert_eq!(all_rows(&store).unwrap().iter().filter(|row| row.state == RowState::Armed).count(), 2);
    drop(store);
    create_all(&options().open(directory.path()).unwrap(), [5]).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn q1_a_write_that_cannot_be_made_durable_ends_the_store_and_is_not_tried_again() {
    let directory = TempDir::new().unwrap();
    let store = options().open(directory.path()).unwrap();
    create_all(&store, 1..=3).unwrap();
    break_journal(directory.path());
    let failed = create_all(&store, [4]).unwrap_err();
    assert!(matches!(failed, StoreError::SyncFailed(_)), "{failed:?}");
    for _ in 0..3 {
        assert_eq!(create_all(&store, [5]), Err(failed.clone()), "it stays ended");
    }
    assert_eq!(all_rows(&store), Err(failed.clone()), "its answers cannot be trusted");
    assert_eq!(close(&store), Err(failed));
    drop(store);
    let store = options().open(directory.path()).unwrap();
    let numbers: Vec<u128> = all_rows(&store).unwrap().iter().map(|row| row.id.timer.as_u128()).collect();
    assert_eq!(numbers, [1, 2, 3], "what was acknowledged is there");
}

/// Makes every `fdatasync` of the journal in this directory fail: its descriptors become those of `/dev/null`, which cannot be synchronised.
#[cfg(target_os = "linux")]
fn break_journal(directory: &std::path::Path) {
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

    let null = fs::File::options().write(true).open("/dev/null").unwrap();
    let directory = fs::canonicalize(directory).unwrap();
    let mut broken = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        let Ok(target) = fs::read_link(&entry) else { continue };
        if target.starts_with(&directory) && target.extension().is_some_and(|extension| extension == "jnl") {
            let number: i32 = entry.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: 1. The descriptor is open: the journal of a store that this test has open and does not write to at this moment.
            // 2. It stays owned by the engine or the syncer: `into_raw_fd` below gives it back before this value could close it.
            let mut journal = unsafe { OwnedFd::from_raw_fd(number) };
            rustix::io::dup2(&null, &mut journal).unwrap();
            let _still_owned = journal.into_raw_fd();
            broken += 1;
        }
    }
    assert_eq!(broken, 2, "there is one journal, which the engine and the syncer have open");
}

#[test]
fn o5_a_look_at_a_directory_makes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let files = |path: &Path| fs::read_dir(path).unwrap().count();
    let look = |path: &Path| options().create(false).open(path).map(drop);
    let missing = look(&directory.path().join("none"));
    assert!(matches!(&missing, Err(StoreError::Missing(text)) if text.contains("Verify the path")), "{missing:?}");
    assert!(matches!(look(directory.path()), Err(StoreError::Missing(_))));
    // What is left of an interrupted creation stays, too.
    fs::create_dir(directory.path().join("tables")).unwrap();
    fs::write(directory.path().join("FORMAT.new"), "").unwrap();
    assert!(matches!(look(directory.path()), Err(StoreError::Missing(_))));
    assert_eq!(files(directory.path()), 2);
    drop(options().open(directory.path()).unwrap());
    assert_eq!(look(directory.path()), Ok(()));
}

#[test]
fn q8_what_is_left_of_an_interrupted_creation_is_no_store() {
    let directory = TempDir::new().unwrap();
    drop(options().open(directory.path()).unwrap());
    // As if the process had been killed right before the end of the creation.
    fs::rename(directory.path().join("FORMAT"), directory.path().join("FORMAT.new")).unwrap();
    let store = options().open(directory.path()).unwrap();
    create_all(&store, 1..=3).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 3);
}

#[test]
fn q1_a_closed_store_says_so() {
    let directory = TempDir::new().unwrap();
    let store = options().open(directory.path()).unwrap();
    create_all(&store, 1..=3).unwrap();
    close(&store).unwrap();
    assert_eq!(create_all(&store, [4]), Err(StoreError::Closed));
    assert_eq!(all_rows(&store), Err(StoreError::Closed));
    assert_eq!(close(&store), Err(StoreError::Closed));
    // Its directory is free, although the handle is still there.
    assert_eq!(verify(&options().open(directory.path()).unwrap()).unwrap().rows, 3);
}

#[test]
fn q1_the_last_handle_may_be_dropped_in_a_reply() {
    let directory = TempDir::new().unwrap();
    let store = std::sync::Arc::new(options().open(directory.path()).unwrap());
    let (sender, receiver) = channel();
    let (release, released) = channel();
    let last = std::sync::Arc::clone(&store);
    let reply: Reply<Vec<WriteAnswer>> = Reply::new(move |result: Result<Vec<WriteAnswer>, StoreError>| {
        released.recv().unwrap();
        drop(last);
        let count: Result<usize, StoreError> = result.map(|answers| answers.len());
        sender.send(count).unwrap();
    });
    store.write(vec![create_op(1, far(1))], reply);
    drop(store);
    release.send(()).unwrap();
    assert_eq!(receiver.recv().unwrap(), Ok(1));
}

#[test]
fn u4_a_history_that_is_full_forgets_the_oldest() {
    let directory = TempDir::new().unwrap();
    let history =
        |store: &EmbeddedStore, number| ask(|reply| store.history(TimerId::from_u128(number), reply)).unwrap();
    {
        let store = options().history(3).open(directory.path()).unwrap();
        create_all(&store, 1..=5).unwrap();
        for number in 1..=5 {
            assert_eq!(cancel_key(&store, &format!("key {number}")).cancelled, 1);
        }
        let known: Vec<usize> = (1..=5).map(|number| history(&store, number).len()).collect();
        assert_eq!(known, [0, 0, 1, 1, 1]);
    }
    let none = options().history(0).open(directory.path()).unwrap();
    create_all(&none, [6]).unwrap();
    assert_eq!(cancel_key(&none, "key 6").cancelled, 1);
    assert_eq!(history(&none, 6), []);
}

#[test]
fn p6_the_largest_and_smallest_options_are_bounded() {
    for size in [0, u64::MAX] {
        let directory = TempDir::new().unwrap();
        let store = options().cache(size).write_buffer(size).history(size).open(directory.path()).unwrap();
        create_all(&store, 1..=3).unwrap();
        assert_eq!(all_rows(&store).unwrap().len(), 3);
        close(&store).unwrap();
    }
}
