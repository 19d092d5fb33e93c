//! A driver that has a thread and a task: whichever of the two drives, one of the timers goes off in time for each timer of the engine.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use loom::thread;
use tourbillon_queue::{Span, Time};

use super::{WakerTally, explore_up_to, handle, local, stats};
use crate::alarm::task_alarm::MAX_LATE;
use crate::alarm::{Alarm, DriverTaskId};
use crate::clock::Clock;
use crate::core::driver_shared::DriverShared;
use crate::core::{CoreConfig, CoreRef};
use crate::driver::{DriverStep, SharedDriver};
use crate::shard::node::NodeRef;
use crate::shard::queue::QueueKind;
use crate::shard::{Access, ArmKind, NotifyDriver, Release, Shard};
use crate::slack::{Slack, SlackBits};

/// Far apart, so that the thread is not late for one while it is for another.
const FIRST: Time = Time::from_nanos(1_000_000_000);
const SECOND: Time = Time::from_nanos(2_000_000_000);
const THIRD: Time = Time::from_nanos(3_000_000_000);

/// A core, and its driver with a thread and a task, each of which a thread of the model steps.
#[derive(Clone)]
struct DrivenByTwo {
    core: CoreRef,
    driver: Arc<SharedDriver>,
    task: DriverTaskId,
    woken: &'static WakerTally,
}

impl DrivenByTwo {
    /// Returns a core with one timer at `THIRD`, which the task drives.
    fn new() -> (DrivenByTwo, NodeRef) {
        let clock = Clock::manual();
        clock.set(Time::from_nanos(1));
        let driver = DriverShared::new(Alarm::modelled());
        let (slack, kind) = (SlackBits::ADAPTIVE, QueueKind::Wheel);
        let config = CoreConfig { clock, slack, capacity: None, kind, shards: 1, driver, is_virtual: false };
        let core = CoreRef::new(config);
        assert_eq!(core.adopt().2, Access::Owner);
        let task = core.driver.alarm.add_modelled_task(&core.clock, 1);
        let driven = DrivenByTwo { core, driver: Arc::new(SharedDriver::new()), task, woken: WakerTally::new() };
        let pending = driven.arm(THIRD);
        assert_eq!(driven.step_on_task(), Some(DriverStep::Sleep));
        driven.assert_wakes_by(THIRD);
        (driven, pending)
    }

    fn shard(&self) -> &Shard {
        self.core.shards().next().expect("made above")
    }

    /// Arms a timer as an entry does.
    fn arm(&self, deadline: Time) -> NodeRef {
        let slack = Slack::exact().bits();
        let armed =
            local(self.shard(), Access::Owner).arm(ArmKind::New, deadline, slack, Waker::noop().clone(), &mut None);
        if armed.notify_driver == NotifyDriver::Yes {
            self.core.notify_driver(self.shard(), Access::Owner);
        }
        armed.handle.expect("an open engine arms").node()
    }

    fn release(&self, nodes: impl IntoIterator<Item = NodeRef>) {
        for node in nodes {
            drop(local(self.shard(), Access::Owner).release_owned(handle(node), Release::Cancelled));
        }
    }

    fn step_on_task(&self) -> Option<DriverStep> {
        self.driver.step_on_task(&self.core, self.task, Shard::visit_remote, &self.woken.waker())
    }

    fn step_on_thread(&self) -> DriverStep {
        self.driver.step_on_thread(&self.core)
    }

    /// Asserts that the thread takes over if the task, which was awake at `now`, makes no further step.
    #[track_caller]
    fn assert_thread_takes_over(&self, now: Time) {
        let (thread, _) = self.core.driver.alarm.timers();
        assert!(thread <= now + MAX_LATE, "the thread sleeps until {thread:?}");
        self.core.clock.set(thread.max(now + MAX_LATE));
        assert_ne!(self.step_on_thread(), DriverStep::End);
        assert_eq!(self.core.driver.alarm.timers().1, None, "the thread drives");
    }

    /// Asserts that the party that drives wakes up at `at` or before, and the thread some milliseconds later at the latest.
    #[track_caller]
    fn assert_wakes_by(&self, at: Time) {
        let (thread, task) = self.core.driver.alarm.timers();
        match task {
            Some(task) => {
                assert!(task <= at && thread <= at + MAX_LATE, "the task sleeps until {task:?}, the thread {thread:?}")
            }
            None => assert!(thread <= at, "the thread sleeps until {thread:?}, past {at:?}"),
        }
    }
}

/// Returns a time at which the task is late for `at`.
fn late(at: Time) -> Time {
    at + MAX_LATE + Span::from(Duration::from_millis(1))
}

#[test]
fn e3_p11_a_timer_that_is_armed_while_the_thread_takes_over_is_not_missed() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        driven.core.clock.set(late(THIRD));
        let thread = {
            let driven = driven.clone();
            thread::spawn(move || driven.step_on_thread())
        };
        // Later than the pending timer, which fires.
        let later = late(THIRD) + Span::from_secs(1);
        let armed = driven.arm(later);
        let step = thread.join().unwrap();
        assert_eq!(driven.core.driver.alarm.timers().1, None, "the thread drives");
        if step == DriverStep::Sleep {
            driven.assert_wakes_by(later);
        }
        driven.release([pending, armed]);
    });
}

#[test]
fn e3_d39_an_earlier_timer_is_not_missed_while_the_task_plans() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        driven.core.clock.set(Time::from_nanos(2));
        let task = {
            let driven = driven.clone();
            thread::spawn(move || driven.step_on_task())
        };
        let armed = driven.arm(FIRST);
        match task.join().unwrap() {
            Some(DriverStep::Sleep) => driven.assert_wakes_by(FIRST),
            // The runtime may be left before it polls the task again.
            _ => driven.assert_thread_takes_over(Time::from_nanos(2)),
        }
        driven.release([pending, armed]);
    });
}

#[test]
fn e3_d41_an_earlier_timer_is_not_missed_while_the_task_s_runtime_ends() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        let end = {
            let driven = driven.clone();
            thread::spawn(move || assert!(driven.core.driver.alarm.remove_task(driven.task)))
        };
        let armed = driven.arm(FIRST);
        end.join().unwrap();
        driven.assert_wakes_by(Time::ZERO);
        assert_eq!(driven.step_on_thread(), DriverStep::Sleep);
        driven.assert_wakes_by(FIRST);
        assert_eq!(driven.step_on_task(), Some(DriverStep::End), "the task is gone");
        driven.release([pending, armed]);
    });
}

#[test]
fn e3_p11_the_task_takes_the_engine_back_or_is_woken_when_the_thread_is_done() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        let armed = driven.arm(SECOND);
        driven.core.clock.set(late(SECOND));
        let thread = {
            let driven = driven.clone();
            thread::spawn(move || driven.step_on_thread())
        };
        let step = driven.step_on_task();
        let last = thread.join().unwrap();
        match step {
            Some(step) => assert!(step == DriverStep::Sleep || last == DriverStep::Sleep),
            None => assert!(driven.woken.woken() > 0, "the task would wait for ever"),
        }
        driven.assert_wakes_by(THIRD);
        // One of the two has fired the timer, once.
        assert_eq!(stats(driven.shard()).fired, 1);
        driven.release([pending, armed]);
    });
}

#[test]
fn e3_p9_a_thread_whose_timer_goes_off_while_the_task_is_in_time_goes_back_to_sleep() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        driven.core.clock.set(THIRD);
        let thread = {
            let driven = driven.clone();
            thread::spawn(move || driven.step_on_thread())
        };
        let step = driven.step_on_task();
        assert_eq!(thread.join().unwrap(), DriverStep::Sleep);
        if step.is_none() {
            assert!(driven.woken.woken() > 0, "the task would wait for ever");
            assert!(driven.step_on_task().is_some());
        }
        assert_eq!(stats(driven.shard()).fired, 1);
        driven.release([pending]);
    });
}

#[test]
fn e3_d39_a_task_that_finds_another_thread_in_the_middle_of_a_step_is_woken_by_it() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        driven.core.clock.set(THIRD);
        // The runtime's I/O driver and the task itself, on two workers.
        let other = {
            let driven = driven.clone();
            thread::spawn(move || driven.step_on_task())
        };
        let step = driven.step_on_task();
        let steps = [step, other.join().unwrap()];
        assert!(steps.iter().any(Option::is_some), "one of them has made a step");
        if steps.contains(&None) {
            assert!(driven.woken.woken() > 0, "the task would wait for ever");
        }
        assert_eq!(stats(driven.shard()).fired, 1);
        driven.release([pending]);
    });
}

#[test]
fn e3_p9_a_task_that_stays_awake_and_makes_steps_is_not_late() {
    explore_up_to(3, || {
        let (driven, pending) = DrivenByTwo::new();
        // Timers so close together that the task does not sleep between them.
        let step = Span::from(Duration::from_micros(10));
        let start = THIRD - Span::from(Duration::from_millis(20));
        let mut nodes = vec![pending];
        for round in 0..3 {
            let now = start + Span::from(Duration::from_millis(3 * round));
            driven.core.clock.set(now);
            nodes.push(driven.arm(now + step));
            assert_eq!(driven.step_on_task(), Some(DriverStep::Soon));
        }
        assert_eq!(driven.step_on_thread(), DriverStep::Sleep);
        assert!(driven.core.driver.alarm.timers().1.is_some(), "the task drives");
        driven.release(nodes);
    });
}
