//! P6: bad input is refused with an error, and a panic in user code affects no other timer.

use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler};
use tourbillon::time::{DelayQueue, Sleep, try_interval};
use tourbillon::{ArmError, Engine, NamedTimers, Outcome, QueueKind, Timer};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::{LoopStep, build, driven, turn_all};
use super::promise::Promise;
use crate::text::count;

/// Counts of the wake-ups and callbacks that returned, and of those that panicked.
#[derive(Default)]
struct PanicLog {
    reported_ok: AtomicU64,
    panics: AtomicU64,
    has_panicked: AtomicBool,
}

/// A waker that counts, or panics.
struct CountingWaker {
    log: Arc<PanicLog>,
    panics: bool,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.log.record(self.panics);
    }
}

const TIMERS: u64 = 400;
/// One timer in four has a callback and a waker that panic.
const PANICS: u64 = 4;
const LONGEST: Duration = Duration::from_millis(30);

pub(crate) fn run(check: &CheckRun) -> Findings {
    let mut findings = Findings::default();
    let answers = bad_input();
    for (what, _) in answers.iter().filter(|(_, holds)| !holds) {
        findings.complain(Promise::P6, format!("bad input: {what}"));
    }
    findings.counted(Promise::P6, format!("{} bad inputs refused or reported", answers.len()));
    panics(check, &mut findings);
    findings
}

/// Runs timers with callbacks and with wakers, of which some panic.
fn panics(check: &CheckRun, findings: &mut Findings) {
    let log = Arc::new(PanicLog::default());
    let engine = engine(check, &log);
    let mut random = check.random("panics", 0);
    let (mut timers, mut sleeps) = (Vec::new(), Vec::new());
    let waker_that = |panics| Waker::from(Arc::new(CountingWaker { log: Arc::clone(&log), panics }));
    for number in 0..TIMERS {
        let (panics, duration) = (number % PANICS == 0, Duration::from_millis(1) + random.duration(LONGEST));
        let timer = Timer::on(&engine);
        timer.expires_after(duration);
        timer.on_expiry({
            let log = Arc::clone(&log);
            move |_| log.record(panics)
        });
        timers.push(timer);
        sleeps.push(started(engine.sleep(duration + Duration::from_millis(10)), &waker_that(panics), &log));
    }
    let ended = || log.reported_ok.load(SeqCst) + log.panics.load(SeqCst);
    check.reference.wait_limit().wait_for_all(2 * TIMERS, ended);
    // All those may have been due at once; this sleep is due after all panics.
    let _last = started(engine.sleep(Duration::from_millis(1)), &waker_that(false), &log);
    let all = 2 * TIMERS + 1;
    check.reference.wait_limit().wait_for_all(all, ended);
    let [reported_ok, panics] = [&log.reported_ok, &log.panics].map(|number| number.load(SeqCst));
    findings.expect(reported_ok + panics == all, Promise::P6, || {
        format!("after a panic, {} of {} timers were not reported", count(all - reported_ok - panics), count(all))
    });
    let reported = || {
        let stats = engine.stats();
        stats.waker_panics + stats.callback_panics
    };
    // The engine counts a panic after it has left the callback.
    check.reference.wait_limit().wait_for_all(panics, reported);
    let reported = reported();
    findings.expect(reported == panics, Promise::P6, || {
        format!("{} callbacks and wakers panicked, {} were reported", count(panics), count(reported))
    });
    let what = format!("{} panics contained, all {} other timers reported", count(panics), count(reported_ok));
    findings.counted(Promise::P6, what);
    engine.shutdown();
}

fn started(sleep: Sleep, waker: &Waker, log: &PanicLog) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(sleep);
    if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
        log.reported_ok.fetch_add(1, SeqCst);
    }
    sleep
}

/// Returns an engine; with the planted fault, a panic ends its driver.
fn engine(check: &CheckRun, log: &Arc<PanicLog>) -> Engine {
    if !check.breaks(Promise::P6) {
        return build(Engine::builder());
    }
    let log = Arc::clone(log);
    driven(Engine::builder(), move |engine| {
        turn_all(engine);
        if log.has_panicked.load(SeqCst) { LoopStep::Stop } else { LoopStep::Continue }
    })
}

impl PanicLog {
    fn record(&self, panics: bool) {
        if panics {
            self.panics.fetch_add(1, SeqCst);
            self.has_panicked.store(true, SeqCst);
            // Unlike `panic!`, this prints nothing.
            resume_unwind(Box::new("planned"));
        }
        self.reported_ok.fetch_add(1, SeqCst);
    }
}

/// Returns sentences about failures, each with whether it did not happen.
fn bad_input() -> Vec<(&'static str, bool)> {
    let rounds = QueueKind::Rounds { tick: Duration::ZERO, slots: 0 };
    let mut answers = vec![
        ("an engine without shards was built", Engine::builder().shards(0).build().is_err()),
        ("an engine with a capacity of zero was built", Engine::builder().capacity(0).build().is_err()),
        ("a queue without slots was built", Engine::builder().queue(rounds).build().is_err()),
        ("an interval of zero was accepted", try_interval(Duration::ZERO).is_err()),
    ];
    answers.extend(stale_keys());
    answers.extend(bad_jobs());
    answers.extend(after_the_end());
    answers
}

fn stale_keys() -> [(&'static str, bool); 3] {
    let engine = build(Engine::builder());
    let _entered = engine.enter();
    let mut queue = DelayQueue::new();
    let key = queue.insert((), Duration::from_secs(60));
    let removed = queue.try_remove(&key).is_some();
    [
        ("an item could not be removed", removed),
        ("an item was removed twice", queue.try_remove(&key).is_none()),
        ("a removed item was moved", queue.try_reset(&key, Duration::ZERO).is_none()),
    ]
}

fn bad_jobs() -> Vec<(&'static str, bool)> {
    let engine = build(Engine::builder());
    // A scheduler without threads is called by the engine; no job runs here.
    let Ok(scheduler) = Scheduler::builder().engine(&engine).threads(0).build() else { return Vec::new() };
    let far = Duration::from_secs(3600);
    let kind = |key, plan: Plan| scheduler.schedule(key, plan, |_| ()).err().map(|error| error.kind);
    vec![
        ("a job was refused", kind("job", Plan::every(far)).is_none()),
        ("a key was accepted twice", kind("job", Plan::every(far)) == Some(ScheduleErrorKind::Duplicate)),
        (
            "a plan with an interval of zero was accepted",
            kind("a", Plan::every(Duration::ZERO)) == Some(ScheduleErrorKind::ZeroInterval),
        ),
        (
            "a plan without runs was accepted",
            kind("b", Plan::every(far).times(0)) == Some(ScheduleErrorKind::ZeroTimes),
        ),
        (
            "an unknown job was rescheduled",
            scheduler.reschedule("c", Plan::every(far)) == Err(ScheduleErrorKind::Unknown),
        ),
        ("an unknown job was removed", !scheduler.remove("c")),
    ]
}

fn after_the_end() -> [(&'static str, bool); 4] {
    let engine = build(Engine::builder());
    engine.shutdown();
    engine.shutdown();
    let mut sleep = pin!(engine.sleep(Duration::from_secs(3600)));
    let is_ready = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let timer = Timer::on(&engine);
    timer.expires_after(Duration::from_secs(3600));
    [
        ("a timer was armed after the shutdown", engine.try_sleep(Duration::ZERO).err() == Some(ArmError::Stopped)),
        ("a sleep is pending after the shutdown", is_ready && sleep.outcome() == Some(Outcome::Stopped)),
        ("a wait is pending after the shutdown", timer.wait_blocking() == Outcome::Stopped),
        (
            "a named timer was started after the shutdown",
            NamedTimers::on(&engine).start("name", Duration::ZERO, |_| ()) == Err(ArmError::Stopped),
        ),
    ]
}
