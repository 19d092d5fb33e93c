//! P7: no allocation in the steady state, and memory that is used again. The allocator of this program counts for each thread separately.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use support::{manual, ms, one_at_a_time, poll_with, years};
use tourbillon::time::{Instant, Sleep};
use tourbillon::{Engine, QueueKind, Slack};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}
/// Bytes in use, by all threads.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counting touches a thread-local and an atomic number and allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: this method has the same contract as `System.alloc`, and the caller keeps it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the contract, `pointer` came from this allocator with this layout, and so from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns how often this thread allocates while the closure runs.
fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

const SLACKS: [Slack; 4] =
    [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::from_millis(1)), Slack::precise()];

/// Arms this many sleeps at once, resets them, and cancels them.
fn churn(engine: &Engine, sleeps: &mut Vec<Sleep>, many: usize) {
    for n in 0..many {
        let sleep = engine.sleep(years(1) + Duration::from_micros(7919 * n as u64)).slack(SLACKS[n % SLACKS.len()]);
        sleeps.push(sleep);
    }
    for sleep in &mut *sleeps {
        // SAFETY: all sleeps were pushed before the first was pinned, and none moves until `clear` drops it in place.
        let mut sleep = unsafe { Pin::new_unchecked(sleep) };
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        let deadline = sleep.deadline();
        sleep.as_mut().reset(deadline + ms(5));
        sleep.as_mut().reset(deadline - Duration::from_micros(100));
        sleep.as_mut().disarm();
        sleep.as_mut().arm();
    }
    sleeps.clear();
}

#[test]
fn p7_arming_resetting_and_cancelling_allocate_nothing_in_the_steady_state() {
    let _alone = one_at_a_time();
    for queue in [QueueKind::Wheel, QueueKind::Heap] {
        let engine = Engine::builder().queue(queue).build().unwrap();
        let mut sleeps = Vec::with_capacity(1000);
        for _ in 0..20 {
            churn(&engine, &mut sleeps, 1000);
        }
        let asked = allocations(|| (0..100).for_each(|_| churn(&engine, &mut sleeps, 1000)));
        assert_eq!(asked, 0, "{queue:?}");
    }
}

#[test]
fn p7_one_timer_after_the_other_allocates_nothing() {
    let _alone = one_at_a_time();
    let engine = manual();
    let one = || {
        for slack in SLACKS {
            let mut sleep = pin!(engine.sleep(ms(10)).slack(slack));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        }
        assert!(poll_with(pin!(engine.sleep(Duration::ZERO)), Waker::noop()).is_ready());
        assert!(poll_with(pin!(engine.sleep_until(Instant::now() + years(1000))), Waker::noop()).is_pending());
    };
    // Long enough that the process has made its one-time registration of the kernel's barrier.
    (0..2_000).for_each(|_| one());
    assert_eq!(allocations(|| (0..10_000).for_each(|_| one())), 0);
}

#[test]
fn p7_the_memory_of_cancelled_timers_is_used_again() {
    let _alone = one_at_a_time();
    let engine = manual();
    let mut sleeps = Vec::with_capacity(100_000);
    churn(&engine, &mut sleeps, 100_000);
    // A timer whose memory is lost takes 24 bytes.
    let before = IN_USE.load(Ordering::Relaxed);
    for _ in 0..20 {
        churn(&engine, &mut sleeps, 100_000);
    }
    let after = IN_USE.load(Ordering::Relaxed);
    assert!(after < before + 20 * 100_000 * 8, "{before} bytes, then {after}");
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled, stats.pending), (2_100_000, 2_100_000, 0));
}

#[test]
fn p7_the_memory_of_timers_that_are_dropped_on_other_threads_is_used_again() {
    let _alone = one_at_a_time();
    let engine = manual();
    let across = || {
        let arm = |_| {
            let mut sleep = Box::pin(engine.sleep(years(1)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            sleep
        };
        let sleeps: Vec<_> = (0..10_000).map(arm).collect();
        thread::spawn(move || drop(sleeps)).join().unwrap();
    };
    across();
    let before = IN_USE.load(Ordering::Relaxed);
    (0..20).for_each(|_| across());
    let after = IN_USE.load(Ordering::Relaxed);
    assert!(after < before + 20 * 10_000 * 8, "{before} bytes, then {after}");
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn p7_an_engine_that_is_dropped_has_freed_the_memory_of_its_timers() {
    const TIMERS: usize = 10_000;
    let _alone = one_at_a_time();
    let mut sleeps = Vec::with_capacity(TIMERS);
    let mut live = || churn(&manual(), &mut sleeps, TIMERS);
    // The memory that the thread keeps for the next engine stays.
    live();
    let before = IN_USE.load(Ordering::Relaxed);
    (0..5).for_each(|_| live());
    let after = IN_USE.load(Ordering::Relaxed);
    assert!(after < before + 5 * TIMERS, "{before} bytes, then {after}");
}

#[test]
fn t5_a_sleep_that_is_never_polled_allocates_nothing() {
    let _alone = one_at_a_time();
    let engine = manual();
    drop(engine.sleep(ms(1)));
    let asked = allocations(|| {
        for _ in 0..10_000 {
            drop(engine.sleep(ms(1)));
        }
    });
    assert_eq!(asked, 0);
}

#[cfg(feature = "futures")]
#[test]
fn e6_streams_allocate_nothing_but_one_vector_for_each_chunk() {
    use futures_lite::{Stream, stream};
    use std::task::{Context, Poll};
    use tourbillon::time::{StreamExt, interval};

    /// Takes items until the stream is pending, and returns how many.
    fn take(mut stream: Pin<&mut impl Stream>, most: usize) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        (0..most).take_while(|_| matches!(stream.as_mut().poll_next(&mut cx), Poll::Ready(Some(_)))).count()
    }

    let _alone = one_at_a_time();
    let engine = manual();
    let _entered = engine.enter();
    let mut limited = pin!(stream::repeat(1).timeout(ms(1)));
    let mut repeating = pin!(stream::repeat(1).timeout_repeating(interval(ms(1))));
    let mut throttled = pin!(stream::repeat(1).throttle(Duration::from_nanos(1)));
    let mut chunks = pin!(stream::repeat(1).chunks_timeout(10, ms(1)));
    let mut all = || {
        engine.advance(ms(1));
        allocations(|| {
            assert_eq!((take(limited.as_mut(), 100), take(repeating.as_mut(), 100)), (100, 100));
            assert_eq!(take(throttled.as_mut(), 100), 1);
        })
    };
    (0..100).for_each(|_| _ = all());
    assert_eq!((0..100).map(|_| all()).sum::<usize>(), 0);
    assert_eq!(take(chunks.as_mut(), 100), 100);
    assert_eq!(allocations(|| assert_eq!(take(chunks.as_mut(), 100), 100)), 100, "one for each chunk");
}

#[test]
fn e5_p7_a_plain_job_is_one_allocation_from_schedule_to_removal() {
    let engine = Engine::builder().clock(tourbillon::Clock::manual()).build().unwrap();
    let scheduler = tourbillon::scheduler::Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let second = std::time::Duration::from_secs(1);
    let one = |key: u32| {
        scheduler.schedule(key, second, move |_| _ = key).unwrap();
        assert!(scheduler.remove(&key));
    };
    (0..1000).for_each(one);
    assert_eq!(allocations(|| (0..1000).for_each(one)), 1000, "the closure with its key");
}
