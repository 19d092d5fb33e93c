//! `TimeoutLayer`: a timeout for every request to a service.
#![cfg(all(feature = "tower", feature = "test-util"))]

mod support;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use support::{Paused, Task, ms};
use tourbillon::adapters::tower::{Timeout, TimeoutLayer};
use tourbillon::time::error::Elapsed;
use tourbillon::time::{Deadline, Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

/// Answers after the duration that the request contains, with the time that was left for it.
async fn answer(after: Duration) -> Result<Duration, Infallible> {
    let given = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    sleep(after).await;
    Ok(given)
}

#[test]
fn a12_a_response_in_time_is_that_of_the_service() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = TimeoutLayer::new(ms(100)).layer(service_fn(answer));
    let mut response = pin!(service.call(ms(99)));
    assert!(task.poll(response.as_mut()).is_pending());
    time.advance(ms(99));
    let Poll::Ready(Ok(given)) = task.poll(response.as_mut()) else { panic!("no answer") };
    assert_eq!(given, ms(100), "the service knows its deadline");
}

#[test]
fn a12_a_response_that_takes_too_long_is_abandoned_at_the_limit() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = Timeout::new(service_fn(answer), ms(100));
    let mut response = pin!(service.call(Duration::MAX));
    assert!(task.poll(response.as_mut()).is_pending());
    time.advance(ms(100) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 1);
    let Poll::Ready(Err(error)) = task.poll(response.as_mut()) else { panic!("the response was not abandoned") };
    assert_eq!(error.to_string(), "deadline has elapsed");
    assert!(error.downcast::<Elapsed>().is_ok_and(|elapsed| !elapsed.is_stopped()));
}

#[test]
fn a12_the_time_limit_of_a_request_starts_with_the_call() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = Timeout::new(service_fn(answer), ms(100));
    let mut response = pin!(service.call(Duration::MAX));
    time.advance(ms(60));
    assert!(task.poll(response.as_mut()).is_pending());
    time.advance(ms(40));
    assert!(matches!(task.poll(response.as_mut()), Poll::Ready(Err(_))));
}

#[test]
fn a12_an_error_of_the_service_is_passed_on() {
    let failing = service_fn(|()| async { Err::<(), _>(io::Error::from(io::ErrorKind::NotConnected)) });
    let service = ServiceBuilder::new().layer(TimeoutLayer::new(ms(100))).service(failing);
    let error = futures_lite::future::block_on(service.oneshot(())).unwrap_err();
    assert_eq!(error.downcast::<io::Error>().unwrap().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn a12_a_limit_can_depend_on_the_request() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = Timeout::new(service_fn(answer), |asked: &Duration| if *asked > ms(1) { *asked } else { ms(1) });
    let mut long = pin!(service.call(ms(5000)));
    assert!(task.poll(long.as_mut()).is_pending());
    time.advance(ms(5000));
    assert!(matches!(task.poll(long), Poll::Ready(Ok(given)) if given == ms(5000)));
}

#[test]
fn b7_a_request_has_no_more_time_than_its_caller_has_left() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = Timeout::new(service_fn(answer), ms(100));
    let start = Instant::now();
    let mut call = pin!(Deadline::after(ms(30)).scope(async { service.call(Duration::MAX).await }));
    assert!(task.poll(call.as_mut()).is_pending());
    time.advance(ms(30));
    assert!(task.poll(call).is_ready());
    assert_eq!(start.elapsed(), ms(30));
}
