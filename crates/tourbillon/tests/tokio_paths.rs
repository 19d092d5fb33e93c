//! Every public path of `tokio::time` (Tokio 1.54.1), and those of `tokio_util::time` that the guide promises, with
//! `tourbillon::time` in its place: names, methods, traits and auto traits.
//!
//! For another version of Tokio, compare `pub use`, `pub mod` and `pub fn` under its `src/time` with the lists here.
#![cfg(all(feature = "futures", feature = "test-util"))]

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;

/// Imports each path from both crates.
macro_rules! paths {
    ($($name:ident: $theirs:path, $ours:path;)*) => { $(
        mod $name {
            #[allow(unused_imports, reason = "the test is that the path exists")]
            use $ours as ours;
            #[allow(unused_imports, reason = "the test is that the path exists")]
            use $theirs as theirs;
        }
    )* };
}

paths! {
    advance: tokio::time::advance, tourbillon::time::advance;
    duration: tokio::time::Duration, tourbillon::time::Duration;
    error: tokio::time::error, tourbillon::time::error;
    error_elapsed: tokio::time::error::Elapsed, tourbillon::time::error::Elapsed;
    error_error: tokio::time::error::Error, tourbillon::time::error::Error;
    instant: tokio::time::Instant, tourbillon::time::Instant;
    interval: tokio::time::interval, tourbillon::time::interval;
    interval_at: tokio::time::interval_at, tourbillon::time::interval_at;
    interval_type: tokio::time::Interval, tourbillon::time::Interval;
    missed: tokio::time::MissedTickBehavior, tourbillon::time::MissedTickBehavior;
    missed_burst: tokio::time::MissedTickBehavior::Burst, tourbillon::time::MissedTickBehavior::Burst;
    missed_delay: tokio::time::MissedTickBehavior::Delay, tourbillon::time::MissedTickBehavior::Delay;
    missed_skip: tokio::time::MissedTickBehavior::Skip, tourbillon::time::MissedTickBehavior::Skip;
    pause: tokio::time::pause, tourbillon::time::pause;
    resume: tokio::time::resume, tourbillon::time::resume;
    sleep: tokio::time::sleep, tourbillon::time::sleep;
    sleep_until: tokio::time::sleep_until, tourbillon::time::sleep_until;
    sleep_type: tokio::time::Sleep, tourbillon::time::Sleep;
    timeout: tokio::time::timeout, tourbillon::time::timeout;
    timeout_at: tokio::time::timeout_at, tourbillon::time::timeout_at;
    timeout_type: tokio::time::Timeout, tourbillon::time::Timeout;
    delay_queue: tokio_util::time::delay_queue, tourbillon::time::delay_queue;
    delay_queue_type: tokio_util::time::DelayQueue, tourbillon::time::DelayQueue;
    delay_queue_again: tokio_util::time::delay_queue::DelayQueue, tourbillon::time::delay_queue::DelayQueue;
    delay_queue_key: tokio_util::time::delay_queue::Key, tourbillon::time::delay_queue::Key;
    delay_queue_expired: tokio_util::time::delay_queue::Expired, tourbillon::time::delay_queue::Expired;
    future_ext: tokio_util::time::FutureExt, tourbillon::time::FutureExt;
}

/// Whether a type has a trait, as a constant: the inherent constant is preferred to that of the trait `No`, where it exists.
macro_rules! has {
    ($type:ty, $($bound:tt)+) => {{
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "one of the two constants is used")]
        trait No {
            const HAS: bool = false;
        }
        impl<T: ?Sized> No for Probe<T> {}
        #[allow(dead_code, reason = "one of the two constants is used")]
        impl<T: ?Sized + $($bound)+> Probe<T> {
            const HAS: bool = true;
        }
        <Probe<$type>>::HAS
    }};
}

/// Which of the auto traits a type has.
macro_rules! auto_traits {
    ($type:ty) => {
        [
            ("Send", has!($type, Send)),
            ("Sync", has!($type, Sync)),
            ("Unpin", has!($type, Unpin)),
            ("UnwindSafe", has!($type, UnwindSafe)),
            ("RefUnwindSafe", has!($type, RefUnwindSafe)),
        ]
    };
}

/// Which other traits a type has.
macro_rules! traits {
    ($type:ty) => {
        [
            ("Clone", has!($type, Clone)),
            ("Copy", has!($type, Copy)),
            ("Debug", has!($type, std::fmt::Debug)),
            ("Default", has!($type, Default)),
            ("Display", has!($type, std::fmt::Display)),
            ("Eq", has!($type, Eq)),
            ("Error", has!($type, std::error::Error)),
            ("Future", has!($type, Future)),
            ("Hash", has!($type, std::hash::Hash)),
            ("Into<io::Error>", has!($type, Into<std::io::Error>)),
            ("Into<std Instant>", has!($type, Into<std::time::Instant>)),
            ("From<std Instant>", has!($type, From<std::time::Instant>)),
            ("Ord", has!($type, Ord)),
            ("PartialEq", has!($type, PartialEq)),
            ("PartialOrd", has!($type, PartialOrd)),
            ("Stream", has!($type, futures_lite::Stream)),
        ]
    };
}

macro_rules! each_type {
    ($macro:ident) => {
        [
            ("Elapsed", $macro!(tokio::time::error::Elapsed), $macro!(tourbillon::time::error::Elapsed)),
            ("Error", $macro!(tokio::time::error::Error), $macro!(tourbillon::time::error::Error)),
            ("Instant", $macro!(tokio::time::Instant), $macro!(tourbillon::time::Instant)),
            ("Interval", $macro!(tokio::time::Interval), $macro!(tourbillon::time::Interval)),
            (
                "MissedTickBehavior",
                $macro!(tokio::time::MissedTickBehavior),
                $macro!(tourbillon::time::MissedTickBehavior),
            ),
            ("Sleep", $macro!(tokio::time::Sleep), $macro!(tourbillon::time::Sleep)),
            (
                "Timeout of an Unpin future",
                $macro!(tokio::time::Timeout<std::future::Ready<u8>>),
                $macro!(tourbillon::time::Timeout<std::future::Ready<u8>>),
            ),
            (
                "Timeout of a future of one thread",
                $macro!(tokio::time::Timeout<std::future::Ready<Rc<u8>>>),
                $macro!(tourbillon::time::Timeout<std::future::Ready<Rc<u8>>>),
            ),
            ("DelayQueue", $macro!(tokio_util::time::DelayQueue<u8>), $macro!(tourbillon::time::DelayQueue<u8>)),
            (
                "DelayQueue of one thread",
                $macro!(tokio_util::time::DelayQueue<Rc<u8>>),
                $macro!(tourbillon::time::DelayQueue<Rc<u8>>),
            ),
            ("Key", $macro!(tokio_util::time::delay_queue::Key), $macro!(tourbillon::time::delay_queue::Key)),
            (
                "Expired",
                $macro!(tokio_util::time::delay_queue::Expired<u8>),
                $macro!(tourbillon::time::delay_queue::Expired<u8>),
            ),
        ]
    };
}

/// Auto traits that ours have and Tokio's have not. Code that compiles without them compiles with them.
///
/// A timeout of an `Unpin` future is `Unpin`, so that the future can be accessed between two polls, and taken back when the time is over.
const MORE: [(&str, &str); 16] = [
    ("Timeout of an Unpin future", "Unpin"),
    ("Timeout of a future of one thread", "Unpin"),
    ("Interval", "UnwindSafe"),
    ("Interval", "RefUnwindSafe"),
    ("Sleep", "UnwindSafe"),
    ("Sleep", "RefUnwindSafe"),
    ("Timeout of an Unpin future", "UnwindSafe"),
    ("Timeout of an Unpin future", "RefUnwindSafe"),
    ("Timeout of a future of one thread", "UnwindSafe"),
    ("Timeout of a future of one thread", "RefUnwindSafe"),
    ("Timeout of a future that must be pinned", "UnwindSafe"),
    ("Timeout of a future that must be pinned", "RefUnwindSafe"),
    ("DelayQueue", "UnwindSafe"),
    ("DelayQueue", "RefUnwindSafe"),
    ("DelayQueue of one thread", "UnwindSafe"),
    ("DelayQueue of one thread", "RefUnwindSafe"),
];

#[test]
fn d80_every_type_has_the_auto_traits_of_tokios() {
    let mut differences = Vec::new();
    for (name, theirs, ours) in each_type!(auto_traits) {
        for ((of, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
            if (theirs, ours) == (false, true) && MORE.contains(&(name, of)) {
                continue;
            }
            if theirs != ours {
                differences.push(format!("{name}: {of} is {theirs} for Tokio's and {ours} for ours"));
            }
        }
    }
    assert_eq!(differences, [""; 0]);
}

#[test]
fn d80_every_type_has_the_traits_of_tokios() {
    let mut missing = Vec::new();
    for (name, theirs, ours) in each_type!(traits) {
        for ((of, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
            if theirs && !ours {
                missing.push(format!("{name}: {of}"));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// The same code with each of the crates: every function and every method, with their argument and return types.
macro_rules! program {
    ($name:ident, $time:path, $util:path) => {
        mod $name {
            use std::future::{Ready, ready};
            use std::pin::Pin;
            use std::task::{Context, Poll};

            use $time as time;
            use $util as util;

            use time::error::{Elapsed, Error};
            use time::{Duration, Instant, Interval, MissedTickBehavior, Sleep, Timeout};
            use util::delay_queue::{Expired, Key};
            use util::{DelayQueue, FutureExt as _};

            pub(crate) async fn program(at: Instant, dur: Duration, cx: &mut Context<'_>) {
                let mut sleep: Pin<Box<Sleep>> = Box::pin(time::sleep(dur));
                let _: Instant = sleep.deadline();
                let _: bool = sleep.is_elapsed();
                sleep.as_mut().reset(at);
                let _: () = time::sleep_until(at).await;

                let mut limited: Timeout<Ready<u8>> = time::timeout(dur, ready(1));
                let _: &Ready<u8> = limited.get_ref();
                let inner: &mut Ready<u8> = limited.get_mut();
                *inner = ready(1);
                assert_eq!(limited.into_inner().await, 1);
                let result: Result<u8, Elapsed> = time::timeout_at(at, ready(1)).await;
                let _: bool = result == time::timeout(dur, ready(1)).await;
                assert_eq!(ready(1).timeout(dur).await, Ok(1));
                assert_eq!(ready(1).timeout_at(at).await, Ok(1));

                let mut interval: Interval = time::interval(dur);
                let _: Instant = interval.tick().await;
                let _: Poll<Instant> = interval.poll_tick(cx);
                interval.reset();
                interval.reset_immediately();
                interval.reset_after(dur);
                interval.reset_at(at);
                interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
                interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
                interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
                let _: MissedTickBehavior = interval.missed_tick_behavior();
                let _: Duration = interval.period();
                let _: Interval = time::interval_at(at, dur);

                let now: Instant = Instant::now();
                let _: std::time::Instant = now.into_std();
                let _: Instant = Instant::from_std(now.into());
                let _: Duration = now.duration_since(at);
                let _: Option<Duration> = now.checked_duration_since(at);
                let _: Duration = now.saturating_duration_since(at);
                let _: Duration = now.elapsed();
                let later: Option<Instant> = now.checked_add(dur);
                let _: Option<Instant> = now.checked_sub(dur);
                let _: Instant = now + dur;
                let mut moved: Instant = later.unwrap() - dur;
                moved += dur;
                moved -= dur;
                let _: Duration = moved - now;

                let error: Error = Error::at_capacity();
                let _: [bool; 3] = [error.is_at_capacity(), error.is_shutdown(), error.is_invalid()];
                let _: [Error; 2] = [Error::shutdown(), Error::invalid()];

                let mut queue: DelayQueue<u8> = DelayQueue::with_capacity(4);
                let key: Key = queue.insert(1, dur);
                let _: Key = queue.insert_at(2, at);
                let _: Instant = queue.deadline(&key);
                queue.reset(&key, dur);
                queue.reset_at(&key, at);
                let _: Option<Key> = queue.peek();
                let mut expired: Expired<u8> = queue.remove(&key);
                let _: (&u8, Instant, Key) = (expired.get_ref(), expired.deadline(), expired.key());
                let _: &mut u8 = expired.get_mut();
                let _: u8 = expired.into_inner();
                let key: Key = queue.insert(1, dur);
                let _: Option<Expired<u8>> = queue.try_remove(&key);
                let _: Poll<Option<Expired<u8>>> = queue.poll_expired(cx);
                let _: (usize, usize, bool) = (queue.len(), queue.capacity(), queue.is_empty());
                queue.reserve(1);
                queue.compact();
                queue.shrink_to_fit();
                queue.clear();
                let _: DelayQueue<u8> = DelayQueue::new();
            }

            pub(crate) async fn in_virtual_time() {
                time::pause();
                time::advance(Duration::from_millis(1)).await;
                time::resume();
            }
        }
    };
}

program!(theirs, tokio::time, tokio_util::time);
program!(ours, tourbillon::time, tourbillon::time);

#[test]
fn d80_the_same_program_compiles_and_runs_with_both() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waker = futures_lite::future::block_on(std::future::poll_fn(|cx| std::task::Poll::Ready(cx.waker().clone())));
    let dur = std::time::Duration::from_millis(1);
    runtime.block_on(async {
        let mut cx = std::task::Context::from_waker(&waker);
        theirs::program(tokio::time::Instant::now(), dur, &mut cx).await;
        ours::program(tourbillon::time::Instant::now(), dur, &mut cx).await;
        theirs::in_virtual_time().await;
        ours::in_virtual_time().await;
    });
}

#[test]
fn d80_the_error_of_a_timer_is_described_and_a_refused_timer_converts_into_it() {
    use tourbillon::time::error::Error;
    for (theirs, ours) in [
        (tokio::time::error::Error::shutdown(), Error::shutdown()),
        (tokio::time::error::Error::at_capacity(), Error::at_capacity()),
        (tokio::time::error::Error::invalid(), Error::invalid()),
    ] {
        assert_eq!(ours.is_shutdown(), theirs.is_shutdown());
        assert_eq!(ours.is_at_capacity(), theirs.is_at_capacity());
        assert_eq!(ours.is_invalid(), theirs.is_invalid());
        assert!(!ours.to_string().is_empty());
    }
    let engine = tourbillon::Engine::builder().clock(tourbillon::Clock::manual()).capacity(1).build().unwrap();
    let _one = engine.try_sleep(std::time::Duration::from_secs(1)).unwrap();
    let full = engine.try_sleep(std::time::Duration::from_secs(1)).unwrap_err();
    assert!(Error::from(full).is_at_capacity());
    engine.shutdown();
    let stopped = engine.try_sleep(std::time::Duration::from_secs(1)).unwrap_err();
    assert!(Error::from(stopped).is_shutdown());
}
