//! Opening timers: by a directory, by an address, and what goes wrong with both.

use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon_durable::{BlockingTimers, NewTimer, StoreError, Timers, TimersError};

const PATIENCE: Duration = Duration::from_secs(30);

fn far(kind: &str) -> NewTimer {
    NewTimer::after(kind, Duration::from_secs(86_400))
}

/// Creates a timer that is kept and one that fires, then opens the directory again and finds the first.
async fn live_twice(directory: &std::path::Path) -> Result<(), TimersError> {
    let timers = Timers::open(directory).await?;
    let (sender, fired) = channel();
    timers.on("soon", move |delivery| {
        let sender = sender.clone();
        async move { sender.send(delivery.key().map(str::to_owned)).map_err(|error| error.to_string()) }
    })?;
    timers.create(far("later").key("kept")).await?;
    timers.create(NewTimer::after("soon", Duration::from_millis(5)).key("fired")).await?;
    assert_eq!(fired.recv_timeout(PATIENCE).unwrap().as_deref(), Some("fired"));
    timers.shutdown(PATIENCE).await?;
    let timers = Timers::open(directory).await?;
    assert_eq!(timers.cancel("kept").await?.cancelled, 1);
    assert_eq!(timers.cancel("fired").await?.gone, 1);
    timers.shutdown(PATIENCE).await
}

#[test]
fn q1_timers_in_a_directory_work_under_any_executor() {
    for run in [
        |future| smol::block_on(future),
        |future| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future),
    ] as [fn(futures_lite::future::Boxed<Result<(), TimersError>>) -> Result<(), TimersError>; 2]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        run(Box::pin(async move { live_twice(&path).await })).unwrap();
    }
}

#[test]
fn q1_timers_in_a_directory_work_without_an_executor() {
    let directory = tempfile::tempdir().unwrap();
    let timers = BlockingTimers::open(directory.path()).unwrap();
    timers.create(far("later").key("kept")).unwrap();
    timers.shutdown(PATIENCE).unwrap();
    let timers = Timers::builder().threads(1).open_blocking(directory.path()).unwrap();
    assert_eq!(timers.cancel("kept").unwrap().cancelled, 1);
    timers.shutdown(PATIENCE).unwrap();
}

#[test]
fn q8_a_directory_that_is_open_already_is_a_typed_error() {
    let directory = tempfile::tempdir().unwrap();
    let timers = BlockingTimers::open(directory.path()).unwrap();
    let error = smol::block_on(Timers::open(directory.path())).err();
    assert!(matches!(error, Some(TimersError::Store(StoreError::Locked(_)))), "{error:?}");
    timers.shutdown(PATIENCE).unwrap();
}

#[test]
fn q8_a_file_in_the_place_of_the_directory_is_a_typed_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a store").unwrap();
    let error = BlockingTimers::open(&file).err();
    assert!(matches!(error, Some(TimersError::Store(StoreError::Unavailable(_)))), "{error:?}");
}

#[test]
fn q8_an_address_that_cannot_be_understood_is_an_error_that_shows_a_right_one() {
    let error = BlockingTimers::connect("mysql://host/database").err().expect("it is no address of PostgreSQL");
    assert!(matches!(error, TimersError::Store(StoreError::BadOptions(_))), "{error:?}");
    assert!(error.to_string().contains("postgres://user:password@host/database"), "{error}");
}

#[test]
fn q8_postgresql_without_a_tokio_runtime_is_an_error_that_says_what_to_do() {
    let error = smol::block_on(Timers::connect("postgres://localhost/none")).err().expect("smol is not Tokio");
    assert!(matches!(error, TimersError::Store(StoreError::BadOptions(_))), "{error:?}");
    assert!(error.to_string().contains("BlockingTimers::connect"), "{error}");
}

#[test]
fn q8_a_server_that_does_not_answer_is_a_typed_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = BlockingTimers::connect(&format!("host={} user=nobody", directory.path().display())).err();
    assert!(matches!(error, Some(TimersError::Store(StoreError::Unavailable(_)))), "{error:?}");
}

#[test]
fn q8_a_directory_can_be_opened_again_when_its_timers_were_dropped() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..10 {
        let timers = BlockingTimers::open(directory.path()).unwrap();
        timers.create(far("later").key(format!("key {number}"))).unwrap();
        assert_eq!(timers.counts().unwrap().armed, number + 1);
        drop(timers);
    }
}
