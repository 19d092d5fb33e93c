//! Exports and imports between stores.

use std::io::BufReader;
use std::sync::Arc;
use std::time::Duration;

use tourbillon_durable::store::{EmbeddedStore, ListFilter, Reply, Store};
use tourbillon_durable::transfer::{Imported, TransferError, export, import, verify};
use tourbillon_durable::{
    Ack, BlockingTimers, MemoryStore, MissedFires, NewTimer, RetryPolicy, StoreError, Target, Timers,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn hour() -> Duration {
    Duration::from_secs(3600)
}

/// Makes timers of every kind, one of which is a dead letter and one pulled.
fn fill(timers: &BlockingTimers) {
    let retry = RetryPolicy { give_up_after: Some(hour()), ..RetryPolicy::attempts(3) };
    let all = vec![
        NewTimer::after("mail", hour()).key("once").name("a name").payload(vec![0, 255, 10]).content_type("x/y"),
        NewTimer::every("mail", hour()).key("every").times(7).missed(MissedFires::All { at_most: 3 }).retry(retry),
        NewTimer::cron("mail", "30 2 * * *", "Europe/Berlin").namespace("other").key("Schlüssel \u{1f511}"),
        NewTimer::after("work", Duration::ZERO).key("dead").retry(RetryPolicy::never()),
        NewTimer::after("work", Duration::ZERO).key("pulled"),
    ];
    assert!(timers.create_all(all).unwrap().iter().all(Result::is_ok));
    let mut pulled = Vec::new();
    while pulled.len() < 2 {
        pulled.extend(timers.pull("work", 2, hour()).unwrap());
    }
    let dead = pulled.iter().find(|pulled| pulled.row.spec.key.as_deref() == Some("dead")).unwrap();
    timers.finish_pulled(vec![(dead.receipt(), Ack::GiveUp("broken".into()))]).unwrap().remove(0).unwrap();
}

fn exported(store: &dyn Store) -> Vec<u8> {
    let mut out = Vec::new();
    let mut seen = 0;
    let rows = export(store, &mut out, &mut |rows| seen = rows).unwrap();
    assert_eq!((verify(&mut &out[..]), seen), (Ok(rows), rows));
    out
}

fn imported(store: &dyn Store, text: &[u8]) -> Result<Imported, TransferError> {
    import(store, &mut BufReader::new(text), &mut |_| ())
}

#[test]
fn o4_timers_move_between_stores_with_all_that_they_have() {
    let from = tempfile::tempdir().unwrap();
    let timers = BlockingTimers::open(from.path()).unwrap();
    fill(&timers);
    let text = exported(timers.timers().store());
    let rows = timers.list(ListFilter::default(), None, 100).unwrap().rows;

    let directory = tempfile::tempdir().unwrap();
    let other: Arc<dyn Store> = Arc::new(EmbeddedStore::options().reserve(0).open(directory.path()).unwrap());
    let first = imported(&*other, &text).unwrap();
    assert_eq!((first.rows, first.written, first.existing, first.conflicts), (5, 5, 0, 0));
    let again = imported(&*other, &text).unwrap();
    assert_eq!((again.written, again.existing), (0, 5), "an import can be repeated");
    let moved = Timers::builder().build_shared(other).unwrap().blocking();
    for (before, after) in rows.iter().zip(moved.list(ListFilter::default(), None, 100).unwrap().rows) {
        assert_eq!((before.id, &before.spec, before.due), (after.id, &after.spec, after.due));
        assert_eq!((before.version, before.attempt, before.left), (after.version, after.attempt, after.left));
    }
    let counts = moved.counts().unwrap();
    assert_eq!((counts.armed, counts.claimed, counts.dead), (4, 0, 1), "what was pulled is armed");
    let mut pulled = Vec::new();
    while pulled.is_empty() {
        pulled = moved.pull("work", 1, hour()).unwrap();
    }
    assert_eq!((pulled[0].row.spec.key.as_deref(), pulled[0].row.attempt), (Some("pulled"), 2));
    assert_eq!(moved.cancel_target(Target::key("Schlüssel \u{1f511}").in_namespace("other")).unwrap().cancelled, 1);
    moved.shutdown(PATIENCE).unwrap();
    timers.shutdown(PATIENCE).unwrap();
}

#[test]
fn o4_a_key_that_another_timer_has_is_a_conflict_that_is_named() {
    let timers = Timers::builder().build(MemoryStore::new()).unwrap();
    let first = timers.blocking().create(NewTimer::after("mail", hour()).key("k")).unwrap().id;
    let text = exported(timers.store());
    let target = MemoryStore::new();
    let other = Timers::builder().build(target.clone()).unwrap();
    let holder = other.blocking().create(NewTimer::after("mail", hour()).key("k")).unwrap().id;
    let found = imported(&target, &text).unwrap();
    assert_eq!((found.written, found.conflicts, found.first_conflicts), (0, 1, vec![(first, holder)]));
    assert_eq!(other.blocking().cancel("k").unwrap().cancelled, 1);
}

#[test]
fn q2_o4_an_import_that_is_repeated_after_deliveries_writes_nothing_and_leaves_the_store_whole() {
    let source = Timers::builder().build(MemoryStore::new()).unwrap();
    let first = std::time::SystemTime::now() - Duration::from_secs(60);
    let repeating = NewTimer::every("tick", hour()).first_at(first);
    let cancelled = NewTimer::after("tick", hour()).key("k");
    assert!(source.blocking().create_all(vec![repeating, cancelled]).unwrap().iter().all(Result::is_ok));
    let text = exported(source.store());
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::options().reserve(0).open(directory.path()).unwrap());
    assert_eq!(imported(&*store, &text).unwrap().written, 2);
    let timers = Timers::builder().build_shared(store.clone()).unwrap().blocking();
    let mut pulled = Vec::new();
    while pulled.is_empty() {
        pulled = timers.pull("tick", 1, hour()).unwrap();
    }
    timers.finish_pulled(vec![(pulled[0].receipt(), Ack::Done)]).unwrap().remove(0).unwrap();
    assert_eq!(timers.cancel("k").unwrap().cancelled, 1);
    let again = imported(&*store, &text).unwrap();
    assert_eq!((again.rows, again.written, again.existing, again.ended), (2, 0, 1, 1));
    let rows = timers.list(ListFilter::default(), None, 10).unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.id.occurrence).collect::<Vec<_>>(), [2]);
    let (sender, report) = std::sync::mpsc::channel();
    store.verify(Reply::new(move |result| sender.send(result).unwrap()));
    assert_eq!(report.recv().unwrap().map(|report| report.rows), Ok(1));
    timers.shutdown(PATIENCE).unwrap();
}

#[test]
fn q8_o4_a_file_that_is_no_whole_export_is_an_error_that_says_where() {
    let timers = Timers::builder().build(MemoryStore::new()).unwrap();
    timers.blocking().create_all((0..3).map(|_| NewTimer::after("mail", hour())).collect()).unwrap();
    let text = String::from_utf8(exported(timers.store())).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let store = MemoryStore::new();
    let check = |text: &str| imported(&store, text.as_bytes()).unwrap_err();
    assert_eq!(check(""), TransferError::NotAnExport);
    assert_eq!(check("{}\n"), TransferError::NotAnExport);
    assert_eq!(check(&text.replacen("\"format\":1", "\"format\":9", 1)), TransferError::NewerFormat(9));
    assert_eq!(check(&format!("{}\n{}\n", lines[0], lines[1])), TransferError::Incomplete(1));
    assert_eq!(check(&text[..text.len() - lines[4].len() - 20]), TransferError::Incomplete(2));
    assert_eq!(check(&format!("{}\n{}\n{}\n", lines[0], lines[1], lines[4])), TransferError::Changed);
    assert_eq!(check(&text.replacen("\"attempt\":0", "\"attempt\":1", 1)), TransferError::Changed);
    assert!(matches!(check(&format!("{text}{text}")), TransferError::BadLine { line: 6, .. }), "two exports");
    assert!(matches!(check(&text.replacen("\"mail\"", "\"<b>\"", 1)), TransferError::BadLine { line: 2, .. }));
    assert!(matches!(check(&format!("{}\nnonsense\n", lines[0])), TransferError::BadLine { line: 2, .. }));
    for field in ["occurrence", "version"] {
        let huge = text.replacen(&format!("\"{field}\":1"), &format!("\"{field}\":{}", 1_u64 << 63), 1);
        let found = check(&huge);
        assert!(matches!(&found, TransferError::BadLine { line: 2, what } if what.contains("at most")), "{found:?}");
    }
    assert!(matches!(check(&text.replacen("\"payload\":\"\"", "\"payload\":\"?\"", 1)), TransferError::BadLine { .. }));
}

#[test]
fn o4_an_export_to_a_full_disk_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let store = MemoryStore::new();
    assert!(matches!(export(&store, &mut Full, &mut |_| ()), Err(TransferError::Io(_))));
}

#[test]
fn o4_a_backup_is_made_by_the_process_that_uses_the_store_and_is_restored_paused() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let timers = BlockingTimers::open(directory.path().join("timers")).unwrap();
    timers.create(NewTimer::after("mail", Duration::ZERO)).unwrap();
    assert_eq!(timers.backup(&copy), Ok(1));
    timers.shutdown(PATIENCE).unwrap();
    let restored = BlockingTimers::open(&copy).unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    restored
        .timers()
        .on("mail", move |_| {
            let _ = sender.send(());
            async {}
        })
        .unwrap();
    assert!(received.recv_timeout(Duration::from_millis(50)).is_err() && restored.counts().unwrap().is_paused);
    restored.resume().unwrap();
    received.recv_timeout(PATIENCE).unwrap();
    restored.shutdown(PATIENCE).unwrap();
    let memory = Timers::builder().build(MemoryStore::new()).unwrap().blocking();
    let refused = memory.backup(&directory.path().join("other"));
    assert!(matches!(refused, Err(tourbillon_durable::TimersError::Store(StoreError::BadOptions(_)))), "{refused:?}");
}
