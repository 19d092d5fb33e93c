//! Timers in a process that is forked: those of the parent are not affected, and the child has an engine that works.
#![cfg(tourbillon_proc)]

mod support;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use tourbillon::time::{self, Sleep};
use tourbillon::{ArmError, Clock, Engine, NamedTimers, Outcome};

use self::support::{Task, ms};

/// Longer than any child takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the closure in a child, and asserts that the child exits with success.
#[track_caller]
fn in_child(run: impl FnOnce()) {
    // SAFETY: the child uses the heap, which the C library keeps usable across a fork, and our own code, which is under test. It leaves
    // by `_exit`, so no code of the test harness runs in it.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "no fork: {}", std::io::Error::last_os_error());
    if id == 0 {
        let code = if catch_unwind(AssertUnwindSafe(run)).is_ok() { 0 } else { 1 };
        // SAFETY: `_exit` only ends the child; no destructor runs.
        unsafe { libc::_exit(code) };
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: `id` is a child of this process, and only this function waits for it.
    while unsafe { libc::waitpid(id, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > PATIENCE {
            // SAFETY: the child has not been waited for, so its id is not in use by another process.
            unsafe { libc::kill(id, libc::SIGKILL) };
            // SAFETY: as for the first wait.
            unsafe { libc::waitpid(id, &raw mut status, 0) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(status, 0, "the child has failed");
}

/// Returns an armed sleep.
fn armed(engine: &Engine, duration: Duration) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(duration));
    assert!(Task::new().poll(sleep.as_mut()).is_pending());
    sleep
}

#[test]
fn e9_a_view_that_a_child_drops_still_serves_its_parent() {
    use std::io::{Read, Write};
    let path = std::env::temp_dir().join(format!("tourbillon-fork-{}.sock", std::process::id()));
    let mut inspector = Some(tourbillon::inspect::serve(path.to_str().unwrap()).unwrap());
    // The child has a copy of the variable.
    in_child(|| drop(inspector.take()));
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("the parent listens");
    stream.write_all(b"GET /stats HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    drop(inspector);
    assert!(!path.exists());
}

#[test]
fn d69_timers_that_a_child_arms_do_not_move_the_alarm_of_its_parent() {
    for engine in [Engine::global(), Engine::builder().build().unwrap()] {
        let sleep = armed(&engine, ms(300));
        // Later than the pending timer, and earlier.
        for duration in [Duration::from_secs(600), ms(1)] {
            in_child(|| {
                let task = Task::new();
                let mut own = Box::pin(engine.sleep(duration));
                assert!(task.poll(own.as_mut()).is_ready(), "an engine of the parent has no driver here");
                assert_eq!(own.outcome(), Some(Outcome::Stopped));
                assert_eq!(engine.try_sleep(duration).unwrap_err(), ArmError::Stopped);
                forget(own);
            });
        }
        block_on(sleep);
        assert!(engine.stats().fired > 0 && engine.stats().lateness.max() < Duration::from_secs(30));
    }
}

#[test]
fn d69_the_global_engine_of_a_child_works() {
    (0..100).for_each(|_| drop(time::try_sleep(ms(1))));
    in_child(|| {
        let start = time::Instant::now();
        block_on(time::sleep(ms(5)));
        assert!(start.elapsed() >= ms(5));
        assert!(block_on(time::timeout(ms(5), std::future::pending::<()>())).is_err());
        assert!(!Engine::global().is_shutdown());
        assert!(Engine::global().stats().armed < 100, "the child has a global engine of its own");
        // The same in a child of the child.
        in_child(|| block_on(time::sleep(ms(1))));
        // Surfaces that are made in the child work, too.
        let (send, receive) = std::sync::mpsc::channel();
        let timers = NamedTimers::new();
        timers.start("name", ms(1), move |outcome| send.send(outcome).unwrap()).unwrap();
        assert_eq!(receive.recv_timeout(PATIENCE).unwrap(), Outcome::Fired);
    });
    block_on(time::sleep(ms(1)));
}

#[test]
fn d69_an_inherited_sleep_ends_as_stopped_in_the_child_and_fires_in_the_parent() {
    let engine = Engine::builder().build().unwrap();
    let mut sleep = armed(&engine, ms(200));
    let mut reset = armed(&engine, ms(250));
    in_child(|| {
        let task = Task::new();
        assert!(task.poll(sleep.as_mut()).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
        for later in [ms(1), Duration::from_secs(3600)] {
            reset.as_mut().reset(time::Instant::now() + later);
            assert!(task.poll(reset.as_mut()).is_ready());
        }
        assert!(engine.is_shutdown());
        engine.shutdown();
        assert_eq!(engine.stats().armed, 0);
        assert!(engine.worker(|| ()).is_none());
        let entered = engine.enter();
        block_on(time::sleep(Duration::from_secs(3600)));
        drop(entered);
        block_on(time::sleep(ms(1)));
    });
    assert!(!engine.is_shutdown());
    block_on(sleep.as_mut());
    block_on(reset.as_mut());
    assert_eq!((sleep.outcome(), reset.outcome()), (Some(Outcome::Fired), Some(Outcome::Fired)));
}

#[test]
fn d69_a_guard_that_was_made_before_a_fork_can_be_dropped_after_it() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let mut guard = Some(engine.enter());
    in_child(|| {
        drop(guard.take());
        block_on(time::sleep(ms(1)));
        assert_eq!(engine.advance(ms(10)), 0);
    });
    let sleep = time::try_sleep(ms(1)).unwrap();
    assert_eq!(engine.advance(ms(1)), 1);
    assert!(sleep.is_elapsed());
}

#[test]
fn d69_a_sleep_that_waits_for_a_slot_can_be_dropped_and_polled_in_a_child() {
    let engine = Engine::builder().capacity(1).build().unwrap();
    let _takes_all_slots = armed(&engine, Duration::from_secs(3600));
    let [mut polled, dropped, kept] = [(); 3].map(|()| armed(&engine, ms(100)));
    in_child(|| {
        assert!(Task::new().poll(polled.as_mut()).is_ready());
        assert_eq!(polled.outcome(), Some(Outcome::Stopped));
        drop(dropped);
    });
    block_on(kept);
}

/// The child may find any lock of the parent's engine held by a thread that does not exist in the child.
#[test]
fn d69_a_process_can_be_forked_at_any_moment_while_others_arm_cancel_and_fire() {
    let engine = Engine::builder().capacity(1 << 20).build().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for engine in [engine.clone(), Engine::global()] {
                        let _far = armed(&engine, Duration::from_secs(60));
                        drop(engine.sleep(ms(1)));
                        block_on(engine.sleep(Duration::from_micros(20)));
                        let _ = engine.stats();
                    }
                }
            });
        }
        for round in 0..200 {
            let soon = armed(&engine, ms(2));
            let inherited: Vec<_> = (0..20)
                .flat_map(|_| [armed(&engine, Duration::from_secs(60)), armed(&Engine::global(), ms(50))])
                .collect();
            in_child(|| {
                drop(inherited);
                drop(engine.clone());
                if round % 2 == 0 {
                    block_on(time::sleep(Duration::from_micros(50)));
                    let own = Engine::builder().build().unwrap();
                    block_on(own.sleep(Duration::from_micros(50)));
                }
            });
            block_on(soon);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
