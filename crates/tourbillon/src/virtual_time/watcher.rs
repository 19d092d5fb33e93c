//! A thread that looks after a manual clock: it turns the engine while the clock runs, and moves the clock when everybody waits, if the test
//! has asked for that.
//!
//! The threads that use an engine are known: each has a home in it. They all wait at one and the same moment if each is found
//! waiting twice, and none has run between the first round of questions and the second: then at the end of the first
//! round all of them were waiting. Time then moves to the next deadline, and somebody is woken.
//!
//! A task that was woken may run on a thread that has not used the engine yet. So for a short while after time has moved, the
//! other threads of the process must not be running either.
//!
//! A thread that waits for a lock is not idle: it goes on as soon as it has it. From outside it looks like others that wait for
//! each other, but for the numbers by which the usual mutexes, and the standard library's other locks, say that somebody
//! waits. Where one of those is seen, the watcher believes that a thread is idle only after it has been so for a while.

use std::sync::atomic::Ordering;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use crate::core::{Core, CoreRef};

/// How often it looks, when there is something to wait for.
const OFTEN: Duration = Duration::from_micros(20);
/// And when there is not, or time runs by itself.
const SELDOM: Duration = Duration::from_micros(500);
/// So many looks at nothing are quick ones.
const PATIENCE: u32 = 100;
/// So long after time has moved do the other threads of the process matter.
const GRACE: Duration = Duration::from_millis(10);
/// So long must a thread wait that may be waiting for a lock.
const WHILE: Duration = Duration::from_millis(10);

/// Starts the watcher of an engine, if it has none. It ends with the engine, or when time stands still and only a test moves it.
/// (Without a thread for it, time does not move by itself.)
pub(super) fn start(core: &CoreRef) {
    // Nobody can tell there who waits.
    if cfg!(miri) || core.watch.has_watcher.swap(true, Ordering::SeqCst) {
        return;
    }
    let core = core.clone();
    let _ = Builder::new().name("tourbillon-virtual".into()).spawn(move || {
        while core.watch.is_wanted(&core) {
            run(&core);
            core.watch.has_watcher.store(false, Ordering::SeqCst);
            // It may have been asked for since it looked last. Another may have been started, too.
            if !core.watch.is_wanted(&core) || core.watch.has_watcher.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    });
}

fn run(core: &Core) {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut doubts = Doubts::default();
    let mut in_vain = 0;
    let mut moved = Instant::now();
    while core.watch.is_wanted(core) {
        if !core.clock.is_paused() {
            while core.turn(core.clock.now()).more {}
            sleep(SELDOM);
            continue;
        }
        let next = core.next_step();
        if next.is_never() {
            // Whoever was woken last may arm the next timer at once.
            in_vain += 1;
            sleep(if in_vain < PATIENCE { OFTEN } else { SELDOM });
            continue;
        }
        in_vain = 0;
        let others_wait = || moved.elapsed() >= GRACE || waiting::others_wait(&core.threads());
        let is_idle = !core.work.is_under_way() && doubts.resolve(look(core)) && others_wait();
        if is_idle && core.clock.is_paused() && next == core.next_step() {
            core.advance(next);
            moved = Instant::now();
        } else {
            sleep(OFTEN);
        }
    }
}

/// What the threads of an engine were found doing: all of them wait, since these moments. `None`: not all.
type Picture = Option<Vec<waiting::Since>>;

fn look(core: &Core) -> Picture {
    let me = waiting::me();
    // The callbacks that it calls may have made the watcher a user of the engine.
    let threads: Vec<_> = core.threads().into_iter().filter(|thread| Some(*thread) != me).collect();
    let look = || threads.iter().map(|thread| waiting::since(*thread)).collect::<Picture>();
    let first = look().filter(|picture| !picture.is_empty())?;
    (look().as_ref() == Some(&first)).then_some(first)
}

/// A picture that may show a thread waiting for a lock, and since when nothing in it has changed.
#[derive(Default)]
struct Doubts(Option<(Vec<waiting::Since>, Instant)>);

impl Doubts {
    /// Whether all wait indeed.
    fn resolve(&mut self, picture: Picture) -> bool {
        let Some(picture) = picture else { return false };
        if !picture.iter().any(waiting::Since::is_doubtful) {
            return true;
        }
        match &self.0 {
            Some((known, since)) if *known == picture => since.elapsed() >= WHILE,
            _ => {
                self.0 = Some((picture, Instant::now()));
                false
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod waiting {
    use std::fs::{read_dir, read_to_string};

    /// What a thread was doing, and how often it had run before that. Equal answers: it has not run in between.
    #[derive(PartialEq, Eq)]
    pub(super) struct Since {
        call: String,
        switches: Vec<u64>,
    }

    /// The calling thread.
    pub(super) fn me() -> Option<i32> {
        Some(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Whether no thread of this process is running but those that are known, and drivers and watchers of engines.
    pub(super) fn others_wait(known: &[i32]) -> bool {
        let Ok(threads) = read_dir("/proc/self/task") else { return true };
        let numbers = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter(|thread| !known.contains(thread)).all(|thread| {
            let status = read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
            !status.contains("State:\tR") || status.starts_with("Name:\ttourbillon")
        })
    }

    impl Since {
        /// Whether it may be waiting for a lock: in a futex call that expects the value of a lock that is waited for.
        pub(super) fn is_doubtful(&self) -> bool {
            let mut words = self.call.split(' ');
            if words.next() != Some(FUTEX) {
                return false;
            }
            let value = words.nth(2).and_then(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
            value.is_some_and(|value| value == MUTEX || value == ONCE || (value >= RW_LOCK && value != PARKED))
        }
    }

    /// A mutex.
    const MUTEX: u32 = 2;
    /// What another thread is initialising: `Once`, `OnceLock`, `LazyLock`.
    const ONCE: u32 = 5;
    /// An `RwLock`: one of the two highest bits, and a count.
    const RW_LOCK: u32 = 1 << 30;
    /// No lock, but `thread::park`.
    const PARKED: u32 = u32::MAX;

    const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };

    /// The numbers of the system calls in which a thread waits for events or for other threads.
    const WAITS: &[&str] = if cfg!(target_arch = "x86_64") {
        // poll, futex, epoll_wait, ppoll, epoll_pwait, io_uring_enter, epoll_pwait2
        &["7", "202", "232", "271", "281", "426", "441"]
    } else {
        // epoll_pwait, ppoll, futex, io_uring_enter, epoll_pwait2, as most architectures number them
        &["22", "73", "98", "426", "441"]
    };

    /// Since when the thread waits; `None` if it does not. One that has ended waits.
    pub(super) fn since(thread: i32) -> Option<Since> {
        let folder = format!("/proc/self/task/{thread}");
        let Ok(status) = read_to_string(format!("{folder}/status")) else {
            return Some(Since { call: String::new(), switches: Vec::new() });
        };
        // A thread that has been woken and has no processor yet is still in its call; but it does not sleep any more.
        if !status.contains("State:\tS") {
            return None;
        }
        // The number of the call, and its arguments.
        let call = read_to_string(format!("{folder}/syscall")).ok()?;
        if !WAITS.contains(&call.split(' ').next()?) {
            return None;
        }
        let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
        let switches = switches.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
        Some(Since { call, switches })
    }
}

#[cfg(not(target_os = "linux"))]
mod waiting {
    #[derive(PartialEq, Eq)]
    pub(super) struct Since;

    impl Since {
        pub(super) fn is_doubtful(&self) -> bool {
            false
        }
    }

    pub(super) fn me() -> Option<i32> {
        None
    }

    pub(super) fn since(_: i32) -> Option<Since> {
        None
    }

    pub(super) fn others_wait(_: &[i32]) -> bool {
        false
    }
}
