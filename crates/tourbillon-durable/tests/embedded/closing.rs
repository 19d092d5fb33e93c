//! Closing a store ends what is being read for long.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tourbillon_durable::StoreError;
use tourbillon_durable::store::{EmbeddedStore, Reply, Store};

use crate::support::{close, create_all, options, verify};

const PATIENCE: Duration = Duration::from_secs(60);

/// More rows than two pages have.
const ROWS: u128 = 2_500;

fn reply<T: Send + 'static>() -> (Reply<T>, Receiver<Result<T, StoreError>>) {
    let (sender, answer) = channel();
    (Reply::new(move |result| drop(sender.send(result))), answer)
}

/// Opens a store, and begins to send its rows to a receiver that reads none of them.
fn stuck(
    directory: &TempDir,
) -> (EmbeddedStore, async_channel::Receiver<Vec<tourbillon_durable::store::TimerRow>>, Receiver<Result<u64, StoreError>>)
{
    let store = options().open(directory.path().join("timers")).unwrap();
    create_all(&store, 1..=ROWS).unwrap();
    let (sender, pages) = async_channel::bounded(1);
    let (reply, sent) = reply();
    store.snapshot(sender, reply);
    let begin = Instant::now();
    while !pages.is_full() {
        assert!(begin.elapsed() < PATIENCE, "the first page is sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    (store, pages, sent)
}

#[test]
fn o4_a_store_is_closed_while_nobody_reads_the_pages_of_an_export() {
    let directory = TempDir::new().unwrap();
    let (store, pages, sent) = stuck(&directory);
    // These wait for the thread that sends the pages.
    let (to_verify, verified) = reply();
    store.verify(to_verify);
    let (to_copy, copied) = reply();
    let copy = directory.path().join("copy");
    store.backup(copy.clone(), to_copy);
    close(&store).unwrap();
    assert_eq!(sent.recv_timeout(PATIENCE).unwrap(), Err(StoreError::Closed));
    assert_eq!(verified.recv_timeout(PATIENCE).unwrap().map(drop), Err(StoreError::Closed));
    assert_eq!(copied.recv_timeout(PATIENCE).unwrap(), Err(StoreError::Closed));
    assert!(!copy.exists());
    assert_eq!(pages.recv_blocking().unwrap().len(), 1_000, "what was sent is there");
    assert!(pages.recv_blocking().is_err());
    let again = options().open(directory.path().join("timers")).unwrap();
    assert_eq!(u128::from(verify(&again).unwrap().rows), ROWS);
}

#[test]
fn o4_a_store_may_be_dropped_by_the_reader_of_the_pages_of_an_export() {
    let directory = TempDir::new().unwrap();
    let (store, pages, sent) = stuck(&directory);
    drop(store);
    assert_eq!(sent.recv_timeout(PATIENCE).unwrap(), Err(StoreError::Closed));
    drop(pages);
}
