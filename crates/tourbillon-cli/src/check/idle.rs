//! P9: idle is free. With timers pending far ahead, no thread of an engine or a runtime wakes up, and arming later timers wakes
//! no thread.
//!
//! The kernel counts how often a thread has gone to sleep. A thread that is stopped and continued, as by a debugger, may wake up
//! once, so a wake-up or two prove nothing; a timer that ticks causes hundreds.

use std::collections::BTreeSet;
use std::fs;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Engine, Slack};
use tourbillon_rt::{Backend, Runtime};

use super::audit::{Findings, idle_phase};
use super::check_run::CheckRun;
use super::engines::build;
use super::local_executor::run_tasks;
use super::promise::Promise;
use crate::text::{count, duration, many};

/// How often a group of threads went to sleep, and how long they ran.
#[derive(Clone, Copy)]
struct ThreadUsage {
    wake_ups: u64,
    ticks: u64,
}

/// The usage while nothing was done, and while later timers were armed.
struct IdleUsage {
    nothing: ThreadUsage,
    arming: ThreadUsage,
}

/// Most wake-ups that are accepted.
const MAX_WAKE_UPS: u64 = 2;
const ATTEMPTS: usize = 3;
/// The kernel counts the CPU time of a thread in steps of 10 ms.
const TICK: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_secs(3600);
const LATER: usize = 10_000;

pub(crate) fn run(check: &Arc<CheckRun>) -> Findings {
    let mut findings = Findings::default();
    let before = threads();
    let engine = build(Engine::builder());
    let slacks = [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::from_millis(5)), Slack::precise()];
    let pending: Vec<_> = slacks.iter().map(|slack| armed(&engine, FAR, *slack)).collect();
    let runtimes: Vec<_> = [Backend::Epoll, Backend::Uring].into_iter().filter_map(runtime).collect();
    let ours = wait_until_asleep(&before);
    let ticking = check.breaks(Promise::P9).then(|| tick(&engine));
    let lasts = idle_phase(check.lasts);
    // A thread that wakes up by itself does so in every attempt.
    let attempt = |()| IdleUsage::watch(&engine, &ours, lasts);
    let mut idle = attempt(());
    for _ in 1..ATTEMPTS {
        if idle.is_free() {
            break;
        }
        idle = attempt(());
    }
    if let Some(ticking) = ticking {
        ticking.store(false, Ordering::Relaxed);
    }
    let [whole, threads] = [duration(lasts), many(ours.len() as u64, "thread")];
    findings.expect(idle.nothing.wake_ups <= MAX_WAKE_UPS, Promise::P9, || {
        format!("{} wake-ups in {whole} of {threads} with nothing due", count(idle.nothing.wake_ups))
    });
    findings.expect(idle.nothing.cpu() <= lasts / 5 + TICK, Promise::P9, || {
        format!("{} of CPU time in {whole} with nothing due", duration(idle.nothing.cpu()))
    });
    findings.expect(idle.arming.wake_ups <= MAX_WAKE_UPS, Promise::P9, || {
        format!("{} wake-ups while {} later timers were armed", count(idle.arming.wake_ups), count(LATER as u64))
    });
    let what = format!(
        "{} in {whole} of the {threads} of an engine and {} with nothing due, {} while {} later timers were armed",
        many(idle.nothing.wake_ups, "wake-up"),
        many(runtimes.len() as u64, "runtime"),
        count(idle.arming.wake_ups),
        count(LATER as u64)
    );
    findings.counted(Promise::P9, what);
    drop(pending);
    engine.shutdown();
    findings
}

/// Returns the threads that were started since, once all of them sleep: on a busy machine that takes a while.
fn wait_until_asleep(before: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut last = None;
    let mut quiet_for = 0;
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(25));
        let ours: BTreeSet<_> = threads().difference(before).copied().collect();
        let now = (ThreadUsage::of(&ours).wake_ups, ours);
        quiet_for = if last.as_ref() == Some(&now) && now.1.iter().all(is_asleep) { quiet_for + 1 } else { 0 };
        last = Some(now);
        if quiet_for == 4 {
            break;
        }
    }
    last.map(|(_, ours)| ours).unwrap_or_default()
}

impl IdleUsage {
    /// Measures the usage while nothing is done, and then while timers are armed that are later than the next wake-up.
    fn watch(engine: &Engine, threads: &BTreeSet<u32>, lasts: Duration) -> IdleUsage {
        let first = ThreadUsage::of(threads);
        thread::sleep(lasts);
        let second = ThreadUsage::of(threads);
        let later = |number| armed(engine, FAR + Duration::from_secs(1 + number as u64), Slack::adaptive());
        let sleeps: Vec<_> = (0..LATER).map(later).collect();
        thread::sleep(Duration::from_millis(20));
        let third = ThreadUsage::of(threads);
        drop(sleeps);
        IdleUsage { nothing: second.since(first), arming: third.since(second) }
    }

    fn is_free(&self) -> bool {
        self.nothing.wake_ups <= MAX_WAKE_UPS && self.arming.wake_ups <= MAX_WAKE_UPS
    }
}

fn armed(engine: &Engine, duration: Duration, slack: Slack) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(duration).slack(slack));
    let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    sleep
}

/// Returns a runtime with a task that waits for a far timer, if this back end works here.
fn runtime(backend: Backend) -> Option<Runtime> {
    let runtime = Runtime::builder().backend(backend).workers(1).build().ok()?;
    drop(runtime.spawn(tourbillon_rt::time::sleep(FAR)));
    Some(runtime)
}

/// The planted fault: a timer that ticks each millisecond.
fn tick(engine: &Engine) -> Arc<AtomicBool> {
    let is_under_load = Arc::new(AtomicBool::new(true));
    thread::spawn({
        let (engine, is_under_load) = (engine.clone(), Arc::clone(&is_under_load));
        move || {
            let ticks = async {
                while is_under_load.load(Ordering::Relaxed) {
                    engine.sleep(Duration::from_millis(1)).slack(Slack::exact()).await;
                }
            };
            run_tasks(vec![Box::pin(ticks)]);
        }
    });
    is_under_load
}

/// Returns the ids of all threads of this process.
fn threads() -> BTreeSet<u32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

impl ThreadUsage {
    /// Returns the usage of the threads that still exist.
    fn of(threads: &BTreeSet<u32>) -> ThreadUsage {
        let uses = threads.iter().filter_map(|thread| {
            let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
            Some(ThreadUsage { wake_ups: wake_ups(&read("status")?)?, ticks: ticks(&read("stat")?)? })
        });
        uses.fold(ThreadUsage { wake_ups: 0, ticks: 0 }, |sum, one| ThreadUsage {
            wake_ups: sum.wake_ups + one.wake_ups,
            ticks: sum.ticks + one.ticks,
        })
    }

    fn cpu(self) -> Duration {
        TICK * self.ticks as u32
    }

    fn since(self, before: ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            wake_ups: self.wake_ups.saturating_sub(before.wake_ups),
            ticks: self.ticks.saturating_sub(before.ticks),
        }
    }
}

fn is_asleep(thread: &u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('S'))
}

fn wake_ups(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Parses the CPU time in user and in kernel mode: fields 14 and 15, after a name that may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_what_the_kernel_says_of_a_thread_is_understood() {
        assert_eq!(wake_ups("Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"), Some(12));
        assert_eq!(ticks("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0"), Some(42));
        let this = threads();
        assert!(!this.is_empty() && ThreadUsage::of(&this).wake_ups < u64::MAX);
    }
}
