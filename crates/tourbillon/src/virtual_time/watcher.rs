//! The watcher: a thread that turns the engine of a manual clock while the clock runs, and moves the clock when all threads wait, if the test
//! has asked for that (`auto_advance`).
//!
//! The watcher knows the threads that use an engine: each has a shard in it. All of them wait at one and the same moment if the watcher
//! finds each of them waiting twice, and none has run between the first pass and the second: then all of them were waiting at the end of
//! the first pass. The watcher then moves time to the next deadline, which wakes one of them.
//!
//! A task that was woken may run on a thread that has not used the engine yet. So for [`GRACE_AFTER_MOVE`] the other threads of the process
//! must not be running either.
//!
//! A thread that waits for a lock is not idle: it continues as soon as it has the lock. From outside it looks like threads that wait for each
//! other, except for the value by which the usual mutexes, and the standard library's other locks, mark that a thread waits. If the watcher
//! sees such a value, it takes the thread for idle only after nothing has changed for [`LOCK_WAIT`].

use std::sync::atomic::Ordering;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use super::thread_state::{self, ThreadWait};
use crate::core::{Core, CoreRef};
use crate::sys::wake_without_slack;

/// How often the watcher checks the threads while a timer is pending.
const BUSY_POLL: Duration = Duration::from_micros(20);
/// How often it checks when no timer is pending, or while the clock runs.
const IDLE_POLL: Duration = Duration::from_micros(500);
/// How many checks without a pending timer are made at the pace of [`BUSY_POLL`].
const QUICK_IDLE_POLLS: u32 = 100;
/// How long after a move of time the other threads of the process are checked, too.
const GRACE_AFTER_MOVE: Duration = Duration::from_millis(10);
/// How long a thread that may wait for a lock must wait before it counts as idle.
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Starts the watcher of an engine, if it has none. The watcher ends with the engine, or when time stands still and only the test moves it.
/// (If the system refuses the thread, time does not move by itself.)
pub(super) fn start(core: &CoreRef) {
    // Miri does not tell whether a thread waits.
    if cfg!(miri) || core.watch.has_watcher.swap(true, Ordering::SeqCst) {
        return;
    }
    let core = core.clone();
    let _ = Builder::new().name("tourbillon-virtual".into()).spawn(move || {
        while core.watch.is_wanted(&core) {
            run(&core);
            core.watch.has_watcher.store(false, Ordering::SeqCst);
            // A test may have asked for a watcher since the last check, and may have started another.
            if !core.watch.is_wanted(&core) || core.watch.has_watcher.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    });
}

/// Finds out whether the watcher can see which threads wait.
///
/// # Errors
/// A sentence that says why not.
pub(super) fn visibility() -> Result<(), &'static str> {
    if cfg!(miri) { Err("Miri does not tell whether a thread waits") } else { thread_state::visibility() }
}

fn run(core: &Core) {
    wake_without_slack();
    let mut filter = LockWaitFilter::default();
    let mut idle_polls = 0;
    let mut moved = Instant::now();
    while core.watch.is_wanted(core) {
        if !core.clock.is_paused() {
            while core.turn(core.clock.now()).more {}
            sleep(IDLE_POLL);
            continue;
        }
        let next = core.next_step();
        if next.is_never() {
            // The thread that was woken last may arm the next timer at once.
            idle_polls += 1;
            sleep(if idle_polls < QUICK_IDLE_POLLS { BUSY_POLL } else { IDLE_POLL });
            continue;
        }
        idle_polls = 0;
        let others_wait = || moved.elapsed() >= GRACE_AFTER_MOVE || thread_state::others_wait(&core.threads());
        let is_idle =
            !core.work.is_under_way() && filter.observe(waits_of_threads(core)) == Activity::Idle && others_wait();
        if is_idle && core.clock.is_paused() && next == core.next_step() {
            core.advance(next);
            moved = Instant::now();
        } else {
            sleep(BUSY_POLL);
        }
    }
}

/// Returns the waits of all threads that use the engine; `None` if one of them does not wait, or if there is none.
fn waits_of_threads(core: &Core) -> Option<Vec<ThreadWait>> {
    let current = thread_state::current_thread();
    // The watcher itself may use the engine, by callbacks that it runs.
    let threads: Vec<_> = core.threads().into_iter().filter(|thread| Some(*thread) != current).collect();
    let pass = || threads.iter().map(|thread| thread_state::wait_of(*thread)).collect::<Option<Vec<_>>>();
    let first = pass().filter(|waits| !waits.is_empty())?;
    (pass().as_ref() == Some(&first)).then_some(first)
}

/// The waits among which one may be for a lock, and since when none of them has changed.
#[derive(Default)]
struct LockWaitFilter(Option<(Vec<ThreadWait>, Instant)>);

/// Whether the threads that use the engine have something to do.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    /// All of them wait, and none of them for a lock.
    Idle,
    /// One of them runs, or may wait for a lock.
    Busy,
}

impl LockWaitFilter {
    /// Records the waits of the threads if one may be for a lock, and returns whether the threads are idle.
    fn observe(&mut self, waits: Option<Vec<ThreadWait>>) -> Activity {
        let Some(waits) = waits else { return Activity::Busy };
        if !waits.iter().any(ThreadWait::may_be_for_lock) {
            return Activity::Idle;
        }
        match &self.0 {
            Some((known, since)) if *known == waits && since.elapsed() >= LOCK_WAIT => Activity::Idle,
            Some((known, _)) if *known == waits => Activity::Busy,
            _ => {
                self.0 = Some((waits, Instant::now()));
                Activity::Busy
            }
        }
    }
}
