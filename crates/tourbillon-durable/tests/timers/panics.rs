//! Code of the user that panics where it is not expected to: wakers, functions that spawn handlers, destructors.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_lite::future::block_on;
use tourbillon_durable::{Ack, Delivery, Event, MemoryStore, NewTimer, RetryPolicy, Timers};

use crate::queue::{Held, timer};
use crate::{PATIENCE, end, eventually, hour, ms, next, open, record};

/// What panics on purpose say.
const ON_PURPOSE: &str = "it panics, on purpose";

fn panic_on_purpose() -> ! {
    std::panic::panic_any(ON_PURPOSE)
}

/// Runs a test without the standard hook's words about panics that are part of it.
fn quietly(test: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = Arc::new(std::panic::take_hook());
    let again = Arc::clone(&hook);
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&ON_PURPOSE) {
            again(info);
        }
    }));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
    drop(std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| hook(info)));
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// A waker that counts its calls, and panics at each of them if it is to.
struct CountedWaker {
    panics: bool,
    calls: AtomicUsize,
}

impl CountedWaker {
    fn new(panics: bool) -> Arc<CountedWaker> {
        Arc::new(CountedWaker { panics, calls: AtomicUsize::new(0) })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            panic_on_purpose();
        }
    }
}

fn poll_with<F: Future>(future: Pin<&mut F>, waker: &Arc<CountedWaker>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(waker))))
}

/// Something whose destructor panics.
struct PanicsAtDrop;

impl Drop for PanicsAtDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_on_purpose();
        }
    }
}

#[test]
fn p6_o2_a_waker_that_panics_when_it_gets_its_place_loses_no_other_caller() {
    quietly(|| {
        let held = Held::open(4);
        let first = (0..4).map(|number| held.create(&format!("first {number}"))).collect::<Vec<_>>();
        let wakers: Vec<_> = (0..4).map(|number| CountedWaker::new(number % 2 == 0)).collect();
        let mut waiting: Vec<_> =
            (0..4).map(|number| Box::pin(held.timers.create(timer(&format!("waits {number}"))))).collect();
        for (future, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(poll_with(future.as_mut(), waker).is_pending());
        }
        held.answer_all_of(4);
        eventually("each of them is woken", || wakers.iter().all(|waker| waker.calls() == 1));
        for created in first {
            assert!(block_on(created).is_ok());
        }
        for created in waiting {
            held.answer_until(created).unwrap();
        }
        end(&held.timers);
    });
}

#[test]
fn p6_a_waker_that_panics_when_its_answer_comes_ends_neither_the_node_nor_the_store() {
    quietly(|| {
        let timers = open();
        let delivered = record(&timers, "mail", |_| Ack::Done);
        let waker = CountedWaker::new(true);
        let mut created = pin!(timers.create(NewTimer::after("far", hour()).key("a")));
        assert!(poll_with(created.as_mut(), &waker).is_pending());
        eventually("the waker is called", || waker.calls() == 1);
        assert!(block_on(created).is_ok(), "the answer is there all the same");
        timers.blocking().create(NewTimer::after("mail", Duration::ZERO).key("b")).unwrap();
        assert_eq!(next(&delivered).key(), Some("b"));
        let mut paused = pin!(timers.pause());
        let waker = CountedWaker::new(true);
        while poll_with(paused.as_mut(), &waker).is_pending() {
            std::thread::yield_now();
        }
        assert_eq!(timers.blocking().counts().unwrap().armed, 1);
        end(&timers);
    });
}

#[cfg(feature = "embedded")]
#[test]
fn p6_a_waker_that_panics_leaves_the_threads_of_a_store_in_a_directory_as_they_were() {
    use tourbillon_durable::store::EmbeddedStore;

    quietly(|| {
        let directory = tempfile::tempdir().unwrap();
        let timers = Timers::builder().build(EmbeddedStore::open(directory.path()).unwrap()).unwrap();
        for round in 0..3 {
            let waker = CountedWaker::new(true);
            let mut counts = pin!(timers.counts());
            if poll_with(counts.as_mut(), &waker).is_pending() {
                eventually("the waker is called", || waker.calls() == 1);
            }
            let (sender, pages) = async_channel::bounded(1);
            // The panic leaves the channel in disorder, which is the caller's own: it is not touched any more.
            let pages = Box::leak(Box::new(pages));
            let page = Box::leak(Box::new(Box::pin(pages.recv())));
            let waker = CountedWaker::new(true);
            assert!(poll_with(page.as_mut(), &waker).is_pending());
            let (reply, copied) = std::sync::mpsc::channel();
            let reply = tourbillon_durable::store::Reply::new(move |result| reply.send(result).unwrap());
            timers.store().snapshot(sender, reply);
            let _broken_off = copied.recv_timeout(PATIENCE).unwrap();
            timers.blocking().create(NewTimer::after("far", hour())).unwrap();
            assert_eq!(timers.blocking().counts().unwrap().armed, round + 1);
        }
        end(&timers);
    });
}

#[test]
fn p6_p10_a_subscriber_whose_waker_panics_or_asks_for_more_gets_all_events_and_so_do_others() {
    /// Asks the same subscription for its next event, from inside of the waker.
    struct Reentrant(Mutex<Option<tourbillon_durable::Events>>, AtomicBool);

    impl Wake for Reentrant {
        fn wake(self: Arc<Self>) {
            let events = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.1.store(events.is_some_and(|mut events| events.next_blocking().is_some()), Ordering::Relaxed);
        }
    }

    quietly(|| {
        let timers = open();
        let (mut panics, mut calm) = (timers.events(10).unwrap(), timers.events(10).unwrap());
        let waker = CountedWaker::new(true);
        let mut waits = Box::pin(panics.next());
        assert!(poll_with(waits.as_mut(), &waker).is_pending());
        let reentrant = Arc::new(Reentrant(Mutex::new(None), AtomicBool::new(false)));
        let mut inner = timers.events(10).unwrap();
        {
            let asks = Waker::from(Arc::clone(&reentrant));
            let mut waits = std::mem::ManuallyDrop::new(Box::pin(inner.next()));
            assert!(waits.as_mut().poll(&mut Context::from_waker(&asks)).is_pending());
        }
        *reentrant.0.lock().unwrap() = Some(inner);
        timers.blocking().create(NewTimer::after("far", hour())).unwrap();
        assert!(matches!(block_on(waits), Some(Event::Created { .. })));
        assert!(matches!(calm.next_blocking(), Some(Event::Created { .. })));
        eventually("the waker has got its event, under no lock", || reentrant.1.load(Ordering::Relaxed));
        assert_eq!(waker.calls(), 1);
        end(&timers);
        assert!(calm.next_blocking().is_none());
    });
}

#[test]
fn p6_a_function_that_spawns_handlers_and_panics_or_drops_them_is_a_failed_delivery() {
    quietly(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let spawn = {
            let calls = Arc::clone(&calls);
            move |handler: Pin<Box<dyn Future<Output = ()> + Send>>| match calls.fetch_add(1, Ordering::Relaxed) {
                0 => panic_on_purpose(),
                1 => drop(handler),
                _ => block_on(handler),
            }
        };
        let timers = Timers::builder().spawn_with(spawn).build(MemoryStore::new()).unwrap();
        let delivered = record(&timers, "mail", |_| Ack::Done);
        let soon = RetryPolicy { first: ms(1), longest: ms(1), ..RetryPolicy::default() };
        timers.blocking().create(NewTimer::after("mail", Duration::ZERO).retry(soon)).unwrap();
        assert_eq!(next(&delivered).attempt(), 3);
        end(&timers);
        assert_eq!((calls.load(Ordering::Relaxed), timers.stats().retried), (3, 2));
    });
}

#[test]
fn p6_handlers_and_their_futures_whose_destructors_panic_take_no_thread_with_them() {
    quietly(|| {
        let timers = Timers::builder().threads(1).build(MemoryStore::new()).unwrap();
        let calls = timers.blocking();
        let handler = || {
            let of_handler = PanicsAtDrop;
            move |_: Delivery| {
                let _kept = &of_handler;
                async {}
            }
        };
        for kind in ["one", "other"] {
            timers.on(kind, handler()).unwrap();
            timers.on(kind, handler()).unwrap();
        }
        timers
            .on("future", |_| {
                let of_future = PanicsAtDrop;
                std::future::poll_fn(move |_| {
                    let _kept = &of_future;
                    Poll::Ready(())
                })
            })
            .unwrap();
        for kind in ["one", "future", "other", "future"] {
            calls.create(NewTimer::after(kind, Duration::ZERO).retry(RetryPolicy::never())).unwrap();
        }
        eventually("two are delivered, and two have failed", || {
            let counts = calls.counts().unwrap();
            timers.stats().done == 2 && (counts.armed, counts.claimed, counts.dead) == (0, 0, 2)
        });
        timers.off("one").unwrap();
        let delivered = record(&timers, "mail", |_| Ack::Done);
        calls.create(NewTimer::after("mail", Duration::ZERO)).unwrap();
        next(&delivered);
        end(&timers);
    });
}
