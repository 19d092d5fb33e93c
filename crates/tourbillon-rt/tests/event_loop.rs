//! The event loop (A9), on both back ends.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::{eventually, ms, on_each_backend};
use tourbillon::Outcome;
use tourbillon_rt::{EventLoop, time};

fn on_each_loop(test: impl Fn(&EventLoop)) {
    on_each_backend(|backend| test(&EventLoop::with_backend(backend).unwrap()));
}

/// Returns a counter, and a handler that counts.
fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Box<dyn FnOnce() + Send>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let handler = move || {
        let counts = Arc::clone(&counts);
        Box::new(move || _ = counts.fetch_add(1, Ordering::SeqCst)) as Box<dyn FnOnce() + Send>
    };
    (count, handler)
}

#[test]
fn a9_run_calls_posted_handlers_in_order_and_returns_when_there_are_no_more() {
    on_each_loop(|events| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let order = Arc::clone(&order);
            events.post(move || order.lock().unwrap().push(number));
        }
        assert!(order.lock().unwrap().is_empty(), "a11: not inside the call that posts");
        assert_eq!(events.run(), 100);
        assert!(order.lock().unwrap().iter().copied().eq(0..100));
        assert_eq!(events.run(), 0);
    });
}

#[test]
fn a9_a_pending_wait_is_work() {
    on_each_loop(|events| {
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let timer = events.timer();
        let start = Instant::now();
        timer.expires_after(ms(5));
        for _ in 0..2 {
            let outcomes = Arc::clone(&outcomes);
            drop(events.on_expiry(&timer, move |outcome| outcomes.lock().unwrap().push(outcome)));
        }
        assert_eq!(events.run(), 2);
        assert!(start.elapsed() >= ms(5));
        assert_eq!(*outcomes.lock().unwrap(), [Outcome::Fired; 2]);
    });
}

#[test]
fn a9_a_cancelled_wait_is_a_handler_that_says_so() {
    on_each_loop(|events| {
        let seen = Arc::new(Mutex::new(None));
        let timer = events.timer();
        timer.expires_after(Duration::from_secs(3600));
        let sees = Arc::clone(&seen);
        let _wait = events.on_expiry(&timer, move |outcome| *sees.lock().unwrap() = Some(outcome));
        assert_eq!(timer.cancel(), 1);
        assert_eq!(events.run(), 1);
        assert_eq!(*seen.lock().unwrap(), Some(Outcome::Cancelled));
    });
}

/// The names of the handlers that have run, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Returns a log, and handlers that write their names into it.
fn log() -> (Log, impl Fn(&str) -> Box<dyn FnOnce() + Send>) {
    let log = Log::default();
    let its = Arc::clone(&log);
    let handler = move |what: &str| {
        let (log, what) = (Arc::clone(&its), what.to_owned());
        Box::new(move || log.lock().unwrap().push(what)) as Box<dyn FnOnce() + Send>
    };
    (log, handler)
}

#[test]
fn d78_the_handler_of_a_cancelled_wait_is_ready_when_cancel_returns() {
    on_each_loop(|events| {
        for _ in 0..200 {
            let timer = events.timer();
            timer.expires_after(Duration::from_secs(3600));
            let (log, handler) = log();
            let waits = ["first", "second", "third"].map(|name| {
                let handler = handler(name);
                events.on_expiry(&timer, move |outcome| {
                    assert_eq!(outcome, Outcome::Cancelled);
                    handler();
                })
            });
            assert!(waits[1].cancel());
            assert!(!waits[1].is_pending() && waits[0].is_pending());
            assert_eq!((events.poll(), &**log.lock().unwrap()), (1, &["second".to_owned()][..]));
            assert!(timer.cancel_one());
            assert_eq!(events.poll_one(), 1);
            assert_eq!(timer.cancel(), 1);
            assert_eq!(events.poll(), 1);
            assert_eq!(*log.lock().unwrap(), ["second", "first", "third"]);
        }
    });
}

#[test]
fn d78_a_handler_that_is_posted_after_a_cancel_runs_after_the_cancelled_ones() {
    on_each_loop(|events| {
        for round in 0..200 {
            let (log, handler) = log();
            let timer = events.timer();
            timer.expires_after(Duration::from_secs(3600));
            for name in ["first", "second"] {
                let handler = handler(name);
                drop(events.on_expiry(&timer, move |_| handler()));
            }
            events.post(handler("posted before"));
            // Everything that ends a wait: a cancel, a new expiry, the drop of the timer.
            match round % 3 {
                0 => assert_eq!(timer.cancel(), 2),
                1 => assert_eq!(timer.expires_after(Duration::from_secs(60)), 2),
                _ => drop(timer),
            }
            events.post(handler("posted after"));
            assert_eq!(events.run(), 4);
            assert_eq!(*log.lock().unwrap(), ["posted before", "first", "second", "posted after"]);
        }
    });
}

#[test]
fn d78_a_handler_that_cancels_and_posts_has_both_run_in_that_order() {
    on_each_loop(|events| {
        let (log, handler) = log();
        let timer = events.timer();
        timer.expires_after(Duration::from_secs(3600));
        let cancelled = handler("cancelled");
        drop(events.on_expiry(&timer, move |_| cancelled()));
        let (its, posted) = (events.clone(), handler("posted"));
        let seen = Arc::clone(&log);
        events.post(move || {
            assert_eq!(timer.cancel(), 1);
            its.post(posted);
            assert!(seen.lock().unwrap().is_empty(), "a11: not inside the call that cancels");
        });
        assert_eq!(events.run(), 3);
        assert_eq!(*log.lock().unwrap(), ["cancelled", "posted"]);
    });
}

#[test]
fn d78_a_wait_for_a_timer_that_has_expired_is_ready_at_once_and_not_called_inside() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        let timer = events.timer();
        let counts = handler();
        let _wait = events.on_expiry(&timer, move |outcome| {
            assert_eq!(outcome, Outcome::Fired);
            counts();
        });
        assert_eq!(count.load(Ordering::SeqCst), 0, "a11: not inside the call that begins the wait");
        assert_eq!(events.run(), 1);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn d78_d28_the_handler_of_a_wait_that_is_cancelled_after_its_loop_is_gone_runs_outside_the_cancel() {
    on_each_backend(|backend| {
        let events = EventLoop::with_backend(backend).unwrap();
        // A timer of another engine, so that it outlives the loop.
        let timer = tourbillon::Timer::after(Duration::from_secs(3600));
        let held = Arc::new(Mutex::new(()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let takes = Arc::clone(&held);
        let _wait = events.on_expiry(&timer, move |outcome| {
            let _taken = takes.lock().unwrap();
            sender.send(outcome).unwrap();
        });
        drop(events);
        let guard = held.lock().unwrap();
        // A handler inside this call would wait for the lock that this thread holds.
        assert_eq!(timer.cancel(), 1);
        drop(guard);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(Outcome::Cancelled));
    });
}

#[test]
fn a9_handlers_post_handlers() {
    on_each_loop(|events| {
        fn again(events: &EventLoop, left: usize) {
            let its = events.clone();
            events.post(move || {
                if left > 1 {
                    again(&its, left - 1);
                }
            });
        }
        again(events, 1000);
        assert_eq!(events.run(), 1000);
    });
}

#[test]
fn a9_run_one_calls_one_and_poll_waits_for_none() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        (0..5).for_each(|_| events.post(handler()));
        assert_eq!((events.run_one(), count.load(Ordering::SeqCst)), (1, 1));
        assert_eq!((events.poll_one(), count.load(Ordering::SeqCst)), (1, 2));
        assert_eq!((events.poll(), count.load(Ordering::SeqCst)), (3, 5));
        let _guard = events.work_guard();
        assert_eq!((events.poll(), events.poll_one()), (0, 0));
    });
}

#[test]
fn a9_run_for_returns_in_time_though_there_is_work() {
    on_each_loop(|events| {
        let _guard = events.work_guard();
        let start = Instant::now();
        assert_eq!(events.run_for(ms(10)), 0);
        assert!(start.elapsed() >= ms(10));
        drop(_guard);
        assert_eq!(events.run_for(Duration::from_secs(3600)), 0, "without work it does not wait");
    });
}

#[test]
fn a9_a_work_guard_keeps_the_loop_running_until_it_is_dropped() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        let guard = events.work_guard();
        let runs = events.clone();
        let thread = thread::spawn(move || runs.run());
        for round in 1..=20 {
            events.post(handler());
            eventually("it is called", || count.load(Ordering::SeqCst) == round);
        }
        assert!(!thread.is_finished());
        drop(guard);
        assert_eq!(thread.join().unwrap(), 20);
    });
}

#[test]
fn a9_stop_lets_all_return_and_restart_lets_them_go_on() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        let _guard = events.work_guard();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let events = events.clone();
                thread::spawn(move || events.run())
            })
            .collect();
        thread::sleep(ms(2));
        events.stop();
        threads.into_iter().for_each(|thread| _ = thread.join().unwrap());
        assert!(events.is_stopped());
        events.post(handler());
        assert_eq!((events.run(), events.poll(), count.load(Ordering::SeqCst)), (0, 0, 0));
        events.restart();
        assert_eq!((events.poll(), count.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn a9_no_handler_is_called_after_stop_nor_when_the_time_is_over() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        let stops = events.clone();
        events.post(move || stops.stop());
        (0..10).for_each(|_| events.post(handler()));
        assert_eq!((events.run(), count.load(Ordering::SeqCst)), (1, 0));
        events.restart();
        assert_eq!((events.run_for(Duration::ZERO), count.load(Ordering::SeqCst)), (0, 0));
        assert_eq!((events.run(), count.load(Ordering::SeqCst)), (10, 10));
        // The first one takes more than all of the time.
        events.post(|| thread::sleep(ms(200)));
        events.post(handler());
        assert_eq!((events.run_for(ms(200)), count.load(Ordering::SeqCst)), (1, 10));
        assert_eq!((events.run(), count.load(Ordering::SeqCst)), (1, 11));
    });
}

#[test]
fn a9_many_threads_run_one_loop_and_each_handler_is_called_once() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        let guard = events.work_guard();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let events = events.clone();
                thread::spawn(move || events.run())
            })
            .collect();
        (0..20_000).for_each(|_| events.post(handler()));
        drop(guard);
        let called: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!((called, count.load(Ordering::SeqCst)), (20_000, 20_000));
    });
}

#[test]
fn a9_the_panic_of_a_handler_comes_out_of_run_and_the_loop_goes_on() {
    on_each_loop(|events| {
        let (count, handler) = counter();
        events.post(handler());
        // Not by the macro: the hook would print it.
        events.post(|| std::panic::resume_unwind(Box::new("on purpose")));
        events.post(handler());
        let thrown = catch_unwind(AssertUnwindSafe(|| events.run())).unwrap_err();
        assert_eq!(thrown.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!((events.run(), count.load(Ordering::SeqCst)), (1, 2));
    });
}

#[test]
fn a9_a_task_is_work_until_it_has_ended_and_its_sleeps_are_the_loops() {
    on_each_loop(|events| {
        let task = events.spawn(async {
            let start = time::Instant::now();
            time::sleep(ms(5)).await;
            start.elapsed()
        });
        assert!(events.run() >= 2);
        assert!(task.is_finished());
        let slept = futures_lite::future::block_on(task).unwrap();
        assert!(slept >= ms(5));
        assert_eq!(events.engine().stats().fired, 1);
    });
}

#[test]
fn a9_a_handler_that_blocks_its_thread_delays_no_timer_and_no_socket_of_the_others() {
    on_each_loop(|events| {
        let guard = events.work_guard();
        let run = || {
            let events = events.clone();
            thread::spawn(move || events.run())
        };
        // All sockets are registered with the first thread's reactor.
        let first = run();
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                events.spawn(async {
                    let (a, b) = support::pair().await;
                    let reader = tourbillon_rt::spawn(async move { a.read_exact(&mut [0; 1]).await.unwrap() });
                    time::sleep(ms(20)).await;
                    b.write_all(b"x").await.unwrap();
                    reader.await.unwrap();
                })
            })
            .collect();
        thread::sleep(ms(5));
        let (release, until) = std::sync::mpsc::channel::<()>();
        events.post(move || _ = until.recv());
        thread::sleep(ms(2));
        let second = run();
        eventually("all others end", || tasks.iter().all(tourbillon_rt::JoinHandle::is_finished));
        drop((release, guard));
        [first, second].into_iter().for_each(|thread| _ = thread.join().unwrap());
    });
}

#[test]
fn a9_a_thread_that_polls_a_loop_finds_its_sockets_as_it_left_them_and_makes_no_needless_calls() {
    on_each_loop(|events| {
        let task = events.spawn(async {
            let (a, b) = support::pair().await;
            let reader = tourbillon_rt::spawn(async move { a.read(&mut [0; 8]).await.unwrap() });
            time::sleep(ms(30)).await;
            b.write_all(b"x").await.unwrap();
            reader.await.unwrap()
        });
        while !task.is_finished() {
            if events.poll() == 0 {
                thread::sleep(ms(1));
            }
        }
        assert_eq!(futures_lite::future::block_on(task).unwrap(), 1);
        assert_eq!(events.poll(), 0);
        let waits = events.spawn(async {
            let (a, _b) = support::pair().await;
            a.read(&mut [0; 8]).await
        });
        while events.poll() > 0 {}
        thread::sleep(ms(2));
        while events.poll() > 0 {}
        assert_eq!((events.poll(), events.poll()), (0, 0), "it waits, and nothing has happened");
        // On another thread a socket is registered again, and its task then waits there.
        thread::scope(|scope| {
            scope.spawn(|| {
                while events.poll() > 0 {}
                assert_eq!(events.poll(), 0);
            });
        });
        assert!(!waits.is_finished());
    });
}

#[test]
fn a9_a_loop_within_its_own_handler_is_not_run() {
    on_each_loop(|events| {
        let (inside, seen) = (events.clone(), Arc::new(AtomicUsize::new(99)));
        let sees = Arc::clone(&seen);
        events.post(move || sees.store(inside.run(), Ordering::SeqCst));
        assert_eq!(events.run(), 1);
        assert_eq!(seen.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn d28_the_handler_of_a_wait_runs_when_its_loop_is_dropped() {
    on_each_loop(|events| {
        let loop_of_its_own = EventLoop::with_backend(events.backend()).unwrap();
        let (count, _) = counter();
        let timer = loop_of_its_own.timer();
        timer.expires_after(Duration::from_secs(3600));
        let counts = Arc::clone(&count);
        let _wait = loop_of_its_own.on_expiry(&timer, move |outcome| {
            assert_eq!(outcome, Outcome::Stopped);
            counts.fetch_add(1, Ordering::SeqCst);
        });
        drop(loop_of_its_own);
        eventually("the handler has run", || count.load(Ordering::SeqCst) == 1);
    });
}

#[test]
fn d28_the_handler_of_an_expired_wait_runs_also_if_no_thread_runs_its_loop_any_more() {
    on_each_backend(|backend| {
        let events = EventLoop::with_backend(backend).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let timers: Vec<_> = (0..10).map(|_| events.timer()).collect();
        for timer in &timers {
            let sender = sender.clone();
            timer.expires_after(ms(1));
            drop(events.on_expiry(timer, move |outcome| sender.send(outcome).unwrap()));
        }
        drop(sender);
        eventually("all have expired", || events.engine().stats().fired >= 10);
        drop(events);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [Outcome::Fired; 10]);
    });
}

#[test]
fn p6_d28_a_handler_that_panics_when_its_loop_is_dropped_keeps_no_other_from_running() {
    on_each_backend(|backend| {
        let events = EventLoop::with_backend(backend).unwrap();
        let (count, _) = counter();
        let timer = events.timer();
        timer.expires_after(ms(1));
        for number in 0..10 {
            let count = Arc::clone(&count);
            drop(events.on_expiry(&timer, move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                if number % 2 == 0 {
                    resume_unwind(Box::new("on purpose"));
                }
            }));
        }
        eventually("it has expired", || events.engine().stats().fired >= 1);
        drop(events);
        eventually("all handlers have run", || count.load(Ordering::SeqCst) == 10);
    });
}

#[test]
fn p6_values_of_a_handler_may_panic_when_it_is_dropped_with_its_loop() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            resume_unwind(Box::new("on purpose"));
        }
    }
    on_each_backend(|backend| {
        let events = EventLoop::with_backend(backend).unwrap();
        let (count, _) = counter();
        for _ in 0..3 {
            let bad = Bad(Arc::clone(&count));
            events.post(move || drop(bad));
        }
        drop(events);
        assert_eq!(count.load(Ordering::SeqCst), 3);
    });
}
