//! A `tracing` subscriber that uses timers itself, as one does that writes its log with a timeout.
#![cfg(feature = "tracing")]

mod support;

use std::cell::Cell;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use tourbillon::time::Sleep;
use tourbillon::{Clock, Driver, Engine, Scheduler, Slack, time};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static EVENTS: AtomicUsize = AtomicUsize::new(0);
/// An engine for whose timers the subscriber waits, too.
static WAITED_FOR: Mutex<Option<Engine>> = Mutex::new(None);
/// The messages of the events in which the subscriber's waits have ended.
static WAITS_THAT_ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct UsesTimers;

thread_local! {
    /// The subscriber ignores events that its own calls cause.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Subscriber for UsesTimers {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tourbillon"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        EVENTS.fetch_add(1, Ordering::SeqCst);
        if !IS_INSIDE.replace(true) {
            block_on(time::sleep(Duration::from_millis(1)));
            let engine = WAITED_FOR.lock().unwrap().clone();
            engine.inspect(|engine| block_on(engine.sleep(Duration::from_millis(1))));
            let _ = Engine::current().stats();
            assert!(block_on(time::timeout(Duration::from_millis(1), std::future::pending::<()>())).is_err());
            IS_INSIDE.set(false);
            WAITS_THAT_ENDED.lock().unwrap().push(text_of(event));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the message of an event.
fn text_of(event: &Event<'_>) -> String {
    struct Message(String);
    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}");
            }
        }
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

/// Returns how often the subscriber's waits in such an event have ended.
fn ended(message: &str) -> usize {
    WAITS_THAT_ENDED.lock().unwrap().iter().filter(|ended| *ended == message).count()
}

/// Waits until they have ended more often than that.
fn end_once_more(message: &str, before: usize) {
    let start = Instant::now();
    while ended(message) == before {
        assert!(start.elapsed() < Duration::from_secs(60), "the subscriber waits for ever in {message:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

struct Calls<F>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Arms a sleep whose waker calls a function, and leaves it armed.
fn call_after(engine: &Engine, after: Duration, call: impl Fn() + Send + Sync + 'static) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(after).slack(Slack::exact()));
    let waker = Waker::from(Arc::new(Calls(call)));
    let mut context = Context::from_waker(&waker);
    while sleep.as_mut().poll(&mut context).is_ready() {
        // A busy machine has kept this thread for too long.
        sleep.as_mut().reset(engine.now() + after);
    }
    sleep
}

/// Makes the driver of an engine say that a waker panicked and that it was late.
fn make_the_driver_send_events(engine: &Engine) {
    const PANICKED: &str = "a waker panicked";
    const LATE: &str = "timers fired late: the driver was kept from running";
    let ms = Duration::from_millis;
    let (panicked, late) = (ended(PANICKED), ended(LATE));
    *WAITED_FOR.lock().unwrap() = Some(engine.clone());
    let _panics = call_after(engine, ms(2), || panic!("a waker that fails"));
    end_once_more(PANICKED, panicked);
    // The driver is kept until the second timer is late.
    let _keeps = call_after(engine, ms(20), move || thread::sleep(ms(60)));
    let _is_late = call_after(engine, ms(40), || ());
    end_once_more(LATE, late);
    *WAITED_FOR.lock().unwrap() = None;
}

#[test]
fn d81_a_subscriber_may_use_timers_in_every_event_of_an_engine() {
    tracing::subscriber::set_global_default(UsesTimers).expect("the only one of this process");
    let (done, is_done) = channel();
    thread::spawn(move || {
        // The first use makes the global engine, which emits an event to the subscriber.
        block_on(time::sleep(Duration::from_millis(1)));
        assert!(EVENTS.load(Ordering::SeqCst) > 0);
        // This call makes the engine that follows the wall clock.
        #[cfg(feature = "cron")]
        {
            let scheduler = Scheduler::builder().build().expect("a scheduler");
            scheduler.schedule("often", tourbillon::Cron::parse("* * * * * *").unwrap(), |_| ()).unwrap();
            drop(scheduler);
        }
        let scheduler = Scheduler::builder().build().expect("a scheduler");
        let (ran, has_run) = channel();
        scheduler
            .schedule("fails", Duration::from_millis(1), move |_| {
                let _ = ran.send(());
                Err::<(), _>("on purpose")
            })
            .unwrap();
        has_run.recv().unwrap();
        drop(scheduler);
        make_the_driver_send_events(&Engine::builder().driver(Driver::thread()).build().unwrap());
        #[cfg(tourbillon_driver_task)]
        if support::has_timerfd() {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
            let engine = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() });
            make_the_driver_send_events(&engine);
        }
        let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
        let _entered = engine.enter();
        drop(engine);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("the subscriber deadlocks with the engine that emits the event");
}
