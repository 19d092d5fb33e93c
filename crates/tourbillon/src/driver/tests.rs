//! The decisions of a driver, in virtual time.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::time::Sleep;
use crate::{Engine, Slack};

const HOUR: Duration = Duration::from_secs(3600);

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The driver of an engine, which the test steps.
struct SteppedDriver {
    core: CoreRef,
    steps: DriverLoop,
}

impl SteppedDriver {
    fn step(&mut self) -> DriverStep {
        self.steps.step(&self.core, Shard::visit_remote)
    }
}

/// Returns an engine and its driver.
fn stepped() -> (Engine, SteppedDriver) {
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).build().unwrap();
    let driver = SteppedDriver { core: engine.core().clone(), steps: DriverLoop::new() };
    (engine, driver)
}

fn armed(engine: &Engine, after: Duration, slack: Slack) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(after).slack(slack));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    sleep
}

/// Returns how long the driver sleeps.
fn planned(driver: &SteppedDriver) -> Duration {
    Duration::from(driver.core.driver.planned() - driver.core.clock.now())
}

#[test]
fn d73_a_precise_timer_that_is_far_away_keeps_no_driver_awake_before_other_timers() {
    for slack in [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::from_nanos(2))] {
        for after in [us(30), us(150), us(199), us(201), us(1000)] {
            let (engine, mut driver) = stepped();
            let precise = armed(&engine, HOUR, Slack::precise());
            // The driver's visit finds the precise one.
            let first = armed(&engine, us(1), Slack::exact());
            engine.clock().advance(us(1));
            assert_eq!(driver.step(), DriverStep::Sleep);
            assert!(first.is_elapsed());
            let other = armed(&engine, after, slack);
            assert_eq!(driver.step(), DriverStep::Sleep, "{slack:?}, {after:?} before it is due");
            let late = planned(&driver) - after;
            assert!(late < us(1), "woken for {slack:?}, not when it is due");
            engine.clock().advance(after + late);
            assert_eq!(driver.step(), DriverStep::Sleep);
            assert!(other.is_elapsed() && !precise.is_elapsed());
            assert_eq!(planned(&driver) + us(1) + after + late, HOUR - PRECISE_LEAD);
        }
    }
}

#[test]
fn d73_p4_the_driver_wakes_up_before_a_precise_timer_and_stays_awake_until_it_is_due() {
    for beside in [None, Some(Slack::adaptive()), Some(Slack::exact()), Some(Slack::precise())] {
        let (engine, mut driver) = stepped();
        let precise = armed(&engine, Duration::from_millis(10), Slack::precise());
        let _beside = beside.map(|slack| armed(&engine, Duration::from_millis(20), slack));
        assert_eq!(driver.step(), DriverStep::Sleep);
        assert_eq!(planned(&driver), Duration::from_millis(10) - PRECISE_LEAD);
        engine.clock().advance(planned(&driver));
        for _ in 0..PRECISE_LEAD.as_micros() {
            assert_eq!(driver.step(), DriverStep::Soon);
            assert!(!precise.is_elapsed());
            engine.clock().advance(us(1));
        }
        assert_eq!(driver.step(), DriverStep::Sleep);
        assert!(precise.is_elapsed());
    }
}

/// Also when others are due, or are armed, in the time before it.
#[test]
fn d73_p4_a_precise_timer_is_waited_for_through_others_that_are_due_before_it() {
    let (engine, mut driver) = stepped();
    let precise = armed(&engine, us(1000), Slack::precise());
    let exact = armed(&engine, us(900), Slack::exact());
    assert_eq!(driver.step(), DriverStep::Sleep);
    engine.clock().advance(planned(&driver));
    assert_eq!(driver.step(), DriverStep::Soon);
    let sooner = armed(&engine, us(50), Slack::precise());
    engine.clock().advance(us(50));
    assert_eq!(driver.step(), DriverStep::Soon);
    assert!(sooner.is_elapsed() && !exact.is_elapsed());
    engine.clock().advance(us(50));
    assert_eq!(driver.step(), DriverStep::Soon);
    assert!(exact.is_elapsed() && !precise.is_elapsed());
    engine.clock().advance(us(100));
    assert_eq!(driver.step(), DriverStep::Sleep);
    assert!(precise.is_elapsed());
}

#[test]
fn d73_a_precise_timer_that_was_cancelled_or_moved_keeps_no_driver_awake_any_more() {
    let (engine, mut driver) = stepped();
    let far = armed(&engine, HOUR, Slack::precise());
    let cancelled = armed(&engine, us(100), Slack::precise());
    let mut moved = armed(&engine, us(100), Slack::precise());
    assert_eq!(driver.step(), DriverStep::Soon);
    drop(cancelled);
    let to = moved.deadline() + 2 * HOUR;
    moved.as_mut().reset(to);
    engine.clock().advance(us(100));
    assert_eq!(driver.step(), DriverStep::Sleep);
    let other = armed(&engine, us(150), Slack::adaptive());
    assert_eq!(driver.step(), DriverStep::Sleep);
    assert_eq!(planned(&driver), us(150));
    engine.clock().advance(us(150));
    assert_eq!(driver.step(), DriverStep::Sleep);
    assert!(other.is_elapsed() && !far.is_elapsed() && !moved.is_elapsed());
    engine.clock().advance(HOUR);
    assert_eq!(driver.step(), DriverStep::Sleep);
    assert!(far.is_elapsed());
    engine.clock().advance(HOUR - us(350));
    assert_eq!(driver.step(), DriverStep::Soon, "the moved one is due in 0.1 ms");
}
