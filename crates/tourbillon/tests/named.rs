//! `NamedTimers`: many timers under a name, in virtual time.

mod random;
mod support;

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use random::{Random, seed};
use support::{Outcomes, Paused, Task, assert_shareable, eventually, manual, ms, poll_with, waker, years};
use tourbillon::named::{NamedTimer, NamedWait};
use tourbillon::time::Instant;
use tourbillon::{ArmError, Clock, Engine, NamedTimers, Outcome};

fn fired(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, Outcome)> {
    numbers.into_iter().map(|number| (number, Outcome::Fired)).collect()
}

fn cancelled(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, Outcome)> {
    numbers.into_iter().map(|number| (number, Outcome::Cancelled)).collect()
}

fn stopped(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, Outcome)> {
    numbers.into_iter().map(|number| (number, Outcome::Stopped)).collect()
}

#[test]
fn w4_named_timers_can_be_sent_and_shared() {
    assert_shareable::<NamedTimers>();
    assert_shareable::<NamedTimer>();
    assert_shareable::<NamedWait>();
}

#[test]
fn w4_many_timers_of_one_name_each_fire_at_their_time() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    for number in [3, 1, 2, 1] {
        timers.start("a", ms(number), outcomes.callback(number)).unwrap();
    }
    assert_eq!((timers.count("a"), timers.len(), timers.count("b")), (4, 4, 0));
    engine.advance(ms(1) - Duration::from_nanos(1));
    assert_eq!(outcomes.take(), []);
    engine.advance(Duration::from_nanos(1));
    assert_eq!((outcomes.take(), timers.count("a")), (fired([1, 1]), 2));
    engine.advance(ms(2));
    assert_eq!((outcomes.take(), timers.is_empty(), timers.names()), (fired([2, 3]), true, vec![]));
}

#[test]
fn p7_there_are_never_more_timers_than_the_limit_and_a_timer_that_ends_makes_room() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::builder().engine(&engine).capacity(2).build();
    timers.start("a", ms(1), outcomes.callback(1)).unwrap();
    let created = timers.create("b");
    let full = ArmError::Full { capacity: 2 };
    assert_eq!(timers.start("c", ms(1), outcomes.callback(2)), Err(full));
    let refused = timers.create("d");
    assert_eq!(
        (timers.len(), timers.count("c"), timers.count("d")),
        (2, 0, 0),
        "the names of refused timers are not kept"
    );
    assert_eq!(refused.start(ms(1), outcomes.callback(3)), Err(full));
    // Starting an existing timer takes no more room; a timer that has fired or is dropped frees its own.
    created.start(ms(2), outcomes.callback(4)).unwrap();
    engine.advance(ms(1));
    timers.start("e", ms(1), outcomes.callback(5)).unwrap();
    assert_eq!(timers.start("f", ms(1), outcomes.callback(6)), Err(full));
    assert_eq!(timers.cancel("e"), 1);
    timers.start("g", ms(1), outcomes.callback(7)).unwrap();
    engine.advance(ms(1));
    let outcomes = outcomes.take();
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.starts_with(&[(1, Outcome::Fired), (5, Outcome::Cancelled)]), "{outcomes:?}");
    let nothing = NamedTimers::builder().engine(&engine).capacity(0).build().start("h", ms(1), |_| ());
    assert_eq!(nothing, Err(ArmError::Full { capacity: 0 }));
}

#[test]
fn w4_cancel_ends_all_timers_of_a_name_and_returns_their_number() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    for number in 0..10 {
        let name = if number % 2 == 0 { "even" } else { "odd" };
        timers.start(name, ms(10 - number), outcomes.callback(number)).unwrap();
    }
    assert_eq!((timers.cancel("even"), timers.cancel("even"), timers.cancel("no such name")), (5, 0, 0));
    assert_eq!(outcomes.take(), [], "no callback runs inside the cancel");
    engine.turn();
    assert_eq!(outcomes.take(), cancelled([0, 2, 4, 6, 8]));
    engine.advance(ms(3));
    assert_eq!(outcomes.take(), fired([9, 7]));
    assert_eq!(timers.cancel("odd"), 3, "timers that have fired do not count");
    engine.advance(ms(100));
    assert_eq!(outcomes.take(), cancelled([1, 3, 5]));
}

#[test]
fn w4_cancel_up_to_takes_the_oldest_first_by_creation() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let late = timers.create("a");
    for number in 1..6 {
        timers.start("a", ms(10 - number), outcomes.callback(number)).unwrap();
    }
    late.start(ms(1), outcomes.callback(0)).unwrap();
    assert_eq!(timers.cancel_up_to("a", 0), 0);
    assert_eq!((timers.cancel_up_to("a", 2), timers.count("a")), (2, 4));
    engine.turn();
    assert_eq!(outcomes.take(), cancelled([0, 1]));
    assert_eq!(timers.cancel_up_to("a", 100), 4);
    engine.turn();
    assert_eq!(outcomes.take(), cancelled([2, 3, 4, 5]));
}

#[test]
fn w5_a_timer_cancelled_before_its_start_completes_as_cancelled_when_it_is_started() {
    let (engine, outcomes, task) = (manual(), Outcomes::default(), Task::new());
    let timers = NamedTimers::on(&engine);
    let (one, two, three) = (timers.create("a"), timers.create("a"), timers.create("a"));
    assert_eq!((timers.cancel_up_to("a", 2), timers.count("a")), (2, 1));
    assert_eq!(one.start(ms(10), outcomes.callback(1)), Ok(()));
    assert_eq!(outcomes.take(), [], "D35: no callback runs inside the start");
    assert_eq!(task.poll(pin!(two.wait(ms(10)).unwrap())), Poll::Ready(Outcome::Cancelled));
    assert_eq!(timers.cancel("a"), 1);
    three.start_at(Instant::now(), outcomes.callback(3)).unwrap();
    engine.turn();
    assert_eq!((outcomes.take(), timers.len()), (cancelled([1, 3]), 0));
}

#[test]
fn w6_a_timer_that_is_never_started_leaves_nothing_behind_and_runs_no_callback() {
    let engine = manual();
    let timers = NamedTimers::on(&engine);
    let (one, two) = (timers.create("a"), timers.create("a"));
    assert_eq!((timers.count("a"), timers.names()), (2, vec!["a".into()]));
    drop(one);
    assert_eq!((timers.count("a"), timers.cancel("a")), (1, 1));
    drop(two);
    for round in 0..if cfg!(miri) { 300 } else { 10_000 } {
        drop(timers.create(&format!("name {round}")));
    }
    assert_eq!((timers.len(), timers.names()), (0, vec![]));
    assert_eq!(engine.stats().armed, 0, "no timer was armed");
}

#[test]
fn w7_stop_ends_every_timer_each_with_its_one_callback() {
    let (engine, outcomes, task) = (manual(), Outcomes::default(), Task::new());
    let timers = NamedTimers::on(&engine);
    for number in 0..1000 {
        timers.start(&format!("name {}", number % 7), ms(1 + number), outcomes.callback(number)).unwrap();
    }
    let mut wait = timers.create("future").wait(ms(5)).unwrap();
    assert!(task.poll(Pin::new(&mut wait)).is_pending());
    let unstarted = timers.create("unstarted");
    engine.advance(ms(1));
    assert_eq!(timers.shutdown(), 1000);
    assert_eq!((timers.len(), timers.shutdown(), timers.is_shutdown()), (1, 0, true), "the timer that is not started");
    assert_eq!((task.poll(Pin::new(&mut wait)), task.wakes()), (Poll::Ready(Outcome::Stopped), 1));
    engine.advance(ms(2000));
    let mut all = outcomes.take();
    assert_eq!(all.remove(0), (0, Outcome::Fired));
    all.sort_by_key(|(number, _)| *number);
    assert_eq!(all, stopped(1..1000));
    assert_eq!(unstarted.start(ms(1), outcomes.callback(0)), Err(ArmError::Stopped));
    assert!(timers.is_empty());
}

#[test]
fn w5_d27_a_counted_cancel_holds_even_if_the_timer_is_started_after_a_stop() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let (one, two) = (timers.create("a"), timers.create("a"));
    assert_eq!((timers.cancel_up_to("a", 1), timers.shutdown()), (1, 0));
    assert_eq!(one.start(ms(1), outcomes.callback(1)), Ok(()));
    assert_eq!(two.start(ms(1), outcomes.callback(2)), Err(ArmError::Stopped));
    engine.turn();
    assert_eq!(outcomes.take(), cancelled([1]));
}

#[test]
fn d32_starting_after_stop_or_shutdown_is_a_clear_error_and_the_callback_is_not_called() {
    let outcomes = Outcomes::default();
    for how in 0..3 {
        let engine = manual();
        let timers = NamedTimers::on(&engine);
        let before = timers.create("a");
        match how {
            0 => assert_eq!(timers.shutdown(), 0),
            1 => engine.shutdown(),
            _ => drop(engine.clone()),
        }
        let engine = if how == 2 {
            drop(engine);
            None
        } else {
            Some(engine)
        };
        assert!(timers.is_shutdown());
        assert_eq!(before.start(ms(1), outcomes.callback(0)), Err(ArmError::Stopped));
        assert_eq!(timers.start("a", ms(1), outcomes.callback(1)), Err(ArmError::Stopped));
        assert_eq!(timers.create("a").start_at(Instant::now(), outcomes.callback(2)), Err(ArmError::Stopped));
        assert!(matches!(timers.create("a").wait(ms(1)), Err(ArmError::Stopped)));
        assert_eq!((timers.len(), timers.cancel("a"), timers.shutdown()), (0, 0, 0));
        engine.inspect(|engine| _ = engine.turn());
    }
    assert_eq!(outcomes.take(), []);
}

#[test]
fn d28_w7_the_engines_shutdown_ends_every_timer_as_stopped() {
    for after in [ms(1000), Duration::MAX] {
        let (engine, outcomes, task) = (manual(), Outcomes::default(), Task::new());
        let timers = NamedTimers::on(&engine);
        (0..1000).for_each(|number| timers.start("a", after, outcomes.callback(number)).unwrap());
        let mut wait = timers.create("b").wait(after).unwrap();
        assert!(task.poll(Pin::new(&mut wait)).is_pending());
        engine.shutdown();
        assert_eq!(outcomes.take(), stopped(0..1000));
        assert_eq!(task.poll(Pin::new(&mut wait)), Poll::Ready(Outcome::Stopped));
        assert_eq!((timers.len(), timers.cancel("a"), timers.shutdown()), (0, 0, 0));
    }
}

#[test]
fn w7_dropping_the_last_handle_cancels_the_pending_timers() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let other = timers.clone();
    other.start("a", ms(10), outcomes.callback(1)).unwrap();
    let unstarted = timers.create("a");
    drop(timers);
    assert_eq!(other.count("a"), 2);
    drop(other);
    engine.turn();
    assert_eq!(outcomes.take(), cancelled([1]));
    assert_eq!(unstarted.start(ms(1), outcomes.callback(2)), Err(ArmError::Stopped));
    engine.advance(ms(100));
    assert_eq!((outcomes.take(), engine.stats().pending), (vec![], 0));
}

#[test]
fn w9_d31_an_infinite_timer_never_fires_and_hides_no_other() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    timers.start("a", Duration::MAX, outcomes.callback(1)).unwrap();
    timers.start("a", Duration::MAX - ms(1), outcomes.callback(2)).unwrap();
    timers.start("a", ms(10), outcomes.callback(3)).unwrap();
    timers.start("b", Duration::from_secs(u64::MAX / 2), outcomes.callback(4)).unwrap();
    engine.advance(ms(10));
    assert_eq!(outcomes.take(), fired([3]));
    engine.advance(years(200));
    assert_eq!((outcomes.take(), timers.cancel("a"), timers.shutdown()), (vec![], 2, 1));
    engine.turn();
    assert_eq!(outcomes.take(), [cancelled([1, 2]), stopped([4])].concat());
}

#[test]
fn d33_a_batch_is_called_in_the_order_of_the_deadlines_equal_ones_as_they_were_started() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let mut random = Random(seed());
    let count = if cfg!(miri) { 300 } else { 10_000 };
    let mut expected: Vec<_> = (0..count).map(|number| (ms(1 + random.below(500)), number)).collect();
    for (after, number) in &expected {
        timers.start(&format!("name {}", number % 100), *after, outcomes.callback(*number)).unwrap();
    }
    expected.sort();
    // All at once, fired by one turn and those that follow.
    engine.clock().advance(ms(1000));
    while engine.turn().more {}
    assert_eq!(outcomes.take(), fired(expected.into_iter().map(|(_, number)| number)));
}

#[test]
fn d35_a11_a_callback_is_never_called_inside_the_call_that_starts_it() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    engine.advance(ms(100));
    let (now, past) = (engine_now(&engine), engine_now(&engine) - ms(50));
    timers.start("a", Duration::ZERO, outcomes.callback(1)).unwrap();
    timers.create("a").start_at(past, outcomes.callback(2)).unwrap();
    timers.create("a").start_at(now - years(500), outcomes.callback(3)).unwrap();
    timers.start("", ms(0), outcomes.callback(4)).unwrap();
    assert_eq!(outcomes.take(), []);
    engine.turn();
    let mut all = outcomes.take();
    all.sort_by_key(|(number, _)| *number);
    assert_eq!(all, fired([1, 2, 3, 4]));
}

fn engine_now(engine: &Engine) -> Instant {
    let _entered = engine.enter();
    Instant::now()
}

#[test]
fn p1_a_timer_started_in_the_past_after_time_has_moved_fires_and_hides_no_other() {
    // Between near and far deadlines, before and after the wheel has turned.
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let start = engine_now(&engine);
    for round in 0..50 {
        engine.advance(ms(7 * round));
        timers.start("a", ms(3), outcomes.callback(2)).unwrap();
        timers.create("a").start_at(start + ms(round), outcomes.callback(1)).unwrap();
        engine.advance(ms(3));
        assert_eq!(outcomes.take(), fired([1, 2]), "round {round}");
    }
}

#[test]
fn p6_any_text_is_a_name() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let long = "long ".repeat(if cfg!(miri) { 100 } else { 1_000_000 });
    let names = ["", " ", "\0", "naïve", "名", &long];
    for (name, number) in names.iter().zip(0..) {
        timers.start(name, ms(1), outcomes.callback(number)).unwrap();
        timers.start(name, ms(1), outcomes.callback(number + 100)).unwrap();
    }
    assert!(names.iter().all(|name| timers.count(name) == 2 && timers.cancel_up_to(name, 1) == 1));
    engine.advance(ms(1));
    let mut all = outcomes.take();
    all.sort_by_key(|(number, _)| *number);
    assert_eq!(all, [cancelled(0..6), fired(100..106)].concat());
}

#[test]
fn w4_the_future_of_a_named_timer_gets_its_outcome_and_dropping_it_withdraws_the_timer() {
    let (engine, task) = (manual(), Task::new());
    let timers = NamedTimers::on(&engine);
    let mut fires = timers.create("a").wait(ms(10)).unwrap();
    let dropped = timers.create("a").wait(ms(10)).unwrap();
    let start = engine_now(&engine);
    let mut ends = timers.create("b").wait_until(start + ms(20)).unwrap();
    assert!(task.poll(Pin::new(&mut fires)).is_pending() && task.poll(Pin::new(&mut ends)).is_pending());
    drop(dropped);
    assert_eq!((timers.count("a"), timers.cancel("b")), (1, 1));
    assert_eq!((task.poll(Pin::new(&mut ends)), task.wakes()), (Poll::Ready(Outcome::Cancelled), 1));
    engine.advance(ms(10));
    assert!((0..2).all(|_| task.poll(Pin::new(&mut fires)) == Poll::Ready(Outcome::Fired)));
    assert_eq!((task.wakes(), timers.len()), (1, 0));
}

#[test]
fn p10_user_code_may_call_back_into_named_timers_at_any_point() {
    struct CallsBack(NamedTimers, Arc<AtomicUsize>);

    impl Drop for CallsBack {
        fn drop(&mut self) {
            self.0.cancel("a");
            drop(self.0.create("a"));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    let (engine, came) = (manual(), Arc::new(AtomicUsize::new(0)));
    let timers = NamedTimers::on(&engine);
    let comes = || CallsBack(timers.clone(), came.clone());
    let callback = || {
        let comes = comes();
        move |_| drop(comes)
    };
    let with = || {
        let comes = comes();
        waker(move || _ = comes.0.cancel("b"))
    };
    // A waker that is replaced, woken, or dropped with its future; a callback that is called, or refused.
    let mut wait = timers.create("w").wait(ms(1)).unwrap();
    assert!(poll_with(Pin::new(&mut wait), &with()).is_pending());
    assert!(poll_with(Pin::new(&mut wait), &with()).is_pending());
    engine.advance(ms(1));
    drop(wait);
    let mut wait = timers.create("w").wait(ms(1)).unwrap();
    assert!(poll_with(Pin::new(&mut wait), &with()).is_pending());
    drop(wait);
    timers.start("a", ms(1), callback()).unwrap();
    timers.start("b", ms(1), callback()).unwrap();
    assert_eq!(timers.cancel("a"), 1);
    engine.advance(ms(1));
    timers.shutdown();
    assert!(timers.start("a", ms(1), callback()).is_err());
    engine.turn();
    assert_eq!(came.load(Ordering::SeqCst), 6);
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand timers take hours")]
fn d30_a_hundred_thousand_are_cancelled_inside_a_callback_while_their_callbacks_create_as_many() {
    let count = 100_000;
    let (send, done) = mpsc::channel();
    let engine = Engine::builder().build().unwrap();
    let timers = NamedTimers::on(&engine);
    let again = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        let (timers, again) = (timers.clone(), again.clone());
        timers
            .clone()
            .start("a", Duration::MAX, move |outcome| {
                assert_eq!(outcome, Outcome::Cancelled);
                again.fetch_add(1, Ordering::SeqCst);
                timers.start("a", Duration::MAX, |_| ()).unwrap();
            })
            .unwrap();
    }
    let inside = timers.clone();
    // On the one thread that runs callbacks.
    timers.start("b", Duration::ZERO, move |_| send.send(inside.cancel("a")).unwrap()).unwrap();
    assert_eq!(done.recv(), Ok(count));
    eventually("all callbacks have run", || again.load(Ordering::SeqCst) == count);
    eventually("as many timers exist again", || timers.count("a") == count);
    assert_eq!(timers.cancel("a"), count);
}

#[test]
fn d30_a_cancel_does_not_continue_with_timers_that_are_created_meanwhile() {
    // Each task that is woken by the cancel creates another timer of the name, inside the cancel.
    let engine = manual();
    let timers = NamedTimers::on(&engine);
    let mut waits: Vec<_> = (0..1000).map(|_| timers.create("a").wait(ms(10)).unwrap()).collect();
    let created = Arc::new(Mutex::new(Vec::new()));
    for wait in &mut waits {
        let (timers, created) = (timers.clone(), created.clone());
        let again = waker(move || created.lock().unwrap().push(timers.create("a")));
        assert!(poll_with(Pin::new(wait), &again).is_pending());
    }
    assert_eq!((timers.cancel("a"), timers.count("a")), (1000, 1000));
    created.lock().unwrap().clear();
    assert!(timers.is_empty());
}

#[test]
fn w8_a_callback_that_starts_its_timer_again_neither_recurses_nor_deadlocks() {
    fn again(timers: NamedTimers, left: usize, done: mpsc::Sender<usize>) {
        let inner = timers.clone();
        let callback = move |_| match left {
            0 => done.send(left).unwrap(),
            _ => again(inner, left - 1, done),
        };
        timers.start("again", Duration::ZERO, callback).unwrap();
    }

    let run = || {
        let (engine, (send, done)) = (manual(), mpsc::channel());
        again(NamedTimers::on(&engine), if cfg!(miri) { 1000 } else { 20_000 }, send);
        while engine.turn().more {}
        assert_eq!(done.try_recv(), Ok(0));
    };
    thread::Builder::new().stack_size(128 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "a million timers take hours")]
fn w4_a_million_timers_of_one_name_are_cancelled_and_a_million_of_their_own_names_fire() {
    let count = 1_000_000;
    let engine = Engine::builder().build().unwrap();
    let timers = NamedTimers::on(&engine);
    let outcomes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)]);
    let callback = || {
        let outcomes = outcomes.clone();
        move |outcome| _ = outcomes[outcome_index(outcome)].fetch_add(1, Ordering::Relaxed)
    };
    let start = StdInstant::now();
    for number in 0..count {
        timers.start("one", Duration::from_secs(600 + number % 60), callback()).unwrap();
    }
    println!("started in {:?}", start.elapsed());
    let start = StdInstant::now();
    assert_eq!(timers.cancel("one"), count as usize);
    println!("cancelled in {:?}", start.elapsed());
    eventually("all callbacks have run", || outcomes[1].load(Ordering::Relaxed) == count as usize);
    println!("callbacks run in {:?}", start.elapsed());
    assert!(timers.is_empty() && timers.names().is_empty());

    let engine = manual();
    let timers = NamedTimers::on(&engine);
    (0..count).for_each(|number| timers.start(&number.to_string(), ms(1 + number % 100), callback()).unwrap());
    assert_eq!(timers.names().len(), count as usize);
    engine.advance(ms(100));
    assert_eq!(outcomes[0].load(Ordering::Relaxed), count as usize);
    assert!(timers.is_empty() && timers.names().is_empty());
}

fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Fired => 0,
        Outcome::Cancelled => 1,
        Outcome::Stopped => 2,
    }
}

#[test]
fn p7_thousands_of_names_are_cancelled_one_by_one_and_created_again() {
    let engine = manual();
    let (timers, outcomes) = (NamedTimers::on(&engine), Outcomes::default());
    let count = if cfg!(miri) { 100 } else { 3000 };
    for round in 0..3 {
        for number in 0..count {
            timers.start(&number.to_string(), ms(1000), outcomes.callback(number)).unwrap();
        }
        assert!((0..count).all(|number| timers.cancel(&number.to_string()) == 1), "round {round}");
        engine.turn();
        assert_eq!((outcomes.take(), timers.len()), (cancelled(0..count), 0), "round {round}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "200,000 timers take hours")]
fn d26_while_a_great_many_fire_at_once_the_engine_fires_other_timers() {
    // On a busy machine it takes long to arm the timers: then the test is repeated with more time.
    let count = 200_000;
    let left = [300, 3_000, 30_000].into_iter().find_map(|after| left_while_many_fire(count, ms(after)));
    assert!(left.is_some_and(|left| left > 0 && left <= count), "{left:?} were left");
}

/// Arms `count` timers due after this time, and returns how many are left when another fires that is due a little later: that one does
/// not wait until all have fired. `None` if they could not be armed in time.
fn left_while_many_fire(count: usize, after: Duration) -> Option<usize> {
    let engine = Engine::builder().build().unwrap();
    let timers = NamedTimers::on(&engine);
    let outcomes = Arc::new(AtomicUsize::new(0));
    let due = Instant::now() + after;
    for _ in 0..count {
        let outcomes = outcomes.clone();
        let callback = move |_| _ = outcomes.fetch_add(1, Ordering::Relaxed);
        timers.create("a").start_at(due, callback).unwrap();
    }
    // The driver wakes its waker, which reads how many are left.
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let looks = {
        let (timers, left) = (timers.clone(), left.clone());
        waker(move || left.store(timers.len(), Ordering::SeqCst))
    };
    let mut sleep = pin!(engine.sleep_until(due + Duration::from_micros(1)));
    if poll_with(sleep.as_mut(), &looks).is_ready() {
        return None;
    }
    eventually("all timers fire", || outcomes.load(Ordering::Relaxed) == count);
    Some(left.load(Ordering::SeqCst))
}

#[test]
fn p7_d64_at_the_engines_capacity_they_fire_at_their_time() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let outcomes = Outcomes::default();
    let _held = engine.try_sleep(years(1)).unwrap();
    let timers = NamedTimers::on(&engine);
    (0..3).for_each(|number| timers.start("a", ms(10 + number), outcomes.callback(number)).unwrap());
    for number in 0..3 {
        engine.advance(if number == 0 { ms(10) - Duration::from_nanos(1) } else { ms(1) - Duration::from_nanos(1) });
        assert_eq!(outcomes.take(), [], "never early");
        engine.advance(Duration::from_nanos(1));
        assert_eq!(outcomes.take(), fired([number]));
    }
}

#[test]
fn p7_timers_that_have_fired_leave_their_slot_to_others() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let outcomes = Outcomes::default();
    let all: Vec<_> = (0..5).map(|_| NamedTimers::on(&engine)).collect();
    for (number, timers) in (0..).zip(&all) {
        timers.start("alike", ms(10 * (number + 1)), outcomes.callback(number)).unwrap();
    }
    engine.advance(ms(100));
    // The engine does not specify which of the waiting timers gets the slot.
    let mut all_told = outcomes.take();
    all_told.sort_unstable_by_key(|(number, _)| *number);
    assert_eq!((all_told, engine.stats().pending), (fired(0..5), 0));
    assert!(engine.try_sleep(ms(10)).is_ok(), "no timer is pending");
}

#[test]
fn t9_named_timers_follow_virtual_time() {
    let _paused = Paused::new();
    if !crate::support::auto_advances() {
        return;
    }
    let (timers, start) = (NamedTimers::new(), Instant::now());
    let (send, receive) = mpsc::channel();
    timers.start("a", years(3), move |outcome| send.send((outcome, Instant::now())).unwrap()).unwrap();
    timers.start("b", Duration::MAX, |_| ()).unwrap();
    assert_eq!(receive.recv(), Ok((Outcome::Fired, start + years(3))));
    assert_eq!((timers.count("a"), timers.count("b")), (0, 1));
}

#[test]
fn w4_random_operations_give_the_same_results_as_a_simple_model() {
    let mut random = Random(seed());
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timers = NamedTimers::on(&engine);
    let mut model = Model::default();
    let mut unstarted: HashMap<u64, NamedTimer> = HashMap::new();
    for number in 0..if cfg!(miri) { 300 } else { 30_000 } {
        let name = random.below(5);
        let text = name.to_string();
        match random.below(12) {
            0..=3 => {
                let after = ms(1) + random.millis([1, 20, 1000]);
                timers.start(&text, after, outcomes.callback(number)).unwrap();
                model.create(number, name);
                model.start(number, after);
            }
            4..=5 => {
                unstarted.insert(number, timers.create(&text));
                model.create(number, name);
            }
            6..=7 => {
                let Some(one) = unstarted.keys().min().copied() else { continue };
                let after = ms(1) + random.millis([1, 20, 1000]);
                unstarted.remove(&one).unwrap().start(after, outcomes.callback(one)).unwrap();
                model.start(one, after);
            }
            8 => {
                let Some(one) = unstarted.keys().max().copied() else { continue };
                drop(unstarted.remove(&one));
                model.timers.retain(|timer| timer.number != one);
            }
            9 => {
                let max = random.one_of([1, 3, usize::MAX]);
                assert_eq!(timers.cancel_up_to(&text, max), model.cancel(name, max), "{number}");
            }
            _ => {
                let by = random.millis([1, 5, 50]);
                engine.advance(by);
                model.advance(by);
                assert_eq!(outcomes.take(), std::mem::take(&mut model.outcomes), "{number}");
            }
        }
        assert_eq!(timers.len(), model.timers.len());
        assert_eq!(timers.count(&text), model.timers.iter().filter(|timer| timer.name == name).count());
    }
}

/// A simple model of named timers.
#[derive(Default)]
struct Model {
    now: Duration,
    /// In the order of creation.
    timers: Vec<ModelTimer>,
    outcomes: Vec<(u64, Outcome)>,
    starts: usize,
}

struct ModelTimer {
    number: u64,
    name: u64,
    /// The deadline, and how many timers were started before.
    started: Option<(Duration, usize)>,
}

impl Model {
    fn create(&mut self, number: u64, name: u64) {
        self.timers.push(ModelTimer { number, name, started: None });
    }

    fn start(&mut self, number: u64, after: Duration) {
        self.starts += 1;
        match self.timers.iter_mut().find(|timer| timer.number == number) {
            Some(timer) => timer.started = Some((self.now + after, self.starts)),
            None => self.outcomes.push((number, Outcome::Cancelled)),
        }
    }

    fn cancel(&mut self, name: u64, max: usize) -> usize {
        let mut left = max;
        let is_one = |timer: &mut ModelTimer| {
            let is_one = timer.name == name && left > 0;
            left -= usize::from(is_one);
            is_one
        };
        let gone: Vec<_> = self.timers.extract_if(.., is_one).collect();
        let started = gone.iter().filter(|timer| timer.started.is_some());
        self.outcomes.extend(started.map(|timer| (timer.number, Outcome::Cancelled)));
        gone.len()
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        let is_due = |timer: &mut ModelTimer| timer.started.is_some_and(|(due, _)| due <= self.now);
        let mut due: Vec<_> = self.timers.extract_if(.., is_due).collect();
        due.sort_by_key(|timer| timer.started);
        self.outcomes.extend(due.iter().map(|timer| (timer.number, Outcome::Fired)));
    }
}
