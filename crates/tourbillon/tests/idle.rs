//! P9: idle is free. These tests measure a whole thread or process, so they have a program of their own and run one at a time.
#![cfg(tourbillon_proc)]

mod support;

use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use support::{eventually, ms, naps_in, one_at_a_time, poll_with, years};
use tourbillon::time::Sleep;
use tourbillon::{Clock, Driver, Engine, Slack};

/// Returns the `/proc` folders of the driver threads.
fn drivers() -> Vec<PathBuf> {
    threads_named("tourbillon")
}

/// Returns the `/proc` folders of the threads with this name. (A thread sets its own name, so a new one may not be among them yet.)
fn threads_named(name: &str) -> Vec<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| Some(task.ok()?.path()));
    tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|of_task| of_task.trim() == name)).collect()
}

/// Reads a `/proc` file of the driver thread, of which there must be one.
fn of_driver(file: &str) -> String {
    eventually("there is one engine with a driver thread", || drivers().len() == 1);
    fs::read_to_string(drivers()[0].join(file)).unwrap()
}

/// Returns how often the driver thread has gone to sleep.
fn naps() -> u64 {
    naps_in(&of_driver("status")).unwrap()
}

/// Returns how long the driver thread has run, in ticks of the kernel (10 ms).
fn ticks() -> u64 {
    let stat = of_driver("stat");
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().collect::<Vec<_>>();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn armed(engine: &Engine, duration: Duration, slack: Slack) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(duration).slack(slack));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    sleep
}

/// Shuts an engine down and waits until its thread has ended, so that the next test has only its own.
fn end(engine: Engine) {
    engine.shutdown();
    eventually("the driver thread ends", || drivers().is_empty());
}

#[test]
fn p9_d9_with_nothing_due_the_driver_sleeps_on_with_and_without_pending_timers() {
    let _alone = one_at_a_time();
    let engine = Engine::builder().build().unwrap();
    eventually("the driver has started and sleeps", || {
        of_driver("status").lines().any(|line| line.starts_with("State:") && line.contains('S'))
    });
    let mut sleeps = Vec::new();
    for pending in [false, true] {
        if pending {
            for slack in [Slack::adaptive(), Slack::exact(), Slack::up_to(ms(5)), Slack::precise()] {
                for far in [Duration::from_secs(3600), years(1), years(300), Duration::MAX] {
                    sleeps.push(armed(&engine, far, slack));
                }
            }
        }
        // The driver starts, is notified of the first timer, and goes to sleep.
        thread::sleep(ms(100));
        let before = (naps(), ticks());
        thread::sleep(Duration::from_secs(1));
        let after = (naps(), ticks());
        assert_eq!(after.0 - before.0, 0, "the driver woke up, with timers pending: {pending}");
        assert!(after.1 - before.1 <= 1, "the driver was busy, with timers pending: {pending}");
    }
    drop(sleeps);
    end(engine);
}

/// Returns how often all threads of this process have gone to sleep.
#[cfg(feature = "tokio")]
fn naps_of_all() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| Some(task.ok()?.path()));
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    statuses.filter_map(|status| naps_in(&status)).sum()
}

#[cfg(feature = "tokio")]
#[test]
fn p9_e3_with_nothing_due_a_driver_on_a_tokio_runtime_and_its_thread_sleep_on() {
    let _alone = one_at_a_time();
    let engine = Engine::builder().build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for pending in [false, true] {
        let far = pending.then(|| {
            let _context = runtime.enter();
            armed(&engine, Duration::from_secs(3600), Slack::adaptive())
        });
        // On a busy machine the sleep may be past when it is first polled: then it has not used the engine, and there is no driver task. And
        // the task that has slept may be counted for a moment after it has ended.
        eventually("the driver is the only task on the runtime", || {
            if runtime.metrics().num_alive_tasks() == 0 {
                let sleep = engine.sleep(ms(5));
                runtime.block_on(async { tokio::spawn(sleep).await.unwrap() });
            }
            runtime.metrics().num_alive_tasks() == 1
        });
        thread::sleep(ms(200));
        let before = naps_of_all();
        thread::sleep(Duration::from_secs(1));
        // This thread has gone to sleep once, and the thread that waits for the tests may have.
        let naps = naps_of_all() - before;
        assert!(naps <= 3, "{naps} wake-ups in a second, with a timer pending: {pending}");
        drop(far);
    }
    end(engine);
}

#[test]
fn p9_d40_arming_later_than_planned_does_not_wake_the_driver() {
    let _alone = one_at_a_time();
    let engine = Engine::builder().build().unwrap();
    let first = armed(&engine, Duration::from_secs(3600), Slack::adaptive());
    thread::sleep(ms(100));
    let before = naps();
    let later: Vec<_> =
        (1..=10_000).map(|n| armed(&engine, Duration::from_secs(3600 + n), Slack::adaptive())).collect();
    drop(later);
    let mut pushed = armed(&engine, Duration::from_secs(4000), Slack::adaptive());
    for n in 0..1000 {
        let deadline = pushed.deadline() + ms(n);
        pushed.as_mut().reset(deadline);
    }
    thread::sleep(ms(50));
    assert_eq!(naps() - before, 0);
    drop((first, pushed));
    end(engine);
}

#[test]
fn p9_d40_a_driver_outside_is_notified_of_an_earlier_deadline_only() {
    let _alone = one_at_a_time();
    let calls = Arc::new(AtomicUsize::new(0));
    let notify = {
        let calls = Arc::clone(&calls);
        move || _ = calls.fetch_add(1, Ordering::SeqCst)
    };
    let driver = Driver::external_with(notify);
    let engine = Engine::builder().clock(Clock::manual()).shards(4).driver(driver).build().unwrap();
    let calls = || calls.swap(0, Ordering::SeqCst);
    let first = armed(&engine, ms(100), Slack::adaptive());
    assert_eq!(calls(), 1, "the first deadline is earlier than never");
    assert!(engine.turn().next.is_some());

    let mut later: Vec<_> = (100..200).map(|n| armed(&engine, ms(n), Slack::adaptive())).collect();
    let strict: Vec<_> = (101..200).map(|n| armed(&engine, ms(n), Slack::exact())).collect();
    let from_elsewhere = thread::scope(|scope| {
        scope.spawn(|| (100..200).map(|n| armed(&engine, ms(n), Slack::adaptive())).collect::<Vec<_>>()).join().unwrap()
    });
    for sleep in &mut later {
        let deadline = sleep.deadline() + ms(10);
        sleep.as_mut().reset(deadline);
    }
    drop((strict, from_elsewhere, later));
    assert_eq!(calls(), 0, "none of these is earlier than the planned wake-up");

    let earlier = armed(&engine, ms(50), Slack::adaptive());
    assert_eq!(calls(), 1);
    let between = armed(&engine, ms(70), Slack::adaptive());
    assert_eq!(calls(), 0);
    let mut moved = armed(&engine, ms(70), Slack::exact());
    let deadline = moved.deadline() - ms(60);
    moved.as_mut().reset(deadline);
    assert_eq!(calls(), 1, "the reset is earlier than the planned wake-up");
    drop((first, earlier, between, moved));
    assert_eq!(calls(), 0, "a cancel notifies no driver");
    engine.advance(ms(1000));
    calls();
    let again = armed(&engine, ms(5), Slack::adaptive());
    assert_eq!(calls(), 1, "no wake-up was planned");
    drop(again);
}

#[test]
fn e9_p9_while_nobody_looks_the_thread_of_a_live_view_sleeps() {
    let _alone = one_at_a_time();
    let inspector = tourbillon::inspect::serve("127.0.0.1:0").unwrap();
    eventually("there is one listening thread", || threads_named("tourbillon-insp").len() == 1);
    let thread = threads_named("tourbillon-insp").remove(0);
    let naps = || naps_in(&fs::read_to_string(thread.join("status")).unwrap()).unwrap();
    // The thread starts and goes to sleep.
    thread::sleep(ms(100));
    let before = naps();
    thread::sleep(ms(500));
    assert_eq!(naps(), before, "it woke up for nothing");
    drop(inspector);
    eventually("it ends", || threads_named("tourbillon-insp").is_empty());
}
