//! `TourbillonTimer`: hyper's timeouts on an engine.
#![cfg(all(feature = "hyper", feature = "test-util"))]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::{Sleep as HyperSleep, Timer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use support::{Paused, Task, hello, ms};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tourbillon::adapters::hyper::TourbillonTimer;
use tourbillon::time::{Instant, Sleep};
use tourbillon::{Clock, Engine, time};

const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs a future in virtual time, which moves by itself while all tasks wait.
fn in_virtual_time(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        time::pause();
        story.await;
    });
}

/// Opens a connection to a server that answers "hello" and gives a request `PATIENCE` for its header.
fn connect() -> (DuplexStream, tokio::task::JoinHandle<hyper::Result<()>>) {
    let (ours, theirs) = duplex(4096);
    let hello = service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
    let connection = http1::Builder::new()
        .timer(TourbillonTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(theirs), hello);
    (ours, tokio::spawn(connection))
}

#[test]
fn b1_a_client_that_never_finishes_its_header_is_disconnected_on_time() {
    in_virtual_time(async {
        let start = Instant::now();
        let (mut stream, server) = connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
        let error = server.await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        assert_eq!(start.elapsed(), PATIENCE, "to the nanosecond");
    });
}

#[test]
fn b1_each_request_of_a_connection_has_its_own_time_limit_for_its_header() {
    in_virtual_time(async {
        let start = Instant::now();
        let (mut stream, server) = connect();
        for _ in 0..10 {
            time::sleep(PATIENCE - Duration::from_nanos(1)).await;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            assert!(hello(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
        }
        drop(stream);
        server.await.unwrap().unwrap();
        assert!(start.elapsed() > 9 * PATIENCE);
    });
}

#[test]
fn b1_a_sleep_ends_on_time_and_not_before() {
    let time = Paused::new();
    let (task, timer) = (Task::new(), TourbillonTimer::new());
    let mut by_duration = timer.sleep(ms(10));
    let mut by_deadline = timer.sleep_until(timer.now() + ms(10));
    for sleep in [&mut by_duration, &mut by_deadline] {
        assert!(task.poll(sleep.as_mut()).is_pending());
    }
    time.advance(ms(10) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 2);
    for sleep in [&mut by_duration, &mut by_deadline] {
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn b7_reset_moves_the_existing_sleep() {
    let time = Paused::new();
    let (task, timer) = (Task::new(), TourbillonTimer::new());
    let start = timer.now();
    let mut sleep = timer.sleep(ms(10));
    assert!(task.poll(sleep.as_mut()).is_pending());
    let address = &raw const *sleep;
    timer.reset(&mut sleep, start + ms(30));
    assert!(std::ptr::addr_eq(address, &raw const *sleep), "the reset made a new sleep");
    assert!(sleep.is::<Sleep>());
    time.advance(ms(29));
    assert_eq!(task.wakes(), 0);
    time.advance(ms(1));
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_reset_replaces_a_sleep_of_another_timer() {
    struct Never;

    impl Future for Never {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl HyperSleep for Never {}

    let time = Paused::new();
    let (task, timer) = (Task::new(), TourbillonTimer::new());
    let mut sleep: Pin<Box<dyn HyperSleep>> = Box::pin(Never);
    timer.reset(&mut sleep, timer.now() + ms(5));
    assert!(task.poll(sleep.as_mut()).is_pending());
    time.advance(ms(5));
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b1_a_timer_on_an_engine_follows_the_clock_of_that_engine() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let (task, timer) = (Task::new(), TourbillonTimer::on(&engine));
    let start = timer.now();
    let mut sleep = timer.sleep_until(start + ms(1000));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(1000)), 1);
    assert_eq!(timer.now() - start, ms(1000));
    assert!(task.poll(sleep.as_mut()).is_ready());
}
