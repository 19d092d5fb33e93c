//! A `tracing` subscriber that uses timers itself, as one does that writes its log with a timeout.
#![cfg(feature = "tracing")]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use tourbillon::{Clock, Engine, Scheduler, time};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static EVENTS: AtomicUsize = AtomicUsize::new(0);

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

    fn event(&self, _: &Event<'_>) {
        EVENTS.fetch_add(1, Ordering::SeqCst);
        if thread::current().name() == Some("tourbillon") {
            // The driver itself, which says that timers were late: no other thread would fire a timer for which it waits here.
            drop(time::try_sleep(Duration::from_millis(1)));
        } else if !IS_INSIDE.replace(true) {
            block_on(time::sleep(Duration::from_millis(1)));
            let _ = Engine::current().stats();
            assert!(block_on(time::timeout(Duration::from_millis(1), std::future::pending::<()>())).is_err());
            IS_INSIDE.set(false);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
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
        let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
        let _entered = engine.enter();
        drop(engine);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("the subscriber deadlocks with the engine that emits the event");
}
