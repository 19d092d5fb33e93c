//! The driver and the threads that arm timers: no wake-up is lost. With a whole core and an external driver.

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use loom::thread;
use tourbillon_queue::Time;

use super::{DUE, EARLIER, LATER, WakerTally, explore, explore_up_to, handle, local};
use crate::clock::Clock;
use crate::core::capacity::{Claim, WaitEnd};
use crate::core::{CoreConfig, CoreRef};
use crate::driver::{Driver, Turn};
use crate::shard::node::NodeRef;
use crate::shard::queue::QueueKind;
use crate::shard::{Access, ArmKind, NotifyDriver, Release, Shard};
use crate::slack::{Slack, SlackBits};
use crate::sync::{AtomicBool, Ordering};

const NOW: Time = Time::from_nanos(10);

/// A sleep that waits for a slot.
const END: WaitEnd = WaitEnd { deadline: DUE, due: DUE, slack: SlackBits::ADAPTIVE };

/// A core, and whether its driver has been notified to turn again.
#[derive(Clone)]
struct DrivenCore {
    core: CoreRef,
    notified: Arc<AtomicBool>,
}

impl DrivenCore {
    /// Returns a core with `shards` shards, each of which one thread of the model owns. (They are made before the threads start, because
    /// the core keeps them behind locks that loom does not check.)
    fn new(shards: usize, capacity: Option<usize>) -> DrivenCore {
        DrivenCore::with(shards, capacity, false)
    }

    /// Returns a core whose engine is in virtual time.
    fn virtual_time(shards: usize) -> DrivenCore {
        DrivenCore::with(shards, None, true)
    }

    fn with(shards: usize, capacity: Option<usize>, is_virtual: bool) -> DrivenCore {
        let notified = Arc::new(AtomicBool::new(false));
        let notify = {
            let notified = notified.clone();
            move || _ = notified.swap(true, Ordering::AcqRel)
        };
        let clock = Clock::manual();
        clock.set(Time::ZERO);
        let (driver, _) = Driver::external_with(notify).prepare(&clock).expect("any clock will do");
        let plan = CoreConfig {
            clock,
            slack: SlackBits::ADAPTIVE,
            capacity,
            kind: QueueKind::Wheel,
            shards,
            driver,
            is_virtual,
        };
        let core = CoreRef::new(plan);
        for _ in 0..shards {
            assert_eq!(core.adopt().2, Access::Owner);
        }
        DrivenCore { core, notified }
    }

    fn shard(&self, index: usize) -> &Shard {
        self.core.shards().nth(index).expect("made above")
    }

    /// Arms a timer as an entry does. `None` if the shard refuses it.
    fn arm(&self, index: usize, deadline: Time, slack: SlackBits, waker: Waker) -> Option<NodeRef> {
        let shard = self.shard(index);
        let armed = local(shard, Access::Owner).arm(ArmKind::New, deadline, slack, waker, &mut None);
        self.notify_driver(shard, armed.notify_driver);
        armed.handle.map(|handle| handle.node())
    }

    fn notify_driver(&self, shard: &Shard, notify_driver: NotifyDriver) {
        if notify_driver == NotifyDriver::Yes {
            self.core.notify_driver(shard, Access::Owner);
        }
    }

    fn cancel(&self, index: usize, node: NodeRef) {
        drop(local(self.shard(index), Access::Owner).release_owned(handle(node), Release::Cancelled));
    }

    /// Cancels a timer in an engine in virtual time.
    fn cancel_in_virtual_time(&self, index: usize, node: NodeRef) {
        self.cancel(index, node);
        self.core.refresh_and_replan(NonNull::from(self.shard(index)));
    }

    /// Turns the engine, as a driver that sleeps until it is notified or until the time that its last turn returned.
    fn turn(&self, now: Time) -> Turn {
        self.notified.swap(false, Ordering::AcqRel);
        self.core.turn(now)
    }

    /// Asserts that the driver wakes up at `at` or before, by its plan or because it was notified after its last turn.
    #[track_caller]
    fn assert_wakes_by(&self, last: Turn, at: Time) {
        let planned = last.more || last.next.is_some_and(|next| next <= at);
        assert!(
            planned || self.notified.load(Ordering::Acquire),
            "the driver sleeps until {:?}, and past {at:?}",
            last.next
        );
    }
}

fn noop() -> Waker {
    Waker::noop().clone()
}

/// Arms a timer while the driver, which had nothing to do before, makes a turn.
fn race(slack: SlackBits) {
    explore(move || {
        let driven = DrivenCore::new(1, None);
        assert_eq!(driven.turn(Time::ZERO).next, None);
        let armer = {
            let driven = driven.clone();
            thread::spawn(move || driven.arm(0, DUE, slack, noop()).expect("an open engine arms"))
        };
        let last = driven.turn(NOW);
        let node = armer.join().unwrap();
        driven.assert_wakes_by(last, DUE);
        assert_eq!(driven.turn(DUE).fired, 1);
        driven.cancel(0, node);
    });
}

#[test]
fn d39_d40_no_wake_up_is_missed_by_a_driver_that_is_about_to_sleep() {
    race(SlackBits::ADAPTIVE);
}

#[test]
fn d39_d40_no_exact_wake_up_is_missed_by_a_driver_that_is_about_to_sleep() {
    race(Slack::exact().bits());
}

#[test]
fn d39_no_wake_up_is_missed_by_a_driver_that_plans_for_a_later_timer() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, None);
        let late = driven.arm(0, LATER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        assert_eq!(driven.turn(Time::ZERO).next, Some(LATER));
        let armer = {
            let driven = driven.clone();
            thread::spawn(move || driven.arm(0, DUE, SlackBits::ADAPTIVE, noop()).expect("an open engine arms"))
        };
        let last = driven.turn(NOW);
        let node = armer.join().unwrap();
        driven.assert_wakes_by(last, DUE);
        assert_eq!(driven.turn(DUE).fired, 1);
        [node, late].into_iter().for_each(|node| driven.cancel(0, node));
    });
}

#[test]
fn d39_no_wake_up_is_missed_while_another_timer_fires() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, None);
        let early = driven.arm(0, EARLIER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        assert_eq!(driven.turn(Time::ZERO).next, Some(EARLIER));
        let armer = {
            let driven = driven.clone();
            thread::spawn(move || driven.arm(0, DUE, SlackBits::ADAPTIVE, noop()).expect("an open engine arms"))
        };
        let last = driven.turn(EARLIER);
        assert_eq!(last.fired, 1);
        let node = armer.join().unwrap();
        driven.assert_wakes_by(last, DUE);
        assert_eq!(driven.turn(DUE).fired, 1);
        [node, early].into_iter().for_each(|node| driven.cancel(0, node));
    });
}

#[test]
fn d39_no_wake_up_is_missed_of_two_shards() {
    explore_up_to(2, || {
        let driven = DrivenCore::new(2, None);
        let armer = {
            let driven = driven.clone();
            thread::spawn(move || driven.arm(1, DUE, SlackBits::ADAPTIVE, noop()).expect("an open engine arms"))
        };
        let driver = {
            let driven = driven.clone();
            thread::spawn(move || driven.turn(NOW))
        };
        let mine = driven.arm(0, LATER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        let theirs = armer.join().unwrap();
        let last = driver.join().unwrap();
        driven.assert_wakes_by(last, DUE);
        assert_eq!((driven.turn(DUE).fired, driven.turn(LATER).fired), (1, 1));
        driven.cancel(0, mine);
        driven.cancel(1, theirs);
    });
}

#[test]
fn d39_no_move_to_an_earlier_deadline_is_missed() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, None);
        let node = driven.arm(0, LATER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        assert_eq!(driven.turn(Time::ZERO).next, Some(LATER));
        let mover = {
            let driven = driven.clone();
            thread::spawn(move || {
                let shard = driven.shard(0);
                let moved = local(shard, Access::Owner).move_timer(&handle(node), DUE);
                let notify_driver = moved.expect("it was not due");
                driven.notify_driver(shard, notify_driver);
            })
        };
        let last = driven.turn(NOW);
        mover.join().unwrap();
        driven.assert_wakes_by(last, DUE);
        assert_eq!(driven.turn(DUE).fired, 1);
        driven.cancel(0, node);
    });
}

#[test]
fn d39_d41_an_arm_that_is_refused_finds_the_engine_closed() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, None);
        let tally = WakerTally::new();
        let shutdown = {
            let driven = driven.clone();
            thread::spawn(move || driven.core.shut_down())
        };
        let node = driven.arm(0, DUE, SlackBits::ADAPTIVE, tally.waker());
        assert!(node.is_some() || driven.core.is_closed(), "the timer was refused, but the engine is open");
        shutdown.join().unwrap();
        assert_eq!(tally.woken(), usize::from(node.is_some()), "armed, then stopped and woken");
        if let Some(node) = node {
            driven.cancel(0, node);
        }
        tally.assert_none_lost_or_doubled();
        assert_eq!(driven.core.stats().pending, 0);
    });
}

#[test]
fn d39_a_driver_that_is_about_to_sleep_does_not_miss_shutdown() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, None);
        let driver = {
            let driven = driven.clone();
            thread::spawn(move || {
                driven.turn(NOW);
                driven.core.is_closed()
            })
        };
        driven.core.shut_down();
        let has_seen = driver.join().unwrap();
        assert!(has_seen || driven.notified.load(Ordering::Acquire), "the driver would sleep for ever");
    });
}

#[test]
fn d39_p7_a_sleep_that_waits_for_a_slot_is_woken_by_shutdown() {
    explore_up_to(3, || {
        let driven = DrivenCore::new(1, Some(1));
        let capacity = driven.core.capacity.as_ref().expect("asked for above");
        assert!(capacity.take());
        let shutdown = {
            let driven = driven.clone();
            thread::spawn(move || driven.core.shut_down())
        };
        let tally = WakerTally::new();
        // As in the poll of an entry that finds the engine full.
        let claim = capacity.take_or_wait(END, tally.waker());
        let has_seen = driven.core.is_closed();
        shutdown.join().unwrap();
        assert!(matches!(claim, Claim::Wait(_)), "no slot was given back");
        assert!(has_seen || tally.woken() > 0, "the sleep would wait for ever");
    });
}

#[test]
fn d64_d39_a_driver_that_is_about_to_sleep_does_not_miss_the_deadline_of_a_sleep_that_waits_for_a_slot() {
    explore(|| {
        let driven = DrivenCore::new(1, Some(1));
        let capacity = driven.core.capacity.as_ref().expect("asked for above");
        assert!(capacity.take());
        assert_eq!(driven.turn(Time::ZERO).next, None);
        let tally = WakerTally::new();
        let waiter = {
            let driven = driven.clone();
            thread::spawn(move || {
                let capacity = driven.core.capacity.as_ref().expect("asked for above");
                let claim = capacity.take_or_wait(END, tally.waker());
                driven.core.tell_of_waits();
                claim
            })
        };
        let last = driven.turn(NOW);
        let claim = waiter.join().unwrap();
        assert!(matches!(claim, Claim::Wait(_)), "no slot was given back");
        driven.assert_wakes_by(last, DUE);
        driven.turn(DUE);
        assert_eq!(tally.woken(), 1);
    });
}

#[test]
fn e2_a_virtual_time_driver_waits_for_the_timers_that_are_left_while_one_timer_is_cancelled_and_another_is_armed() {
    explore_up_to(3, || {
        let driven = DrivenCore::virtual_time(2);
        let early = driven.arm(0, EARLIER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        assert_eq!(driven.turn(Time::ZERO).next, Some(EARLIER));
        let armer = {
            let driven = driven.clone();
            thread::spawn(move || driven.arm(1, DUE, SlackBits::ADAPTIVE, noop()).expect("an open engine arms"))
        };
        driven.cancel_in_virtual_time(0, early);
        let node = armer.join().unwrap();
        assert_eq!(driven.core.driver.alarm_is_set_to(), DUE);
        driven.cancel_in_virtual_time(1, node);
        assert_eq!(driven.core.driver.alarm_is_set_to(), Time::NEVER);
    });
}

#[test]
fn e2_a_virtual_time_driver_that_is_about_to_sleep_does_not_wait_for_a_timer_that_is_cancelled() {
    explore_up_to(3, || {
        let driven = DrivenCore::virtual_time(2);
        let node = driven.arm(0, DUE, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        let other = driven.arm(1, LATER, SlackBits::ADAPTIVE, noop()).expect("an open engine arms");
        let canceller = {
            let driven = driven.clone();
            thread::spawn(move || driven.cancel_in_virtual_time(0, node))
        };
        while driven.turn(NOW).more {}
        canceller.join().unwrap();
        assert_eq!(driven.core.driver.alarm_is_set_to(), LATER);
        driven.cancel(1, other);
    });
}
