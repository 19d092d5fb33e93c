//! Faults that hit a whole process in the middle of reads with time limits: it is stopped, or it starves. Each is done to a child that
//! runs one test of this file.
//!
//! After each fault three things are checked, none of them by speed: no limit was reached early, no byte is lost, and timers are on time
//! again. The delays are printed (`cargo test -p tourbillon-rt --test hardship -- --nocapture | grep hardship:`).

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{LONG, bytes_from, expect_bytes, in_a_child, kind, ms, on_each_backend, pair, soon};
use tourbillon_rt::{Backend, JoinHandle, Runtime, spawn, time};

/// How long the process is stopped.
const STOP: Duration = Duration::from_millis(300);
/// How long the process starves.
const FAMINE: Duration = Duration::from_millis(1000);
/// The number of tasks of each kind.
const TASKS: u64 = 50;
/// A timer that is no later counts as on time: far more than the promise, and far less than any fault here lasts.
const ON_TIME: Duration = Duration::from_millis(50);

/// A runtime with tasks that read in vain and tasks that are answered, until it is over.
struct Load {
    runtime: Runtime,
    seen: Arc<Seen>,
    tasks: Vec<JoinHandle<()>>,
}

/// The results of the tasks.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    /// Reads that had no answer within their limit.
    given_up: AtomicU64,
    /// Reads that had an answer.
    answered: AtomicU64,
    /// By how much the latest limit was late, in nanoseconds.
    latest: AtomicU64,
}

impl Load {
    fn new(backend: Backend) -> Load {
        let runtime = Runtime::builder().backend(backend).workers(2).build().unwrap();
        let seen = Arc::new(Seen::default());
        let mut tasks: Vec<_> =
            (0..TASKS).map(|number| runtime.spawn(Arc::clone(&seen).reads_in_vain(ms(1 + number)))).collect();
        tasks.extend((0..TASKS).map(|_| runtime.spawn(Arc::clone(&seen).asks())));
        Load { runtime, seen, tasks }
    }

    /// Checks that every task ends, that timers are on time again, and that the engine's counts balance.
    fn ends(self, fault: &str) -> Arc<Seen> {
        self.seen.is_over.store(true, Ordering::SeqCst);
        let late_batches = self.runtime.block_on(async {
            for task in self.tasks {
                soon("a task after the fault", task).await.unwrap();
            }
            recovers().await
        });
        let stats = self.runtime.engine().stats();
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped + stats.pending, "{stats:?}");
        let (given_up, answered) =
            (self.seen.given_up.load(Ordering::SeqCst), self.seen.answered.load(Ordering::SeqCst));
        println!(
            "hardship: {fault} on {}: {given_up} reads given up, 0 early, at most {:?} late; {answered} answers, none lost; {late_batches} late batches afterwards",
            self.runtime.backend(),
            self.seen.latest(),
        );
        assert!(given_up >= TASKS && answered >= TASKS);
        self.seen
    }
}

impl Seen {
    /// Reads from a socket whose peer never writes: each read ends by its limit.
    async fn reads_in_vain(self: Arc<Self>, limit: Duration) {
        let (a, _b) = pair().await;
        loop {
            let start = Instant::now();
            assert_eq!(kind(a.read(&mut [0; 1]).timeout(limit).await), ErrorKind::TimedOut);
            let late = start.elapsed().checked_sub(limit).expect("early");
            self.latest.fetch_max(late.as_nanos() as u64, Ordering::SeqCst);
            self.given_up.fetch_add(1, Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks once a millisecond, and is answered. The limit is far away: only a loss would reach it.
    async fn asks(self: Arc<Self>) {
        let (a, b) = pair().await;
        let answers = spawn(async move {
            let mut byte = [0; 1];
            while b.read(&mut byte).timeout(LONG).await.unwrap() == 1 {
                b.write_all(&byte).timeout(LONG).await.unwrap();
            }
        });
        for number in 0_u64.. {
            let (question, mut answer) = (bytes_from(number, 1), [0; 1]);
            a.write_all(&question).timeout(LONG).await.unwrap();
            a.read_exact(&mut answer).timeout(LONG).await.unwrap();
            expect_bytes(&answer, number);
            self.answered.fetch_add(1, Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) {
                break;
            }
            time::sleep(ms(1)).await;
        }
        drop(a);
        answers.await.unwrap();
    }

    fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest.load(Ordering::SeqCst))
    }
}

/// Sleeps in batches until nine of ten in one are on time. Returns how many were not.
async fn recovers() -> u32 {
    let start = Instant::now();
    for late_batches in 0.. {
        let mut on_time = 0;
        for _ in 0..20 {
            let start = Instant::now();
            time::sleep(ms(1)).await;
            let late = start.elapsed().checked_sub(ms(1)).expect("early");
            on_time += u32::from(late <= ON_TIME);
        }
        if on_time >= 18 {
            return late_batches;
        }
        assert!(start.elapsed() < 2 * LONG, "timers stay late: {on_time} of 20 on time");
    }
    unreachable!("it counts for ever")
}

/// Stops this process for a while.
fn be_stopped() {
    let stopped = STOP.as_micros() as u32;
    // SAFETY: the child process calls only functions that a signal handler may call, and then ends.
    let copy = unsafe { libc::fork() };
    assert!(copy >= 0);
    if copy == 0 {
        // SAFETY: as above.
        unsafe {
            libc::kill(libc::getppid(), libc::SIGSTOP);
            libc::usleep(stopped);
            libc::kill(libc::getppid(), libc::SIGCONT);
            libc::_exit(0);
        }
    }
    // SAFETY: a null pointer is allowed. The child has not been waited for.
    assert_eq!(unsafe { libc::waitpid(copy, std::ptr::null_mut(), 0) }, copy);
}

#[test]
fn p1_p2_p4_f8_a_process_that_is_stopped_and_goes_on_loses_no_byte_and_ends_no_read_early() {
    let test = "p1_p2_p4_f8_a_process_that_is_stopped_and_goes_on_loses_no_byte_and_ends_no_read_early";
    in_a_child(test, &[], || {
        on_each_backend(|backend| {
            let load = Load::new(backend);
            for _ in 0..2 {
                thread::sleep(ms(50));
                be_stopped();
            }
            let seen = load.ends("stopped twice");
            assert!(seen.latest() >= STOP / 2, "it was not stopped: {:?}", seen.latest());
        });
    });
}

#[test]
fn p1_p2_p4_f8_where_all_processors_are_taken_limits_are_late_but_none_is_lost() {
    let test = "p1_p2_p4_f8_where_all_processors_are_taken_limits_are_late_but_none_is_lost";
    in_a_child(test, &[], || {
        on_each_backend(|backend| {
            let load = Load::new(backend);
            let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
            let threads = 8 * thread::available_parallelism().map_or(1, usize::from);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            rounds.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                thread::sleep(FAMINE);
                is_over.store(true, Ordering::Relaxed);
            });
            assert!(rounds.into_inner() > threads as u64, "no thread was busy");
            load.ends(&format!("starved beside {threads} busy threads"));
        });
    });
}
