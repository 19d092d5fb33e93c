//! P11: timers fire while every thread of the executor is blocked.
//!
//! The threads of a simulated executor arm sleeps, and then all of them block until every waker has been called. They do not read
//! the clock meanwhile, and no code of the engine runs on them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Driver, Engine};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::build;
use super::promise::Promise;
use crate::text::{count, many};

struct FireCount(AtomicU64);

impl Wake for FireCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

const EACH: u64 = 1_000;
const LONGEST: Duration = Duration::from_millis(30);

pub(crate) fn run(check: &CheckRun) -> Findings {
    // The planted fault: the driver belongs to the executor's thread, which is blocked.
    let builder = Engine::builder();
    let engine = build(if check.breaks(Promise::P11) { builder.driver(Driver::external()) } else { builder });
    let fired = Arc::new(FireCount(AtomicU64::new(0)));
    let threads = check.threads.clamp(1, 8);
    let all = EACH * threads as u64;
    let blocked = Barrier::new(threads);
    let in_time = thread::scope(|scope| {
        let executor = |thread| {
            let (engine, fired, blocked) = (&engine, &fired, &blocked);
            let mut random = check.random("blocked", thread);
            scope.spawn(move || {
                let sleeps = arm(engine, &Waker::from(Arc::clone(fired)), &mut random);
                // From here on all threads are blocked.
                blocked.wait();
                let in_time = check.reference.wait_limit().wait_for_all(all, || fired.0.load(SeqCst));
                drop(sleeps);
                in_time
            })
        };
        let threads: Vec<_> = (0..threads).map(executor).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(false)).fold(true, |all, one| all & one)
    });
    let seen = fired.0.load(SeqCst);
    let mut findings = Findings::default();
    let what = format!(
        "{} of {} fired while all {} of the executor were blocked",
        count(seen),
        many(all, "timer"),
        many(threads as u64, "thread")
    );
    findings.expect(in_time, Promise::P11, || format!("only {what}"));
    findings.counted(Promise::P11, what);
    engine.shutdown();
    findings
}

/// Arms sleeps that all wake the same waker.
fn arm(engine: &Engine, waker: &Waker, random: &mut Random) -> Vec<Pin<Box<Sleep>>> {
    let mut sleeps = Vec::new();
    while sleeps.len() < EACH as usize {
        let duration = Duration::from_millis(5) + random.duration(LONGEST);
        let mut sleep = Box::pin(engine.sleep(duration));
        if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending() {
            sleeps.push(sleep);
        }
    }
    sleeps
}
