//! Events for the crate `tracing`.
#![cfg(feature = "tracing")]

use std::fmt::{self, Debug};
use std::panic::panic_any;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tourbillon::{Clock, Driver, Engine};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Level, message and other fields of each event.
static EVENTS: Mutex<Vec<(Level, String, String)>> = Mutex::new(Vec::new());
static PANICS: AtomicBool = AtomicBool::new(false);

struct Memory;

/// The panic payload of the subscriber: its drop panics too.
struct Fails;

impl Drop for Fails {
    fn drop(&mut self) {
        panic!("a subscriber that fails twice");
    }
}

impl Subscriber for Memory {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tourbillon"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("there are no spans");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if PANICS.load(Ordering::SeqCst) {
            panic_any(Fails);
        }
        let mut text = Text::default();
        event.record(&mut text);
        events().push((*event.metadata().level(), text.message, text.fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields += &format!("{name}={value:?} "),
        }
    }
}

fn events() -> MutexGuard<'static, Vec<(Level, String, String)>> {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard for a test that reads the events, one test at a time. (Drivers emit events on their own threads, so there is one subscriber
/// for all.)
struct Listening(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Listening {
    fn new() -> Listening {
        static ALONE: Mutex<()> = Mutex::new(());
        static SUBSCRIBED: Once = Once::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Memory).unwrap());
        events().clear();
        Listening(alone)
    }

    /// Waits until this event has come. (The driver of an earlier test may still emit events, so the fields matter too.)
    fn hears(&self, level: Level, message: &str, fields: &str) {
        let start = Instant::now();
        let is_meant =
            |event: &(Level, String, String)| event.0 == level && event.1 == message && event.2.contains(fields);
        while !events().iter().any(is_meant) {
            assert!(start.elapsed() < Duration::from_secs(10), "no {message:?}, {fields:?} in {:#?}", events());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(&self, message: &str) -> usize {
        events().iter().filter(|event| event.1 == message).count()
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        events().fmt(f)
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that fails");
    }
}

const LATE: &str = "timers fired late: the driver was kept from running";

#[test]
fn b5_the_life_of_an_engine_is_logged_from_its_start_to_its_end() {
    let story = Listening::new();
    let engine = Engine::builder().shards(3).build().unwrap();
    story.hears(Level::DEBUG, "engine built", "clock=Clock::monotonic shards=3");
    story.hears(Level::DEBUG, "driver started", "on=\"a thread\"");
    assert_eq!(story.count("engine shut down"), 0);
    engine.shutdown();
    engine.shutdown();
    drop(engine);
    assert_eq!(story.count("engine shut down"), 1);
}

#[cfg(tourbillon_driver_task)]
#[test]
fn b5_a_thread_that_takes_over_from_a_runtime_logs_that() {
    let story = Listening::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
    let engine = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() });
    story.hears(Level::DEBUG, "driver started", "on=\"a task\"");
    drop(runtime);
    story.hears(Level::INFO, "the driver's runtime has gone: a thread takes over", "");
    drop(engine);
}

#[test]
fn b5_a_waker_that_panics_is_reported_and_a_subscriber_that_panics_is_harmless() {
    let story = Listening::new();
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    for subscriber_panics in [false, true] {
        let mut sleep = pin!(engine.sleep(Duration::from_secs(1)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        PANICS.store(subscriber_panics, Ordering::SeqCst);
        assert_eq!(engine.advance(Duration::from_secs(1)), 1);
        PANICS.store(false, Ordering::SeqCst);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    story.hears(Level::ERROR, "a waker panicked", "");
    assert_eq!((story.count("a waker panicked"), engine.stats().waker_panics), (1, 2));
}

#[test]
fn b5_late_turns_are_reported_but_not_one_by_one() {
    let story = Listening::new();
    let engine = Engine::builder().driver(Driver::external()).build().unwrap();
    for _ in 0..2 {
        let mut sleep = pin!(engine.sleep(Duration::from_millis(1)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // The engine is not turned meanwhile.
        thread::sleep(Duration::from_millis(15));
        assert_eq!(engine.turn().fired, 1);
    }
    story.hears(Level::WARN, LATE, "fired=1 untold=0");
    assert_eq!(story.count(LATE), 1, "{story:?}");
}

#[test]
fn b5_timers_that_a_manual_clock_passes_over_are_not_late() {
    let story = Listening::new();
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let mut sleep = pin!(engine.sleep(Duration::from_secs(1)));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    engine.clock().advance(Duration::from_secs(60));
    assert_eq!(engine.turn().fired, 1);
    assert_eq!(story.count(LATE), 0, "{story:?}");
}
