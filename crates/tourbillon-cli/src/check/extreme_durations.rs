//! P5: durations from zero to more than can be represented, around the powers of two where other timers wrap, up to a hundred
//! years.
//!
//! In virtual time, each timer is observed a nanosecond before its deadline and at its deadline.

use std::pin::{Pin, pin};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::time::{DelayQueue, Sleep, interval, timeout};
use tourbillon::{Clock, Engine, Timer};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::build;
use super::order::KINDS;
use super::promise::Promise;
use crate::text::{count, many};

const YEAR: Duration = Duration::from_secs(31_557_600);

pub(crate) fn run(check: &CheckRun) -> Findings {
    let mut findings = Findings::default();
    let mut looked_at = 0;
    for (name, kind) in KINDS {
        let engine = build(Engine::builder().clock(Clock::manual()).queue(kind));
        looked_at += in_virtual_time(check, name, &engine, &mut findings);
    }
    looked_at += never(&mut findings);
    let kinds = many(KINDS.len() as u64, "kind");
    let what =
        format!("{} from 0 ns to 100 years and beyond, in {kinds} of queue, to the nanosecond", count(looked_at));
    findings.counted(Promise::P5, format!("durations checked: {what}"));
    findings
}

/// Returns durations at which a timer could fail: powers of two in nanoseconds and milliseconds, and their neighbours.
fn durations() -> Vec<Duration> {
    let nanosecond = Duration::from_nanos(1);
    let in_nanos = (0..62).map(|power| Duration::from_nanos(1 << power));
    let in_millis = (0..42).map(|power| Duration::from_millis(1 << power));
    let powers = in_nanos.chain(in_millis).filter(|duration| *duration < 99 * YEAR);
    let mut all: Vec<_> = powers.flat_map(|power| [power - nanosecond, power, power + nanosecond]).collect();
    all.extend([Duration::ZERO, YEAR, 100 * YEAR]);
    all.sort();
    all.dedup();
    all
}

fn in_virtual_time(check: &CheckRun, name: &str, engine: &Engine, findings: &mut Findings) -> u64 {
    let durations = durations();
    let given = |duration: Duration| {
        // The planted fault: 32 bits of milliseconds, as some timers have.
        let bits = u128::from(u32::MAX);
        let cut = Duration::from_millis((duration.as_millis() & bits) as u64);
        if check.breaks(Promise::P5) && duration.as_millis() > bits { cut } else { duration }
    };
    let mut sleeps: Vec<_> = durations.iter().map(|duration| Box::pin(engine.sleep(given(*duration)))).collect();
    sleeps.iter_mut().for_each(|sleep| _ = poll_is_ready(sleep.as_mut()));
    let mut passed = Duration::ZERO;
    for (sleep, duration) in sleeps.iter_mut().zip(&durations) {
        if let Some(before) = duration.checked_sub(Duration::from_nanos(1)) {
            engine.advance(before - passed);
            passed = before;
            findings.expect(!poll_is_ready(sleep.as_mut()), Promise::P5, || {
                format!("{name}: {duration:?} was over too soon")
            });
        }
        engine.advance(*duration - passed);
        passed = *duration;
        findings
            .expect(poll_is_ready(sleep.as_mut()), Promise::P5, || format!("{name}: {duration:?} did not end in time"));
    }
    durations.len() as u64
}

/// Checks in real time that `Duration::MAX` means never on every surface.
fn never(findings: &mut Findings) -> u64 {
    let engine = build(Engine::builder());
    let _entered = engine.enter();
    let (send, receiver) = channel();
    let timer = Timer::on(&engine);
    timer.expires_after(Duration::MAX);
    timer.on_expiry(move |outcome| _ = send.send(outcome));
    let mut queue = DelayQueue::new();
    queue.insert((), Duration::MAX);
    let mut interval = interval(Duration::MAX);
    let mut context = Context::from_waker(Waker::noop());
    let mut limit = pin!(timeout(Duration::MAX, std::future::pending::<()>()));
    let mut sleep = pin!(engine.sleep(Duration::MAX));
    let first_tick = interval.poll_tick(&mut context).is_ready();
    let pending = [
        ("timeout", limit.as_mut().poll(&mut context).is_pending()),
        ("sleep", sleep.as_mut().poll(&mut context).is_pending()),
        ("delay queue", queue.poll_expired(&mut context).is_pending()),
        ("interval", first_tick && interval.poll_tick(&mut context).is_pending()),
        ("timer", receiver.recv_timeout(Duration::from_millis(20)).is_err()),
    ];
    for (surface, is_pending) in pending {
        findings.expect(is_pending, Promise::P5, || format!("{surface}: `Duration::MAX` has ended"));
    }
    let zero = poll_is_ready(pin!(engine.sleep(Duration::ZERO)));
    findings.expect(zero, Promise::P5, || "sleep: a duration of zero did not end at once".into());
    pending.len() as u64 + 1
}

fn poll_is_ready(sleep: Pin<&mut Sleep>) -> bool {
    // A sleep that has ended is not polled again.
    sleep.is_elapsed() || sleep.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
