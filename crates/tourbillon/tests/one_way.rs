//! What all surfaces say in the same way: outcomes, engines, slack, arm and disarm, times.

mod support;

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use support::{Task, is_elapsed, manual, ms, now};
use tourbillon::scheduler::{Plan, Scheduler};
use tourbillon::time::{Deadline, MissedTickBehavior, interval, sleep, timeout};
use tourbillon::{ArmError, BuildError, Clock, DelayQueue, Engine, Outcome, Slack, Timer};

#[test]
fn e7_a_match_on_an_outcome_names_three_ways_and_each_is_written_as_a_word() {
    for outcome in [Outcome::Fired, Outcome::Cancelled, Outcome::Stopped] {
        let word = match outcome {
            Outcome::Fired => "fired",
            Outcome::Cancelled => "cancelled",
            Outcome::Stopped => "stopped",
        };
        assert_eq!(outcome.to_string(), word);
        assert_eq!(format!("{outcome:>10}"), format!("{word:>10}"));
    }
}

#[test]
fn e7_a_turn_says_how_long_until_the_next_one() {
    let engine = manual();
    assert_eq!(engine.turn().time_left(), None);
    let _sleep = engine.try_sleep(ms(5)).unwrap();
    assert_eq!(engine.turn().time_left(), Some(ms(5)));
    engine.advance(ms(2));
    assert_eq!(engine.turn().time_left(), Some(ms(3)));
}

#[test]
fn e7_a_turn_that_leaves_due_timers_says_that_no_time_is_left() {
    let engine = manual();
    let _sleeps: Vec<_> = (0..100_000).map(|_| engine.try_sleep(ms(1)).unwrap()).collect();
    engine.clock().advance(ms(1));
    let turn = engine.turn();
    assert!(turn.more, "{turn:?}");
    assert_eq!(turn.time_left(), Some(Duration::ZERO));
}

#[test]
fn e7_a_manual_clock_is_read_and_set_by_durations() {
    let clock = Clock::manual();
    let engine = Engine::builder().clock(clock.clone()).build().unwrap();
    clock.set_elapsed(Duration::from_secs(3600));
    assert_eq!(clock.elapsed(), Duration::from_secs(3600));
    let start = engine.now();
    assert_eq!(engine.advance(ms(7)), 0);
    assert_eq!((engine.now() - start, clock.elapsed()), (ms(7), Duration::from_secs(3600) + ms(7)));
    assert_eq!(engine.sleep(ms(1)).deadline(), engine.now() + ms(1));
    clock.set_elapsed(Duration::MAX);
    let last = clock.elapsed();
    assert!(last > Duration::from_secs(500 * 365 * 24 * 3600), "{last:?}");
    clock.set_elapsed(Duration::ZERO);
    assert_eq!(clock.elapsed(), Duration::ZERO);
    Clock::monotonic().set_elapsed(Duration::ZERO);
    assert!(Clock::monotonic().elapsed() > Duration::ZERO, "only a manual clock can be set");
}

#[test]
fn e7_a_timeout_an_interval_and_a_queue_follow_the_engine_that_they_are_made_on() {
    let (engine, task) = (manual(), Task::new());
    let mut timeout = pin!(engine.timeout(ms(5), pending::<()>()));
    let mut timeout_at = pin!(engine.timeout_at(engine.now() + ms(5), pending::<()>()));
    let mut tried = pin!(engine.try_timeout(ms(5), pending::<()>()).ok().unwrap());
    let mut ticks = engine.interval_at(engine.now() + ms(5), ms(5));
    let mut queue = DelayQueue::on(&engine);
    let key = queue.insert("item", ms(5));
    assert_eq!(queue.deadline(&key), engine.now() + ms(5));
    for elapses in [false, true] {
        assert_eq!(is_elapsed(task.poll(timeout.as_mut())), elapses);
        assert_eq!(is_elapsed(task.poll(timeout_at.as_mut())), elapses);
        assert_eq!(is_elapsed(task.poll(tried.as_mut())), elapses);
        assert_eq!(task.poll(pin!(ticks.tick())).is_ready(), elapses);
        assert_eq!(task.poll(pin!(queue.next())).is_ready(), elapses);
        engine.advance(ms(5));
    }
}

#[test]
fn e7_each_surface_on_an_engine_that_was_shut_down_says_so() {
    let (engine, task) = (manual(), Task::new());
    let mut queue = DelayQueue::on(&engine);
    queue.insert((), ms(5));
    let mut ticks = engine.interval_at(engine.now() + ms(5), ms(5));
    engine.shutdown();
    let Poll::Ready(Err(elapsed)) = task.poll(pin!(engine.timeout(ms(5), pending::<()>()))) else { panic!("it waits") };
    assert!(elapsed.is_stopped());
    assert_eq!(
        engine.try_timeout(ms(5), pending::<()>()).map(drop).map_err(|(error, _)| error),
        Err(ArmError::Stopped)
    );
    assert!(task.poll(pin!(ticks.tick())).is_ready() && ticks.is_stopped());
    assert!(task.poll(pin!(queue.next())).is_ready() && queue.is_stopped());
}

#[test]
fn e7_an_interval_on_an_engine_refuses_a_period_of_zero() {
    let engine = manual();
    assert!(engine.try_interval(Duration::ZERO).is_err());
    assert!(engine.try_interval_at(engine.now(), Duration::ZERO).is_err());
    let refused = catch_unwind(AssertUnwindSafe(|| engine.interval(Duration::ZERO))).unwrap_err();
    assert_eq!(refused.downcast_ref::<String>().map(String::as_str), Some("`period` must be non-zero."));
}

/// One millisecond of slack is a grid of 2^19 ns.
const GRID: Duration = Duration::from_nanos(1 << 19);

/// Returns an engine whose clock shows a multiple of the grid.
fn on_grid() -> Engine {
    let engine = Engine::builder().clock(Clock::manual()).slack(Slack::exact()).build().unwrap();
    engine.clock().set_elapsed(GRID * 1000);
    engine
}

#[test]
fn e7_slack_of_its_own_makes_each_surface_late_to_the_same_grid() {
    let (late, early) = (Slack::up_to(ms(1)), Duration::from_nanos(1));
    let before = GRID - early - early;
    let fires_on_grid = |name: &str, is_ready: &mut dyn FnMut(&Engine) -> bool, engine: &Engine| {
        assert!(!is_ready(engine), "{name} has not begun");
        engine.advance(early + before);
        assert!(!is_ready(engine), "{name} fired before the next point of the grid");
        engine.advance(early);
        assert!(is_ready(engine), "{name} is later than its slack allows");
    };
    let task = Task::new();
    let engine = on_grid();
    let mut sleep = pin!(engine.sleep(early).slack(late));
    fires_on_grid("sleep", &mut |_| task.poll(sleep.as_mut()).is_ready(), &engine);
    let mut timeout = pin!(engine.timeout(early, pending::<()>()).slack(late));
    fires_on_grid("timeout", &mut |_| task.poll(timeout.as_mut()).is_ready(), &engine);
    let mut ticks = engine.interval_at(engine.now() + early, ms(60)).slack(late);
    fires_on_grid("interval", &mut |_| task.poll(pin!(ticks.tick())).is_ready(), &engine);
    let mut scope = {
        let _entered = engine.enter();
        Box::pin(Deadline::after(early).scope(pending::<()>()).slack(late))
    };
    fires_on_grid("scope", &mut |_| task.poll(scope.as_mut()).is_ready(), &engine);
    let timer = Timer::on(&engine).slack(late);
    timer.expires_after(early);
    let mut wait = pin!(timer.wait());
    fires_on_grid("timer", &mut |_| task.poll(wait.as_mut()).is_ready(), &engine);
    // A poll of a queue returns whatever has expired, so the wake-up is observed instead.
    let (mut queue, waiting) = (DelayQueue::on(&engine).slack(late), Task::new());
    queue.insert((), early);
    assert!(waiting.poll(pin!(queue.next())).is_pending());
    fires_on_grid("queue", &mut |_| waiting.wakes() > 0, &engine);
    assert!(waiting.poll(pin!(queue.next())).is_ready());
}

#[test]
fn e7_a_disarmed_surface_waits_and_an_armed_one_ends_at_the_deadline_that_it_kept() {
    let (engine, task) = (manual(), Task::new());
    let start = engine.now();
    let mut sleep = pin!(engine.sleep(ms(5)));
    let mut timeout = pin!(engine.timeout(ms(5), pending::<()>()));
    let mut ticks = engine.interval_at(start + ms(5), ms(5));
    let timer = Timer::on(&engine);
    timer.expires_at(start + ms(5));
    let wait = timer.wait();
    let handle = wait.handle();
    assert!(task.poll(sleep.as_mut()).is_pending() && task.poll(timeout.as_mut()).is_pending());
    assert!(task.poll(pin!(ticks.tick())).is_pending() && handle.is_pending());
    sleep.as_mut().disarm();
    timeout.as_mut().disarm();
    ticks.disarm();
    timer.disarm();
    assert_eq!([sleep.is_armed(), timeout.is_armed(), ticks.is_armed(), timer.is_armed()], [false; 4]);
    engine.advance(ms(12));
    assert_eq!((task.wakes(), handle.is_pending()), (0, true));
    assert!(task.poll(sleep.as_mut()).is_pending() && task.poll(timeout.as_mut()).is_pending());
    assert!(task.poll(pin!(ticks.tick())).is_pending());
    assert_eq!(
        (sleep.deadline(), timeout.deadline(), timer.expiry()),
        (start + ms(5), start + ms(5), Some(start + ms(5)))
    );

    sleep.as_mut().arm();
    timeout.as_mut().arm();
    ticks.arm();
    timer.arm();
    assert_eq!([sleep.is_armed(), timeout.is_armed(), ticks.is_armed(), timer.is_armed()], [true; 4]);
    assert!(task.poll(sleep.as_mut()).is_ready() && is_elapsed(task.poll(timeout.as_mut())));
    assert_eq!(task.poll(pin!(ticks.tick())), Poll::Ready(start + ms(5)));
    assert_eq!(task.poll(pin!(ticks.tick())), Poll::Ready(start + ms(10)), "missed ticks are made up for");
    assert_eq!(task.poll(pin!(wait)), Poll::Ready(Outcome::Fired));
}

#[test]
fn e7_a_surface_armed_before_its_deadline_ends_then_and_not_earlier() {
    let (engine, task) = (manual(), Task::new());
    let mut timeout = pin!(engine.timeout(ms(5), pending::<()>()));
    let mut ticks = engine.interval_at(engine.now() + ms(5), ms(5));
    let timer = Timer::on(&engine);
    timer.expires_after(ms(5));
    let mut wait = pin!(timer.wait());
    timeout.as_mut().disarm();
    ticks.disarm();
    timer.disarm();
    engine.advance(ms(2));
    timeout.as_mut().arm();
    ticks.arm();
    timer.arm();
    for left in [3, 0] {
        let is_due = left == 0;
        assert_eq!(is_elapsed(task.poll(timeout.as_mut())), is_due);
        assert_eq!(task.poll(pin!(ticks.tick())).is_ready(), is_due);
        assert_eq!(task.poll(wait.as_mut()).is_ready(), is_due);
        engine.advance(ms(left));
    }
}

#[test]
fn e7_a_new_deadline_arms_a_disarmed_surface() {
    let (engine, task) = (manual(), Task::new());
    let mut timeout = pin!(engine.timeout(ms(5), pending::<()>()));
    let mut ticks = engine.interval(ms(5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let timer = Timer::on(&engine);
    timeout.as_mut().disarm();
    ticks.disarm();
    timer.disarm();
    assert!(!timeout.is_armed());
    timeout.as_mut().extend(ms(1));
    assert!(!timeout.is_armed(), "extending moves the deadline and does not arm");
    assert_eq!(timeout.deadline(), engine.now() + ms(6));
    timeout.as_mut().reset(engine.now() + ms(1));
    assert!(timeout.is_armed());
    ticks.reset_after(ms(1));
    timer.expires_after(ms(1));
    let mut wait = pin!(timer.wait());
    assert!(task.poll(timeout.as_mut()).is_pending() && task.poll(pin!(ticks.tick())).is_pending());
    engine.advance(ms(1));
    assert!(is_elapsed(task.poll(timeout.as_mut())) && task.poll(pin!(ticks.tick())).is_ready());
    assert!(task.poll(wait.as_mut()).is_ready());
}

#[test]
fn e7_a_shutdown_ends_what_waits_for_a_disarmed_timer_and_a_cancel_counts_it() {
    let (engine, task) = (manual(), Task::new());
    let timer = Timer::on(&engine);
    timer.disarm();
    let cancelled = timer.wait();
    assert_eq!(timer.cancel(), 1);
    assert_eq!(task.poll(pin!(cancelled)), Poll::Ready(Outcome::Cancelled));
    let mut wait = pin!(timer.wait());
    let mut ticks = engine.interval(ms(5));
    ticks.disarm();
    assert!(task.poll(wait.as_mut()).is_pending() && task.poll(pin!(ticks.tick())).is_pending());
    engine.shutdown();
    assert_eq!(task.poll(wait.as_mut()), Poll::Ready(Outcome::Stopped));
    assert!(task.poll(pin!(ticks.tick())).is_ready() && ticks.is_stopped());
}

#[test]
fn e7_a_function_and_the_method_of_the_entered_engine_do_the_same() {
    let engine = manual();
    let _entered = engine.enter();
    assert_eq!(sleep(ms(3)).deadline(), engine.sleep(ms(3)).deadline());
    assert_eq!(timeout(ms(3), pending::<()>()).deadline(), engine.timeout(ms(3), pending::<()>()).deadline());
    let task = Task::new();
    assert_eq!(task.poll(pin!(interval(ms(3)).tick())), task.poll(pin!(engine.interval(ms(3)).tick())));
    assert_eq!(engine.now(), now(&engine));
}

#[test]
fn e7_an_error_says_what_was_wrong_and_what_to_do() {
    let thread = || std::io::Error::from(std::io::ErrorKind::WouldBlock);
    let errors = [
        (BuildError::NoShards.to_string(), "shards is zero", "set one or more"),
        (BuildError::NoCapacity.to_string(), "capacity is zero", "set one or more"),
        (BuildError::ManualClock.to_string(), "manual clock", "Driver::external()"),
        (BuildError::NoRuntime.to_string(), "Tokio runtime", "build the engine inside one"),
        (BuildError::Thread(thread()).to_string(), "refused", "raise the limits"),
        (ArmError::Full { capacity: 7 }.to_string(), "capacity is 7", "try again"),
        (ArmError::Stopped.to_string(), "shut down", "use one that is running"),
    ];
    for (error, wrong, remedy) in errors {
        assert!(error.contains(wrong) && error.contains(remedy), "{error}");
    }
}

#[test]
fn e7_p4_a_scheduler_has_a_slack_of_its_own_and_its_runs_are_due_exactly() {
    let engine = manual();
    let slack = Duration::from_nanos(1 << 24);
    let jobs = Scheduler::builder().engine(&engine).slack(Slack::up_to(slack)).build().unwrap();
    let (send, runs) = std::sync::mpsc::channel();
    let start = engine.now();
    jobs.schedule("job", Plan::every(ms(1)).times(1), move |run| send.send(run.due()).unwrap()).unwrap();
    let next = engine.turn().time_left().expect("a job is pending");
    assert!(next > ms(1) && next <= ms(1) + slack, "{next:?}");
    engine.clock().advance(ms(1) + slack);
    engine.turn();
    assert_eq!(runs.try_recv(), Ok(start + ms(1)));
}
