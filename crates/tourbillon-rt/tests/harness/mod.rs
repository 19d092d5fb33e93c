//! What the tests of faults share: tests that hang, tests in a process of their own, random numbers, and what the kernel knows of us.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::future::Future;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that does not hang, on a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Runs it on a thread of its own; fails if it hangs.
pub(crate) fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(run()));
    match receiver.recv_timeout(LONG) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it has sent nothing"))
        }
    }
}

/// Says to the test that it is the child.
const CHILD: &str = "TOURBILLON_TEST_CHILD";

/// Runs a part of the test with this name in a process of its own, for what a process has but once: limits, filters, signals,
/// the environment.
pub(crate) fn in_a_child(test: &str, variables: &[(&str, &str)], part: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some_and(|name| name == test) {
        return part();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .env_remove("TOURBILLON_BACKEND");
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = child.id();
    let (sender, receiver) = mpsc::channel();
    let waits = thread::spawn(move || _ = sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(2 * LONG) else {
        // SAFETY: it is our child, and not waited for yet.
        unsafe { libc::kill(id as i32, libc::SIGKILL) };
        waits.join().unwrap();
        panic!("{test}: the child hangs");
    };
    let output = output.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{test}, in the child: {}\n{out}\n{err}",
        output.status
    );
    for line in out.lines().filter(|line| line.starts_with("NOT TESTED")) {
        println!("{line}");
    }
}

/// One test at a time, for those that count what the whole process has.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many descriptors the process has.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many sockets the reactors of this process watch, by what the kernel says.
pub(crate) fn watched_by_the_kernel() -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let info = format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy());
        if target.contains("eventpoll") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            count += info.lines().filter(|line| line.starts_with("tfd:")).count();
        } else if target.contains("io_uring") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let polls = info.lines().skip_while(|line| !line.starts_with("PollList")).skip(1);
            count += polls.take_while(|line| line.starts_with(' ')).count();
        }
    }
    count
}

/// The ids of the threads of this process whose names begin so.
pub(crate) fn threads_named(name: &str) -> Vec<i32> {
    let mut ids = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.starts_with(name) {
            ids.push(task.file_name().to_string_lossy().parse().unwrap());
        }
    }
    ids
}

/// How often these threads have gone to sleep, and how long they have run.
pub(crate) fn sleeps_and_cpu(name: &str) -> (u64, Duration) {
    let (mut sleeps, mut nanos) = (0, 0);
    for id in threads_named(name) {
        let read = |file| std::fs::read_to_string(format!("/proc/self/task/{id}/{file}")).unwrap_or_default();
        let status = read("status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += count.map_or(0, |count| count.trim().parse::<u64>().unwrap());
        nanos += read("schedstat").split(' ').next().and_then(|run| run.parse::<u64>().ok()).unwrap_or(0);
    }
    (sleeps, Duration::from_nanos(nanos))
}

/// Random numbers, from a seed that is printed and can be given.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let given = std::env::var("TOURBILLON_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("TOURBILLON_SEED={seed}");
        eprintln!("TOURBILLON_SEED={seed}");
        Random(seed)
    }

    /// Another one, whose numbers are its own.
    pub(crate) fn split(&mut self) -> Random {
        Random(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// The byte at a place of a stream: a wrong, missing or repeated one is noticed.
pub(crate) fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The bytes from there on.
pub(crate) fn bytes_from(place: u64, count: usize) -> Vec<u8> {
    (place..).take(count).map(byte_at).collect()
}

/// That these are the bytes of a stream from there on.
#[track_caller]
pub(crate) fn expect_bytes(bytes: &[u8], place: u64) {
    if let Some(wrong) = bytes.iter().zip(place..).position(|(byte, place)| *byte != byte_at(place)) {
        panic!("byte {} of the stream is not the one that was sent", place + wrong as u64);
    }
}

/// Lets others run.
pub(crate) async fn give_way() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A waker that does nothing and can be counted.
pub(crate) struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

pub(crate) fn counted() -> (Arc<Counted>, Waker) {
    let counted = Arc::new(Counted);
    let waker = Waker::from(Arc::clone(&counted));
    (counted, waker)
}

/// Awaits something that others do, on a runtime.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "waited in vain: {what}");
        tourbillon_rt::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Awaits something; fails if it hangs.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tourbillon_rt::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it hangs"),
    }
}
