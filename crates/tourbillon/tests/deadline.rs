//! `Deadline`: scopes that nest.
#![cfg(feature = "test-util")]

mod support;

use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use support::{Paused, Supplied, Task, is_elapsed, is_stopped, ms, years};
use tourbillon::Engine;
use tourbillon::time::{Deadline, FutureExt, Instant, timeout};

/// Returns a future that is ready with the deadline that is current in its poll.
fn current() -> impl Future<Output = Option<Deadline>> {
    poll_fn(|_| Poll::Ready(Deadline::current()))
}

#[test]
fn b7_a_deadline_returns_the_time_that_is_left() {
    let time = Paused::new();
    let start = Instant::now();
    let deadline = Deadline::after(ms(10));
    assert_eq!(deadline, Deadline::at(start + ms(10)));
    assert_eq!(deadline.instant(), Some(start + ms(10)));
    assert_eq!((deadline.remaining(), deadline.is_past()), (ms(10), false));
    time.advance(ms(9));
    assert_eq!((deadline.remaining(), deadline.is_past()), (ms(1), false));
    time.advance(ms(1));
    assert_eq!((deadline.remaining(), deadline.is_past()), (Duration::ZERO, true));
    time.advance(ms(1));
    assert_eq!((deadline.remaining(), deadline.is_past()), (Duration::ZERO, true));
}

#[test]
fn b7_p5_never_is_later_than_all_others_and_never_past() {
    let time = Paused::new();
    let never = Deadline::never();
    assert_eq!(Deadline::after(Duration::MAX), never);
    assert_eq!(Deadline::at(Instant::now().checked_add(years(5000)).unwrap()), never);
    assert_eq!((never.instant(), never.remaining(), never.is_past()), (None, Duration::MAX, false));
    let soon = Deadline::after(ms(1));
    assert_eq!((never.min(soon), soon.min(never), soon.max(never)), (soon, soon, never));
    assert!(Deadline::after(years(500)) < never);
    time.advance(years(100));
    assert!(!never.is_past());
    assert!(format!("{never:?}").contains("never"));
}

#[test]
fn b7_the_current_deadline_is_that_of_the_scope_being_polled() {
    let _time = Paused::new();
    let task = Task::new();
    let deadline = Deadline::after(ms(10));
    assert_eq!(Deadline::current(), None);
    let mut scope = pin!(deadline.scope(current()));
    assert_eq!(Deadline::current(), None, "making a scope changes nothing");
    assert_eq!(scope.deadline(), deadline);
    assert_eq!(task.poll(scope.as_mut()), Poll::Ready(Ok(Some(deadline))));
    assert_eq!(Deadline::current(), None);
}

#[test]
fn b7_an_inner_scope_can_be_stricter_and_the_outer_one_is_restored() {
    let _time = Paused::new();
    let (strict, lax) = (Deadline::after(ms(10)), Deadline::after(ms(20)));
    let nested = lax.scope(async move {
        let before = Deadline::current();
        let inside = strict.scope(current()).await;
        (before, inside, Deadline::current())
    });
    let seen = futures_lite::future::block_on(nested);
    assert_eq!(seen, Ok((Some(lax), Ok(Some(strict)), Some(lax))));
}

#[test]
fn b7_an_inner_scope_cannot_outlive_the_outer_one() {
    let time = Paused::new();
    let task = Task::new();
    let (strict, lax) = (Deadline::after(ms(10)), Deadline::after(ms(20)));
    let mut nested = pin!(strict.scope(async move {
        let inner = lax.scope(async {
            assert_eq!(Deadline::current(), Some(strict));
            pending::<()>().await;
        });
        assert_eq!(inner.deadline(), strict);
        // The inner scope ends early enough for this code to run before the outer one ends.
        inner.await.expect_err("the inner future must end with its scope");
        "cleaned up"
    }));
    assert!(task.poll(nested.as_mut()).is_pending());
    time.advance(ms(10));
    assert!(task.wakes() >= 1);
    assert_eq!(task.poll(nested.as_mut()), Poll::Ready(Ok("cleaned up")));
}

#[test]
fn b7_a_scope_that_was_made_outside_is_limited_by_the_one_it_is_polled_in() {
    let time = Paused::new();
    let task = Task::new();
    let (strict, lax) = (Deadline::after(ms(10)), Deadline::after(ms(20)));
    let mut seen = None;
    let lax_scope = lax.scope(async {
        seen = Deadline::current();
        pending::<()>().await;
    });
    let mut nested = Box::pin(strict.scope(lax_scope));
    assert!(task.poll(nested.as_mut()).is_pending());
    time.advance(ms(10));
    assert!(is_elapsed(task.poll(nested.as_mut())));
    drop(nested);
    assert_eq!(seen, Some(strict));
}

#[test]
fn b7_a_scope_that_leaves_the_one_it_was_made_in_keeps_its_limit() {
    let _time = Paused::new();
    let task = Task::new();
    let strict = Deadline::after(ms(10));
    let made = strict.scope(poll_fn(|_| Poll::Ready(Deadline::never().scope(current()))));
    let inner = futures_lite::future::block_on(made).unwrap();
    assert_eq!(inner.deadline(), strict);
    assert_eq!(task.poll(pin!(inner)), Poll::Ready(Ok(Some(strict))));
}

#[test]
fn b7_a_scope_elapses_at_its_deadline_and_polls_its_future_first() {
    let time = Paused::new();
    let task = Task::new();
    let deadline = Deadline::after(ms(10));
    let mut waiting = pin!(deadline.scope(pending::<()>()));
    let mut future: Supplied<u8> = Supplied(None);
    let mut late = pin!(deadline.scope(&mut future));
    assert!(task.poll(waiting.as_mut()).is_pending());
    assert!(task.poll(late.as_mut()).is_pending());
    time.advance(ms(10) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 2);
    assert!(is_elapsed(task.poll(waiting.as_mut())));
    assert!(is_elapsed(task.poll(late.as_mut())));
    assert_eq!(
        task.poll(pin!(deadline.scope(ready(1)))),
        Poll::Ready(Ok(1)),
        "a ready future wins over a deadline that has passed"
    );
}

#[test]
fn b7_two_scopes_polled_in_turn_do_not_see_each_other() {
    let _time = Paused::new();
    let task = Task::new();
    let (a, b) = (Deadline::after(ms(10)), Deadline::after(ms(20)));
    let watch = |expected: Deadline| {
        poll_fn(move |_| {
            assert_eq!(Deadline::current(), Some(expected));
            Poll::<()>::Pending
        })
    };
    let (mut first, mut second) = (pin!(a.scope(watch(a))), pin!(b.scope(watch(b))));
    for _ in 0..3 {
        assert!(task.poll(first.as_mut()).is_pending());
        assert!(task.poll(second.as_mut()).is_pending());
        assert_eq!(Deadline::current(), None);
    }
}

#[test]
fn b7_b1_a_scope_follows_its_future_to_another_thread() {
    let deadline = Deadline::after(years(1));
    let mut scope = Box::pin(deadline.scope(async move {
        assert_eq!(Deadline::current(), Some(deadline));
        futures_lite::future::yield_now().await;
        Deadline::current()
    }));
    assert!(Task::new().poll(scope.as_mut()).is_pending());
    let there = std::thread::spawn(move || {
        let seen = futures_lite::future::block_on(scope);
        (seen, Deadline::current())
    });
    assert_eq!(there.join().unwrap(), (Ok(Some(deadline)), None));
    assert_eq!(Deadline::current(), None);
}

#[test]
fn b7_a_poll_that_panics_leaves_the_surrounding_scope_in_force() {
    let _time = Paused::new();
    let (strict, lax) = (Deadline::after(ms(10)), Deadline::after(ms(20)));
    let mut after = None;
    let outer = lax.scope(poll_fn(|cx| {
        let mut inner = Box::pin(strict.scope(poll_fn(|_| -> Poll<()> {
            assert_eq!(Deadline::current(), Some(strict));
            std::panic::resume_unwind(Box::new("a future panics"))
        })));
        let panicked = catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(cx)));
        assert!(panicked.is_err());
        after = Deadline::current();
        Poll::Ready(())
    }));
    assert_eq!(futures_lite::future::block_on(outer), Ok(()));
    assert_eq!(after, Some(lax));
    assert_eq!(Deadline::current(), None);
}

#[test]
fn b7_a_scope_does_not_change_the_timeouts_inside_it() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut scope = pin!(Deadline::after(ms(30)).scope(async {
        assert_eq!(timeout(ms(50), ready(())).deadline(), start + ms(50));
        timeout(ms(10), pending::<()>()).await.expect_err("the timeout must elapse");
        Instant::now()
    }));
    assert!(task.poll(scope.as_mut()).is_pending());
    time.advance(ms(10));
    assert_eq!(task.poll(scope.as_mut()), Poll::Ready(Ok(start + ms(10))));
}

#[test]
fn b7_the_timeout_of_a_deadline_is_a_timeout_and_no_scope() {
    let time = Paused::new();
    let task = Task::new();
    let deadline = Deadline::after(ms(10));
    assert_eq!(task.poll(pin!(deadline.timeout(current()))), Poll::Ready(Ok(None)));
    let mut waiting = pin!(deadline.timeout(pending::<()>()));
    assert_eq!(Some(waiting.deadline()), deadline.instant());
    assert!(task.poll(waiting.as_mut()).is_pending());
    let mut never = pin!(Deadline::never().timeout(pending::<()>()));
    assert!(task.poll(never.as_mut()).is_pending());
    time.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(waiting.as_mut())));
    time.advance(years(200));
    assert!(task.poll(never.as_mut()).is_pending());
}

#[test]
fn d32_a_stopped_engine_ends_a_scope() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let mut scope = pin!(Deadline::never().scope(pending::<()>()));
    assert!(task.poll(scope.as_mut()).is_pending());
    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert!(is_stopped(task.poll(scope.as_mut())));
}

#[test]
fn b7_a_deadline_is_sixteen_bytes_to_copy() {
    fn is_send_sync_copy<T: Send + Sync + Copy>() {}
    is_send_sync_copy::<Deadline>();
    assert_eq!(size_of::<Deadline>(), size_of::<std::time::Instant>());
    let _time = Paused::new();
    let scope = Deadline::never().scope(ready(()).timeout(ms(1)));
    assert!(format!("{scope:?}").contains("Scope"));
}

#[test]
fn b7_a_scope_moves_if_its_future_does() {
    let _time = Paused::new();
    let mut scope = Deadline::never().scope(Supplied(Some(5)));
    assert_eq!(Task::new().poll(Pin::new(&mut scope)), Poll::Ready(Ok(5)));
}
