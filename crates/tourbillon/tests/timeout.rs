//! `Timeout`: a future with a deadline.
#![cfg(feature = "test-util")]

mod support;

use std::future::{Future, IntoFuture, Ready, pending, poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use support::{Paused, Supplied, Task, is_elapsed, is_stopped, ms, years};
use tourbillon::Engine;
use tourbillon::time::{FutureExt, Instant, Timeout, sleep_until, timeout, timeout_at};

#[test]
fn t8_a_ready_value_wins_over_a_deadline_that_is_now() {
    let _time = Paused::new();
    let task = Task::new();
    let mut future = pin!(timeout_at(Instant::now(), ready(5)));
    assert_eq!(task.poll(future.as_mut()), Poll::Ready(Ok(5)));
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
}

#[test]
fn t8_a_ready_value_wins_over_a_past_deadline() {
    let time = Paused::new();
    let past = Instant::now();
    time.advance(ms(1000));
    let task = Task::new();
    let mut future = pin!(timeout_at(past, ready(5)));
    assert_eq!(task.poll(future.as_mut()), Poll::Ready(Ok(5)));
}

#[test]
fn t8_a_value_that_becomes_ready_after_the_deadline_but_before_the_poll_wins() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = timeout(ms(10), Supplied(None));
    assert_eq!(task.poll(Pin::new(&mut future)), Poll::Pending);
    time.advance(ms(10));
    *future.get_mut() = Supplied(Some("late"));
    assert_eq!(task.poll(Pin::new(&mut future)), Poll::Ready(Ok("late")));
}

#[test]
fn t8_a_deadline_that_is_now_elapses_at_the_first_poll() {
    let _time = Paused::new();
    let task = Task::new();
    assert!(is_elapsed(task.poll(pin!(timeout(Duration::ZERO, pending::<()>())))));
    assert!(is_elapsed(task.poll(pin!(timeout_at(Instant::now(), pending::<()>())))));
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0), "neither timeout suspended");
}

#[test]
fn t8_p1_a_timeout_elapses_at_its_deadline_and_not_a_nanosecond_before() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = pin!(timeout(ms(100), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(ms(100) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn t8_the_clock_starts_when_the_timeout_is_made_not_when_it_is_polled() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = pin!(timeout(ms(10), pending::<()>()));
    time.advance(ms(10));
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn t8_a_value_in_time_is_returned_and_its_timer_cancelled() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut future = Box::pin(timeout_at(start + ms(100), sleep_until(start + ms(50))));
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(ms(50));
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(future.as_mut()), Poll::Ready(Ok(())));
    drop(future);
    time.advance(ms(100));
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
}

#[test]
fn p5_a_timeout_of_any_length_neither_panics_nor_ends_early() {
    let time = Paused::new();
    let task = Task::new();
    let mut never = pin!(timeout(Duration::MAX, pending::<()>()));
    let mut long = pin!(timeout(years(50), pending::<()>()));
    assert!(task.poll(never.as_mut()).is_pending());
    assert!(task.poll(long.as_mut()).is_pending());
    time.advance(years(50) - ms(1));
    assert!(task.poll(long.as_mut()).is_pending());
    time.advance(ms(1));
    assert!(is_elapsed(task.poll(long.as_mut())));
    time.advance(years(150));
    assert!(task.poll(never.as_mut()).is_pending());
}

#[test]
fn t12_a_future_that_always_wakes_itself_still_sees_its_timeout() {
    let time = Paused::new();
    let task = Task::new();
    let mut polls = 0;
    let busy = poll_fn(|cx: &mut Context<'_>| {
        polls += 1;
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let mut future = pin!(timeout(ms(3), busy));
    for _ in 0..3 {
        assert!(task.poll(future.as_mut()).is_pending());
        time.advance(ms(1));
    }
    assert!(is_elapsed(task.poll(future.as_mut())));
    assert_eq!(polls, 4, "the future was polled each time, the last one included");
}

#[test]
fn t12_a_busy_future_times_out_in_real_time_too() {
    let busy = poll_fn(|cx: &mut Context<'_>| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    assert!(futures_lite::future::block_on(timeout(ms(2), busy)).is_err());
}

#[test]
fn t8_a_timeout_takes_any_type_that_converts_into_a_future() {
    struct Request;
    impl IntoFuture for Request {
        type Output = &'static str;
        type IntoFuture = Ready<&'static str>;
        fn into_future(self) -> Self::IntoFuture {
            ready("answer")
        }
    }
    let _time = Paused::new();
    let task = Task::new();
    assert_eq!(task.poll(pin!(timeout(ms(1), Request))), Poll::Ready(Ok("answer")));
    assert_eq!(task.poll(pin!(timeout_at(Instant::now(), Request))), Poll::Ready(Ok("answer")));
}

#[test]
fn t8_the_future_can_be_accessed_changed_and_taken_back() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = timeout(ms(1), Supplied(None));
    assert_eq!(future.get_ref().0, None);
    assert!(task.poll(Pin::new(&mut future)).is_pending());
    time.advance(ms(1));
    assert!(is_elapsed(task.poll(Pin::new(&mut future))));
    future.get_mut().0 = Some(7);
    let mut inner = future.into_inner();
    assert_eq!(task.poll(Pin::new(&mut inner)), Poll::Ready(7));
    assert_eq!(task.wakers_held(), 0);
}

#[test]
fn t8_dropping_a_pending_timeout_cancels_it() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = Box::pin(timeout(ms(5), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    assert_eq!(task.wakers_held(), 1);
    drop(future);
    assert_eq!(task.wakers_held(), 0);
    time.advance(ms(5));
    assert_eq!(task.wakes(), 0);
}

#[test]
fn t8_only_the_task_that_polled_last_is_woken() {
    let time = Paused::new();
    let (first, second) = (Task::new(), Task::new());
    let mut future = pin!(timeout(ms(5), pending::<()>()));
    assert!(first.poll(future.as_mut()).is_pending());
    assert!(second.poll(future.as_mut()).is_pending());
    time.advance(ms(5));
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

#[test]
fn t8_elapsed_displays_like_tokios_and_converts_into_an_io_error() {
    let _time = Paused::new();
    let Poll::Ready(Err(elapsed)) = Task::new().poll(pin!(timeout(Duration::ZERO, pending::<()>()))) else {
        panic!("the timeout did not elapse");
    };
    assert_eq!(elapsed.to_string(), "deadline has elapsed");
    assert!(!elapsed.is_stopped());
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
}

#[test]
fn t8_future_ext_does_the_same_as_the_functions() {
    let time = Paused::new();
    let task = Task::new();
    let deadline = Instant::now() + ms(5);
    let mut relative = pin!(pending::<()>().timeout(ms(5)));
    let mut absolute = pin!(pending::<()>().timeout_at(deadline));
    assert_eq!(relative.deadline(), deadline);
    assert!(task.poll(relative.as_mut()).is_pending());
    assert!(task.poll(absolute.as_mut()).is_pending());
    time.advance(ms(5));
    assert_eq!(task.wakes(), 2);
    assert!(is_elapsed(task.poll(relative.as_mut())));
    assert!(is_elapsed(task.poll(absolute.as_mut())));
    assert_eq!(task.poll(pin!(ready(1).timeout(Duration::ZERO))), Poll::Ready(Ok(1)));
}

#[test]
fn b7_a_deadline_can_be_moved_later_while_the_timeout_runs() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut future = pin!(timeout(ms(10), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    future.as_mut().reset(start + ms(30));
    assert_eq!(future.deadline(), start + ms(30));
    time.advance(ms(29));
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(ms(1));
    assert!(task.wakes() >= 1);
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn b7_a_deadline_moved_earlier_wakes_without_another_poll() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut future = pin!(timeout(ms(1000), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    future.as_mut().reset(start + ms(10));
    time.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn b7_a_deadline_moved_into_the_past_elapses_at_the_next_poll() {
    let time = Paused::new();
    let task = Task::new();
    let past = Instant::now();
    time.advance(ms(5));
    let mut future = pin!(timeout(ms(1000), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    future.as_mut().reset(past);
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn b7_extending_counts_from_the_deadline_and_not_from_now() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut future = pin!(timeout(ms(10), pending::<()>()));
    time.advance(ms(8));
    future.as_mut().extend(ms(10));
    assert_eq!(future.deadline(), start + ms(20));
    time.advance(ms(11));
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(ms(1));
    assert!(is_elapsed(task.poll(future.as_mut())));
    future.as_mut().extend(Duration::MAX);
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(years(100));
    assert!(task.poll(future.as_mut()).is_pending(), "the deadline is at the end of time");
}

#[test]
fn b7_a_disarmed_timeout_never_elapses_until_it_is_reset() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = pin!(timeout(ms(10), pending::<()>()));
    assert!(task.poll(future.as_mut()).is_pending());
    future.as_mut().disarm();
    assert!(!future.is_armed());
    assert_eq!(task.wakers_held(), 0, "the timer is cancelled at once");
    time.advance(ms(1000));
    assert_eq!(task.wakes(), 0);
    assert!(task.poll(future.as_mut()).is_pending());
    future.as_mut().extend(ms(1));
    assert!(task.poll(future.as_mut()).is_pending(), "extending does not arm");

    let deadline = Instant::now() + ms(10);
    future.as_mut().reset(deadline);
    assert_eq!(future.deadline(), deadline);
    assert!(task.poll(future.as_mut()).is_pending());
    time.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(future.as_mut())));
}

#[test]
fn b7_a_disarmed_timeout_still_returns_the_value() {
    let _time = Paused::new();
    let task = Task::new();
    let mut future = timeout(Duration::ZERO, Supplied(None));
    Pin::new(&mut future).disarm();
    assert!(task.poll(Pin::new(&mut future)).is_pending());
    future.get_mut().0 = Some(1);
    assert_eq!(task.poll(Pin::new(&mut future)), Poll::Ready(Ok(1)));
}

#[test]
fn b7_a_timeout_that_has_elapsed_can_be_reset_and_continues() {
    let time = Paused::new();
    let task = Task::new();
    let mut future = timeout(ms(1), Supplied(None));
    time.advance(ms(1));
    assert!(is_elapsed(task.poll(Pin::new(&mut future))));
    assert!(is_elapsed(task.poll(Pin::new(&mut future))), "the timeout stays elapsed");
    Pin::new(&mut future).reset(Instant::now() + ms(5));
    assert!(task.poll(Pin::new(&mut future)).is_pending());
    time.advance(ms(4));
    future.get_mut().0 = Some("in time");
    assert_eq!(task.poll(Pin::new(&mut future)), Poll::Ready(Ok("in time")));
}

#[test]
fn t10_d32_a_stopped_engine_ends_the_timeout_and_the_error_says_so() {
    let engine = Engine::builder().build().unwrap();
    let entered = engine.enter();
    let task = Task::new();
    let mut waiting = pin!(timeout(years(1), pending::<()>()));
    let mut endless = pin!(timeout(Duration::MAX, pending::<()>()));
    let mut ready_too = pin!(timeout(years(1), Supplied(Some(5))));
    let mut unpolled = pin!(timeout(years(1), pending::<()>()));
    assert!(task.poll(waiting.as_mut()).is_pending());
    assert!(task.poll(endless.as_mut()).is_pending());

    engine.shutdown();
    assert_eq!(task.wakes(), 2);
    assert!(is_stopped(task.poll(waiting.as_mut())));
    assert!(is_stopped(task.poll(endless.as_mut())));
    assert!(is_stopped(task.poll(unpolled.as_mut())), "the timeout must not hang");
    assert_eq!(task.poll(ready_too.as_mut()), Poll::Ready(Ok(5)), "the value is polled first");

    let mut made_after = pin!(timeout(years(1), pending::<()>()));
    let Poll::Ready(Err(elapsed)) = task.poll(made_after.as_mut()) else { panic!("the timeout hangs") };
    assert!(elapsed.is_stopped());
    assert_ne!(elapsed.to_string(), "deadline has elapsed");
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
    drop(entered);
}

#[test]
fn t8_a_timeout_can_be_sent_shared_and_moved_if_its_future_can() {
    fn is_send_sync_unpin<T: Send + Sync + Unpin>(_: &T) {}
    let _time = Paused::new();
    is_send_sync_unpin(&timeout(ms(1), ready(())));
    let debug = format!("{:?}", timeout(ms(1), ready(3)));
    assert!(debug.contains("Timeout") && debug.contains('3'), "{debug}");
    let boxed: Timeout<Pin<Box<dyn Future<Output = u8> + Send>>> =
        timeout(ms(1), Box::pin(async { 3_u8 }) as Pin<Box<_>>);
    assert_eq!(futures_lite::future::block_on(boxed), Ok(3));
}
