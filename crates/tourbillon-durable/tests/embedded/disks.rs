//! Disks that are full and directories that cannot be written, as the system itself says so: a small file system in a mount namespace of its
//! own, a limit on the size of files, and another user.
//!
//! Each test runs itself again in a child, because a mount namespace and a limit are those of a whole process.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit};
use tempfile::TempDir;
use tourbillon_durable::store::{EmbeddedOptions, EmbeddedStore, Store};
use tourbillon_durable::{Ack, BlockingTimers, StoreError, Timers, TimersError};
use tourbillon_tools::not_tested;

use crate::conformance::ask::{ask, cancel_key};
use crate::support::{all_rows, close, create_all, far, options, overdue, verify};

/// Names the directory for the child.
const CHILD: &str = "TOURBILLON_DISK_CHILD";
const PATIENCE: Duration = Duration::from_secs(60);
/// What the store keeps for cancels and deliveries.
const RESERVE: u64 = 8 << 20;

/// Runs a test on a file system of 48 MiB, in a child. Where none can be mounted, it says so.
fn on_small_disk(test: &str, run: fn(&Path)) {
    if let Some(directory) = std::env::var_os(CHILD) {
        return run(Path::new(&directory));
    }
    let directory = TempDir::new().unwrap();
    // Root may mount; another user may in a user namespace, if the system allows those.
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let mount = "mount -t tmpfs -o size=48m tourbillon \"$0\"";
    let is_possible = |way: &&&[&str]| {
        let mut probe = Command::new("unshare");
        probe.args(**way).args(["sh", "-c", mount]).arg(directory.path());
        probe.output().is_ok_and(|done| done.status.success())
    };
    let Some(way) = ways.iter().find(is_possible) else {
        not_tested("ON A SMALL DISK", "`unshare --mount` or a mount of a tmpfs is refused here");
        return;
    };
    let mut child = Command::new("unshare");
    child.args(*way).args(["sh", "-c", &format!("{mount} && exec \"$@\"")]).arg(directory.path());
    assert_passes(&again(child, test, directory.path()).output().unwrap());
}

/// Returns the command with what runs this test of this program in it.
fn again(mut command: Command, test: &str, directory: &Path) -> Command {
    command.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, directory);
    command
}

/// Asserts that a child has run one test, which passed.
fn assert_passes(child: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (output, errors) = (text(&child.stdout), text(&child.stderr));
    assert!(child.status.success() && output.contains("1 passed"), "{output}\n{errors}");
    println!("{output}");
}

/// Fills the disk, and returns the file that takes the room. So many bytes are left.
fn fill(directory: &Path, left: u64) -> PathBuf {
    let path = directory.join("ballast");
    let mut file = File::create(&path).unwrap();
    let mut chunk = 1 << 16;
    while chunk > 0 {
        match file.write(&vec![7; chunk]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => chunk /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    let size = file.metadata().unwrap().len();
    file.set_len(size.saturating_sub(left)).unwrap();
    path
}

fn small() -> EmbeddedOptions {
    EmbeddedStore::options().reserve(RESERVE).write_buffer(1 << 20)
}

fn is_full<T>(result: &Result<T, TimersError>) -> bool {
    matches!(result, Err(TimersError::Store(StoreError::Full(_))))
}

#[test]
fn u2_q1_a_disk_that_is_nearly_full_refuses_creates_and_goes_on_with_cancels_and_deliveries() {
    on_small_disk(
        "disks::u2_q1_a_disk_that_is_nearly_full_refuses_creates_and_goes_on_with_cancels_and_deliveries",
        nearly_full,
    );
}

fn nearly_full(directory: &Path) {
    let store = directory.join("timers");
    let timers = Timers::builder().build(small().open(&store).unwrap()).unwrap();
    let calls = timers.blocking();
    let create = |number| calls.create(far(number));
    for number in 1..=100 {
        create(number).unwrap();
    }
    for number in 101..=150 {
        calls.create(overdue(number)).unwrap();
    }
    // The store keeps more than that.
    let ballast = fill(directory, RESERVE / 2);
    for number in 200..210 {
        let refused = create(number);
        assert!(is_full(&refused), "{refused:?}");
    }
    assert_eq!(deliveries(&timers, 50), (101..=150).map(|number| format!("key {number}")).collect::<Vec<_>>());
    for number in 1..=50_u128 {
        assert_eq!(calls.cancel(&format!("key {number}")).unwrap().cancelled, 1);
    }
    assert!(is_full(&create(210)), "cancels do not make room at once");
    fs::remove_file(ballast).unwrap();
    for number in 201..=210 {
        create(number).unwrap();
    }
    calls.shutdown(PATIENCE).unwrap();
    let expected: Vec<String> = (51..=100).chain(201..=210).map(|number| format!("key {number}")).collect();
    assert_eq!(keys(&store), sorted(expected));
}

/// Registers a handler, and returns the keys of so many deliveries.
fn deliveries(timers: &Timers, count: usize) -> Vec<String> {
    let (sender, received) = channel();
    let handler = move |delivery: tourbillon_durable::Delivery| {
        sender.send(delivery.key().expect("every timer here has a key").to_owned()).unwrap();
        async { Ack::Done }
    };
    timers.on("mail", handler).unwrap();
    let delivered = (0..count).map(|_| received.recv_timeout(PATIENCE).unwrap()).collect();
    let begin = std::time::Instant::now();
    while timers.blocking().counts().unwrap().claimed > 0 {
        assert!(begin.elapsed() < PATIENCE, "every delivery is acknowledged");
        std::thread::sleep(Duration::from_millis(2));
    }
    sorted(delivered)
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

/// Returns the keys of all timers in a directory, sorted, after a check of the whole store.
fn keys(store: &Path) -> Vec<String> {
    let store = small().open(store).unwrap();
    let rows = all_rows(&store).unwrap();
    assert_eq!(verify(&store).unwrap().rows, rows.len() as u64);
    sorted(rows.iter().map(|row| row.spec.key.clone().expect("every timer here has a key")).collect())
}

#[test]
fn q1_a_disk_without_any_room_ends_the_store_and_loses_nothing_that_was_acknowledged() {
    on_small_disk(
        "disks::q1_a_disk_without_any_room_ends_the_store_and_loses_nothing_that_was_acknowledged",
        without_room,
    );
}

fn without_room(directory: &Path) {
    const TIMERS: u128 = 4_000;
    let store = directory.join("timers");
    let timers = Timers::builder().build(small().open(&store).unwrap()).unwrap();
    let calls = timers.blocking();
    let created = calls.create_all((1..=TIMERS).map(|number| far(number).payload(vec![1; 9])).collect());
    assert!(created.unwrap().iter().all(Result::is_ok));
    let ballast = fill(directory, 0);
    assert!(is_full(&calls.create(far(TIMERS + 1))));
    let (cancelled, failed) = cancel_until_failure(&calls, TIMERS);
    assert!(matches!(failed, TimersError::Store(StoreError::SyncFailed(_))), "{failed:?}");
    drop((calls, timers));
    // Nothing is lost by an attempt to open the store while there is no room.
    let opened = when_unlocked(&store).map(drop);
    assert!(matches!(opened, Ok(()) | Err(StoreError::Full(_))), "{opened:?}");
    fs::remove_file(ballast).unwrap();
    // The cancel that failed may have been carried out.
    let left = keys(&store);
    let expected = |cancelled: u128| sorted((cancelled + 1..=TIMERS).map(|number| format!("key {number}")).collect());
    assert!([expected(cancelled), expected(cancelled + 1)].contains(&left), "{cancelled}, {}", left.len());
    let store = small().open(&store).unwrap();
    create_all(&store, [TIMERS + 1]).unwrap();
}

#[test]
fn o4_q1_a_backup_that_finds_no_room_is_removed_and_the_store_goes_on() {
    on_small_disk("disks::o4_q1_a_backup_that_finds_no_room_is_removed_and_the_store_goes_on", backup_without_room);
}

fn backup_without_room(directory: &Path) {
    const KEPT: u64 = 16 << 20;
    let path = directory.join("timers");
    let store = small().open(&path).unwrap();
    create_all(&store, 1..=8_000).unwrap();
    // There is no room at all for a moment while the disk is filled, and the engine may be merging tables.
    close(&store).unwrap();
    drop(store);
    // There is room for the first steps of the copy.
    let ballast = fill(directory, KEPT + (2 << 20));
    let store = small().reserve(KEPT).open(&path).unwrap();
    let copy = directory.join("copy");
    let refused = ask(|reply| store.backup(copy.clone(), reply)).unwrap_err();
    let StoreError::Full(text) = refused else { panic!("{refused:?}") };
    assert!(text.contains(copy.to_str().unwrap()), "{text}");
    assert!(!copy.exists());
    assert_eq!(cancel_key(&store, "key 2").cancelled, 1);
    fs::remove_file(ballast).unwrap();
    assert_eq!(ask(|reply| store.backup(copy.clone(), reply)), Ok(7_999));
    assert_eq!(verify(&small().open(&copy).unwrap()).unwrap().rows, 7_999);
    close(&store).unwrap();
}

/// Opens a store that its node may be closing at this moment, because it has failed.
fn when_unlocked(store: &Path) -> Result<EmbeddedStore, StoreError> {
    let begin = std::time::Instant::now();
    loop {
        match small().open(store) {
            Err(StoreError::Locked(_)) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            opened => return opened,
        }
    }
}

/// Cancels timers in their order, and returns how many cancels were acknowledged, and the error of the next.
fn cancel_until_failure(calls: &BlockingTimers, timers: u128) -> (u128, TimersError) {
    for number in 1..=timers {
        match calls.cancel(&format!("key {number}")) {
            Ok(counts) => assert_eq!(counts.cancelled, 1),
            Err(error) => return (number - 1, error),
        }
    }
    panic!("the journal has room of its own: the test fills nothing");
}

#[test]
fn q1_a_journal_that_may_not_grow_ends_the_store_and_loses_nothing_that_was_acknowledged() {
    const TEST: &str = "disks::q1_a_journal_that_may_not_grow_ends_the_store_and_loses_nothing_that_was_acknowledged";
    if let Some(directory) = std::env::var_os(CHILD) {
        return with_small_files(Path::new(&directory));
    }
    let directory = TempDir::new().unwrap();
    // The signal would end the child; without it a write beyond the limit is an error.
    let mut child = Command::new("sh");
    child.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    assert_passes(&again(child, TEST, directory.path()).output().unwrap());
}

fn with_small_files(directory: &Path) {
    let store = options().open(directory).unwrap();
    create_all(&store, 1..=100).unwrap();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(64 << 10), ..before }).unwrap();
    let mut acknowledged = 100;
    let failed = loop {
        match create_all(&store, [acknowledged + 1]) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the journal is larger than the limit");
    };
    assert!(matches!(failed, StoreError::SyncFailed(_)), "{failed:?}");
    assert_eq!(create_all(&store, [20_000]), Err(failed.clone()), "it stays ended");
    assert_eq!(close(&store), Err(failed));
    drop(store);
    let refused = options().open(directory).err();
    assert!(matches!(refused, None | Some(StoreError::Unavailable(_))), "{refused:?}");
    setrlimit(Resource::Fsize, before).unwrap();
    let store = options().open(directory).unwrap();
    let rows: Vec<u128> = all_rows(&store).unwrap().iter().map(|row| row.id.timer.as_u128()).collect();
    let all = |last| (1..=last).collect::<Vec<u128>>();
    assert!([all(acknowledged), all(acknowledged + 1)].contains(&rows), "{acknowledged}, {}", rows.len());
    assert_eq!(verify(&store).unwrap().rows, rows.len() as u64);
    create_all(&store, [20_000]).unwrap();
}

/// Asserts that a store is not opened, because it cannot be written, and that the error says what to do.
fn assert_read_only<T>(opened: Result<T, StoreError>) {
    let Err(StoreError::ReadOnly(text)) = &opened.map(drop) else { panic!("the store cannot be written") };
    assert!(text.contains("write the directory and everything in it") && text.contains("for writing"), "{text}");
}

#[test]
fn q8_a_store_on_a_disk_that_is_mounted_read_only_is_refused_with_what_to_do() {
    on_small_disk("disks::q8_a_store_on_a_disk_that_is_mounted_read_only_is_refused_with_what_to_do", |directory| {
        let path = directory.join("timers");
        create_all(&small().open(&path).unwrap(), 1..=3).unwrap();
        let remount = |how: &str| {
            let done =
                Command::new("mount").args(["-o", &format!("remount,bind,{how}")]).arg(directory).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        remount("ro");
        assert_read_only(small().open(&path));
        assert!(BlockingTimers::open(&path).is_err());
        remount("rw");
        assert_eq!(keys(&path), ["key 1", "key 2", "key 3"]);
    });
}

#[test]
fn q8_a_store_that_its_user_may_not_write_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;

    let directory = TempDir::new().unwrap();
    let path = directory.path().join("timers");
    create_all(&options().open(&path).unwrap(), 1..=3).unwrap();
    let modes = |writable: u32| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555 | writable)).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let execute = if entry.file_type().unwrap().is_dir() { 0o111 } else { 0 };
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o444 | execute | writable)).unwrap();
        }
    };
    modes(0);
    let store = path.clone();
    let opened = std::thread::spawn(move || {
        // Nothing is forbidden to root, so this thread becomes another user for the rest of its life.
        if geteuid().is_root() {
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(Some(nobody), Some(nobody), Some(nobody)).unwrap();
        }
        options().open(store).map(drop)
    });
    assert_read_only(opened.join().unwrap());
    modes(0o200);
    assert_eq!(keys(&path), ["key 1", "key 2", "key 3"]);
}
