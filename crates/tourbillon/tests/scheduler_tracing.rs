//! A `tracing` subscriber that uses the scheduler inside the scheduler's own events: no event is emitted under a lock.
#![cfg(feature = "tracing")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use tourbillon::scheduler::{Plan, Run, Scheduler, Shutdown};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static SCHEDULER: OnceLock<Mutex<Option<Scheduler<usize>>>> = OnceLock::new();
static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// Calls every method of the scheduler in each event.
struct Caller;

impl Subscriber for Caller {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tourbillon"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let scheduler = SCHEDULER.get().and_then(|cell| cell.lock().unwrap().clone());
        let Some(scheduler) = scheduler else { return };
        let key = 100 + EVENTS.fetch_add(1, Ordering::SeqCst);
        let _shut_down_meanwhile = scheduler.schedule(key, Plan::every(Duration::from_secs(3600)), |_: &Run<usize>| {});
        let _: (Vec<usize>, usize) = (scheduler.keys(), scheduler.len());
        let _ = (scheduler.stats(), scheduler.report(&key), scheduler.next_run(&key), scheduler.remaining(&key));
        let _ = (scheduler.pause(&key), scheduler.resume(&key));
        let _ = scheduler.reschedule(&key, Plan::once(Duration::from_secs(3600)));
        let _: bool = scheduler.remove(&key);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn d81_p10_a_subscriber_may_use_the_scheduler_inside_its_events() {
    let (sender, receiver) = channel();
    // On a thread of its own, so that a deadlock fails the test instead of hanging it.
    let test = thread::spawn(move || {
        tracing::subscriber::set_global_default(Caller).unwrap();
        let scheduler = Scheduler::builder().threads(2).build().unwrap();
        SCHEDULER.set(Mutex::new(Some(scheduler.clone()))).unwrap_or_else(|_| panic!("once"));
        let (ran, runs) = channel();
        let blocking = ran.clone();
        scheduler
            .schedule(1, Plan::once(Duration::ZERO), move |_: &Run<usize>| -> Result<(), std::io::Error> {
                blocking.send(()).unwrap();
                Err(std::io::Error::other("on purpose"))
            })
            .unwrap();
        scheduler
            .schedule_async(2, Plan::once(Duration::ZERO), move |run: Run<usize>| {
                let ran = ran.clone();
                async move {
                    ran.send(()).unwrap();
                    assert_ne!(run.number(), 1, "on purpose");
                }
            })
            .unwrap();
        runs.recv().unwrap();
        runs.recv().unwrap();
        while scheduler.stats().failed < 2 {
            thread::yield_now();
        }
        // The test and the closures drop their handles: the last drop ends the scheduler.
        *SCHEDULER.get().unwrap().lock().unwrap() = None;
        scheduler.shutdown(Shutdown::Abort).wait();
        sender.send(EVENTS.load(Ordering::SeqCst)).unwrap();
    });
    let events = receiver.recv_timeout(Duration::from_secs(60));
    assert!(events.is_ok() || !test.is_finished(), "the test's thread has failed: {:?}", test.join());
    assert!(events.expect("a deadlock") >= 2);
}
