//! `NamedTimers::restart`, `start_if_fewer` and `renew`: each is one step.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use support::{Outcomes, Task, manual, ms};
use tourbillon::{ArmError, NamedTimers, Outcome, Slack};

#[test]
fn e6_a_restart_cancels_all_timers_of_the_name_and_starts_one() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    assert_eq!(timers.restart("a", ms(10), outcomes.callback(1)), Ok(0));
    timers.start("a", ms(10), outcomes.callback(2)).unwrap();
    timers.start("b", ms(10), outcomes.callback(3)).unwrap();
    assert_eq!(timers.restart("a", ms(20), outcomes.callback(4)), Ok(2));
    assert_eq!(outcomes.take(), [], "no callback runs inside the call");
    assert_eq!((timers.count("a"), timers.len()), (1, 2));
    engine.advance(ms(15));
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled), (2, Outcome::Cancelled), (3, Outcome::Fired)]);
    engine.advance(ms(5));
    assert_eq!((outcomes.take(), timers.is_empty()), (vec![(4, Outcome::Fired)], true));
}

#[test]
fn e6_a_timer_that_is_restarted_again_and_again_fires_once_at_the_end() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    for number in 0..100 {
        assert_eq!(timers.restart("idle", ms(30), outcomes.callback(number)), Ok(usize::from(number > 0)));
        engine.advance(ms(29));
    }
    let ended = outcomes.take();
    assert_eq!(ended.len(), 99);
    assert!(ended.iter().all(|(_, outcome)| *outcome == Outcome::Cancelled));
    engine.advance(ms(1));
    assert_eq!(outcomes.take(), [(99, Outcome::Fired)]);
}

#[test]
fn e6_d26_a_restart_of_many_timers_ends_each_of_them_once() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    for number in 0..10_000 {
        timers.start("many", ms(10), outcomes.callback(number)).unwrap();
    }
    assert_eq!(timers.restart("many", ms(20), outcomes.callback(10_000)), Ok(10_000));
    assert_eq!((timers.count("many"), timers.len()), (1, 1));
    engine.advance(ms(30));
    let ended = outcomes.take();
    assert_eq!(ended.len(), 10_001);
    assert_eq!(ended.iter().filter(|(_, outcome)| *outcome == Outcome::Cancelled).count(), 10_000);
    assert_eq!(ended.last(), Some(&(10_000, Outcome::Fired)));
}

#[test]
fn e6_w5_a_timer_that_is_created_and_then_cancelled_by_a_restart_is_told_when_it_is_started() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let (late, dropped) = (timers.create("a"), timers.create("a"));
    assert_eq!(timers.restart("a", ms(10), outcomes.callback(1)), Ok(2));
    drop(dropped);
    late.start(ms(10), outcomes.callback(2)).unwrap();
    engine.turn();
    assert_eq!(outcomes.take(), [(2, Outcome::Cancelled)]);
    assert_eq!((timers.len(), timers.count("a")), (1, 1));
}

#[test]
fn e6_a_future_of_a_restarted_name_is_told_that_it_was_cancelled() {
    let engine = manual();
    let timers = NamedTimers::on(&engine);
    let mut wait = Box::pin(timers.create("a").wait(ms(10)).unwrap());
    let task = Task::new();
    assert!(task.poll(wait.as_mut()).is_pending());
    assert_eq!(timers.restart("a", ms(20), |_| ()), Ok(1));
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(wait.as_mut()), std::task::Poll::Ready(Outcome::Cancelled));
}

#[test]
fn e6_p7_a_restart_takes_the_room_of_the_timers_that_it_cancels() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::builder().engine(&engine).capacity(2).build();
    timers.start("a", ms(10), outcomes.callback(1)).unwrap();
    timers.start("b", ms(10), outcomes.callback(2)).unwrap();
    assert_eq!(timers.restart("c", ms(10), outcomes.callback(3)), Err(ArmError::Full { capacity: 2 }));
    assert_eq!(timers.restart("a", ms(10), outcomes.callback(4)), Ok(1));
    assert_eq!((timers.len(), timers.count("b")), (2, 1), "a restart that is refused cancels nothing");
    engine.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled)], "and its callback is not called");
    let none = NamedTimers::builder().engine(&engine).capacity(0).build();
    assert_eq!(none.restart("a", ms(1), |_| ()), Err(ArmError::Full { capacity: 0 }));
}

#[test]
fn e6_fewer_than_the_limit_are_started_and_no_more() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let start = |name: &str, limit, number| timers.start_if_fewer(name, limit, ms(10), outcomes.callback(number));
    assert_eq!((start("a", 2, 1), start("a", 2, 2), start("a", 2, 3)), (Ok(true), Ok(true), Ok(false)));
    assert_eq!((start("b", 1, 4), start("c", 0, 5)), (Ok(true), Ok(false)), "each name has its own count");
    assert_eq!((timers.len(), timers.count("c")), (3, 0));
    engine.advance(ms(10));
    let fired: Vec<_> = [1, 2, 4].map(|number| (number, Outcome::Fired)).into();
    assert_eq!(outcomes.take(), fired, "the callbacks of the others are not called");
    assert_eq!(start("a", 2, 6), Ok(true), "timers that have ended do not count");
    let _created = timers.create("a");
    assert_eq!(start("a", 2, 7), Ok(false), "timers that are not started count");
}

#[test]
fn e6_after_a_stop_both_are_refused() {
    let engine = manual();
    let timers = NamedTimers::on(&engine);
    timers.start("a", ms(10), |_| ()).unwrap();
    assert_eq!(timers.shutdown(), 1);
    assert_eq!(timers.restart("a", ms(1), |_| ()), Err(ArmError::Stopped));
    assert_eq!(timers.start_if_fewer("a", 5, ms(1), |_| ()), Err(ArmError::Stopped));
    let timers = NamedTimers::on(&engine);
    engine.shutdown();
    assert_eq!(timers.restart("a", ms(1), |_| ()), Err(ArmError::Stopped));
    assert_eq!(timers.start_if_fewer("a", 0, ms(1), |_| ()), Err(ArmError::Stopped));
}

#[test]
fn e6_a_callback_restarts_its_own_name() {
    let engine = manual();
    let timers = NamedTimers::on(&engine);
    let log: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (handle, noted) = (timers.clone(), Arc::clone(&log));
    timers
        .start("a", ms(10), move |_| {
            let last = Arc::clone(&noted);
            let cancelled = handle.restart("a", ms(10), move |_| last.lock().unwrap().push(7)).unwrap();
            noted.lock().unwrap().push(cancelled);
        })
        .unwrap();
    engine.advance(ms(20));
    assert_eq!(*log.lock().unwrap(), [0, 7]);
}

#[test]
fn e6_of_many_threads_that_restart_a_name_each_timer_is_cancelled_by_one() {
    for _ in 0..100 {
        let engine = manual();
        let timers = NamedTimers::on(&engine);
        let (cancelled, told) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let told = Arc::clone(&told);
                        let callback = move |outcome| {
                            assert_eq!(outcome, Outcome::Cancelled);
                            told.fetch_add(1, Ordering::SeqCst);
                        };
                        let count = timers.restart("a", Duration::MAX, callback).unwrap();
                        cancelled.fetch_add(count, Ordering::SeqCst);
                        assert_eq!(timers.count("a"), 1, "never none, and never two");
                    }
                });
            }
        });
        while engine.turn().more {}
        assert_eq!((cancelled.into_inner(), timers.len()), (199, 1));
        assert_eq!(told.load(Ordering::SeqCst), 199);
    }
}

#[test]
fn e6_of_many_threads_exactly_as_many_start_as_the_limit_allows() {
    for _ in 0..200 {
        let engine = manual();
        let timers = NamedTimers::on(&engine);
        let started = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let is_started = timers.start_if_fewer("a", 3, Duration::MAX, |_| ()).unwrap();
                        started.fetch_add(usize::from(is_started), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((started.into_inner(), timers.count("a")), (3, 3));
    }
}

#[test]
fn e6_e7_a_restart_and_a_start_if_fewer_can_be_awaited_and_take_a_deadline() {
    let (engine, task) = (manual(), Task::new());
    let timers = NamedTimers::on(&engine);
    let mut first = Box::pin(timers.wait_if_fewer("a", 1, ms(10)).unwrap().expect("there is none"));
    assert!(timers.wait_if_fewer("a", 1, ms(10)).unwrap().is_none());
    let mut second = Box::pin(timers.restart_wait("a", ms(20)).unwrap());
    assert_eq!(task.poll(first.as_mut()), std::task::Poll::Ready(Outcome::Cancelled));
    assert!(task.poll(second.as_mut()).is_pending());
    engine.advance(ms(20));
    assert_eq!(task.poll(second.as_mut()), std::task::Poll::Ready(Outcome::Fired));
    drop(timers.restart_wait("a", ms(10)).unwrap());
    assert!(timers.is_empty(), "dropping the future removes the timer");

    let outcomes = Outcomes::default();
    let deadline = engine.sleep(ms(5)).deadline();
    assert_eq!(timers.start_if_fewer_at("a", 1, deadline, outcomes.callback(1)), Ok(true));
    assert_eq!(timers.start_if_fewer_at("a", 1, deadline, outcomes.callback(2)), Ok(false));
    assert_eq!(timers.restart_at("a", deadline, outcomes.callback(3)), Ok(1));
    engine.advance(ms(5));
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled), (3, Outcome::Fired)]);
}

#[test]
fn e6_renewed_timers_fire_at_the_new_deadline_with_their_own_callbacks() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    timers.start("a", ms(10), outcomes.callback(1)).unwrap();
    timers.start("a", ms(12), outcomes.callback(2)).unwrap();
    timers.start("b", ms(10), outcomes.callback(3)).unwrap();
    let _not_started = timers.create("a");
    engine.advance(ms(9));
    assert_eq!(timers.renew("a", ms(10)), 2, "what is not started has no deadline");
    engine.advance(ms(9));
    assert_eq!(outcomes.take(), [(3, Outcome::Fired)]);
    engine.advance(ms(1));
    assert_eq!(outcomes.take(), [(1, Outcome::Fired), (2, Outcome::Fired)], "in the order in which they were started");
    assert_eq!((timers.renew("a", ms(10)), timers.renew("nobody", ms(10))), (0, 0));
    assert_eq!(timers.count("a"), 1);
}

#[test]
fn e6_p5_a_renewal_moves_deadlines_earlier_to_the_past_and_to_never() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    timers.start("a", ms(1_000), outcomes.callback(1)).unwrap();
    assert_eq!(timers.renew("a", ms(5)), 1);
    engine.advance(ms(5));
    assert_eq!(outcomes.take(), [(1, Outcome::Fired)]);

    timers.start("b", ms(10), outcomes.callback(2)).unwrap();
    assert_eq!(timers.renew("b", Duration::MAX), 1);
    engine.advance(Duration::from_secs(3600));
    assert_eq!((outcomes.take(), timers.renew("b", Duration::ZERO)), (vec![], 1));
    engine.turn();
    assert_eq!(outcomes.take(), [(2, Outcome::Fired)]);

    timers.start("c", Duration::MAX, outcomes.callback(3)).unwrap();
    let past = engine.sleep(ms(0)).deadline() - ms(100);
    assert_eq!(timers.renew_at("c", past), 1);
    engine.turn();
    assert_eq!(outcomes.take(), [(3, Outcome::Fired)]);
}

#[test]
fn e6_p2_a_timer_that_is_due_and_has_not_fired_can_be_renewed() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    timers.start("a", ms(10), outcomes.callback(1)).unwrap();
    engine.clock().advance(ms(20));
    assert_eq!(timers.renew("a", ms(10)), 1, "no turn has fired it");
    engine.turn();
    assert_eq!(outcomes.take(), []);
    engine.advance(ms(10));
    assert_eq!(outcomes.take(), [(1, Outcome::Fired)]);
}

#[test]
fn e6_d26_many_timers_are_renewed_in_one_step() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    for number in 0..10_000 {
        timers.start("many", ms(10 + number % 7), outcomes.callback(number)).unwrap();
    }
    assert_eq!(timers.renew("many", ms(100)), 10_000);
    engine.advance(ms(99));
    assert_eq!(outcomes.take(), []);
    engine.advance(ms(1));
    let fired: Vec<_> = (0..10_000).map(|number| (number, Outcome::Fired)).collect();
    assert_eq!(outcomes.take(), fired);
}

#[test]
fn e6_w7_futures_are_renewed_too_and_after_a_stop_nothing_is() {
    let (engine, task) = (manual(), Task::new());
    let timers = NamedTimers::on(&engine);
    let mut wait = Box::pin(timers.create("a").wait(ms(10)).unwrap());
    assert!(task.poll(wait.as_mut()).is_pending());
    assert_eq!(timers.renew("a", ms(20)), 1);
    engine.advance(ms(19));
    assert!(task.poll(wait.as_mut()).is_pending());
    engine.advance(ms(1));
    assert_eq!(task.poll(wait.as_mut()), std::task::Poll::Ready(Outcome::Fired));
    timers.start("a", ms(10), |_| ()).unwrap();
    timers.shutdown();
    assert_eq!(timers.renew("a", ms(10)), 0);
    let timers = NamedTimers::on(&engine);
    timers.start("a", ms(10), |_| ()).unwrap();
    engine.shutdown();
    assert_eq!(timers.renew("a", ms(10)), 0);
}

#[test]
fn e6_of_many_threads_that_renew_cancel_and_start_each_timer_ends_once_and_counts_are_true() {
    for _ in 0..20 {
        let engine = manual();
        let timers = NamedTimers::on(&engine);
        let (cancelled, told) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (timers, cancelled, told) = (&timers, &cancelled, Arc::clone(&told));
                scope.spawn(move || {
                    for number in 0..400 {
                        let told = Arc::clone(&told);
                        let callback = move |_| _ = told.fetch_add(1, Ordering::SeqCst);
                        timers.start("a", Duration::from_secs(1), callback).unwrap();
                        assert!(timers.renew("a", Duration::from_secs(60)) <= 1600);
                        if (number + thread) % 8 == 0 {
                            cancelled.fetch_add(timers.cancel_up_to("a", 4), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let left = timers.renew("a", ms(5));
        assert_eq!(left + cancelled.into_inner(), 1600);
        assert_eq!(left, timers.count("a"));
        engine.advance(ms(5));
        assert_eq!((told.load(Ordering::SeqCst), timers.len()), (1600, 0));
    }
}

#[test]
fn e7_p4_named_timers_have_a_slack_of_their_own() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let slack = Duration::from_nanos(1 << 24);
    let timers = NamedTimers::builder().engine(&engine).slack(Slack::up_to(slack)).build();
    timers.start("a", ms(1), outcomes.callback(1)).unwrap();
    let next = engine.turn().time_left().expect("a timer is pending");
    assert!(next >= ms(1) && next <= ms(1) + slack, "{next:?}");
    engine.clock().advance(ms(1) + slack);
    engine.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Fired)]);
}
