//! `GrpcDeadlineLayer`: the deadline of a gRPC call.
#![cfg(all(feature = "http", feature = "test-util"))]

mod support;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use support::{Paused, Task, ms};
use tourbillon::adapters::grpc::{GrpcBody, GrpcDeadline, GrpcDeadlineLayer};
use tourbillon::time::{Deadline, Sleep, sleep};
use tourbillon::{Clock, Engine};
use tower::{Layer, Service, service_fn};

fn call(timeout: &[&str]) -> Request<()> {
    let mut request = Request::post("/a.B/C");
    for value in timeout {
        request = request.header("grpc-timeout", *value);
    }
    request.body(()).unwrap()
}

fn status(headers: &HeaderMap) -> (&str, &str) {
    (headers["grpc-status"].to_str().unwrap(), headers["grpc-message"].to_str().unwrap())
}

fn answered<B>(
    task: &Task,
    future: Pin<&mut impl Future<Output = Result<Response<GrpcBody<B>>, Infallible>>>,
) -> Response<GrpcBody<B>> {
    let Poll::Ready(Ok(response)) = task.poll(future) else { panic!("there is no response") };
    response
}

/// Answers with the time that was left, after 50 milliseconds.
async fn handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let given = Deadline::current().unwrap().remaining();
    sleep(ms(50)).await;
    Ok(Response::new(format!("{given:?}").into()))
}

#[test]
fn e4_the_handler_of_a_call_knows_the_deadline_of_the_client() {
    let time = Paused::new();
    let task = Task::new();
    for (header, limit, given) in
        [(&["100m"][..], ms(1000), "100ms"), (&["2S"], ms(1000), "1s"), (&[], ms(200), "200ms")]
    {
        let mut service = GrpcDeadlineLayer::new(limit).layer(service_fn(handler));
        let mut answer = pin!(service.call(call(header)));
        assert!(task.poll(answer.as_mut()).is_pending());
        time.advance(ms(50));
        let body = answered(&task, answer).into_body();
        assert_eq!(futures_lite::future::block_on(body.collect()).unwrap().to_bytes(), given);
    }
}

#[test]
fn e4_a_call_ends_at_its_deadline_with_deadline_exceeded() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default().layer(service_fn(handler));
    let mut answer = pin!(service.call(call(&["49999u"])));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(Duration::from_nanos(49_998_999));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    let response = answered(&task, answer);
    assert_eq!(response.status(), StatusCode::OK, "the status of gRPC is in the headers");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    assert_eq!(status(response.headers()), ("4", "the call did not end within 49.999ms"));
    assert!(response.body().is_end_stream());
}

#[test]
fn e4_a_call_whose_deadline_has_passed_already_is_polled_once() {
    let _time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default().layer(service_fn(handler));
    let response = answered(&task, pin!(service.call(call(&["0n"]))));
    assert_eq!(status(response.headers()), ("4", "the call did not end within 0ns"));
}

#[test]
fn e4_a_call_with_a_malformed_timeout_is_an_invalid_argument_and_does_not_reach_the_service() {
    let task = Task::new();
    let unreachable = |_: Request<()>| async { panic!("the service was called") };
    let mut service: GrpcDeadline<_> = GrpcDeadlineLayer::default().layer(service_fn(unreachable));
    for (header, message) in [
        (&["1S", "1S"][..], "the header grpc-timeout is there more than once; send it once"),
        (&["123456789n"], "the header grpc-timeout must begin with one to eight digits"),
        (&["10s"], "the header grpc-timeout must end with a unit, one of H, M, S, m, u, n"),
    ] {
        let response = answered::<Empty<Bytes>>(&task, pin!(service.call(call(header))));
        assert_eq!(status(response.headers()), ("3", message));
    }
}

/// A body that sends a frame each 10 milliseconds, or at once, without an end.
struct Ticks {
    sleep: Pin<Box<Sleep>>,
    every: Duration,
}

impl Body for Ticks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::ready!(self.sleep.as_mut().poll(context));
        self.sleep = Box::pin(sleep(self.every));
        let left = Deadline::current().expect("a stream runs in the scope of its call").remaining();
        Poll::Ready(Some(Ok(Frame::data(format!("{left:?}").into()))))
    }
}

#[test]
fn e4_a_stream_of_responses_ends_at_the_deadline_of_the_call_with_trailers() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default().layer(service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Ticks { sleep: Box::pin(sleep(ms(10))), every: ms(10) }))
    }));
    let response = answered(&task, pin!(service.call(call(&["25m"]))));
    assert_eq!(response.headers().get("grpc-status"), None, "the response has begun");
    let mut body = pin!(response.into_body());
    for left in ["15ms", "5ms"] {
        assert!(task.poll(pin!(body.as_mut().frame())).is_pending());
        time.advance(ms(10));
        let Poll::Ready(Some(Ok(frame))) = task.poll(pin!(body.as_mut().frame())) else { panic!("no frame") };
        assert_eq!(frame.into_data().unwrap(), left);
    }
    assert!(task.poll(pin!(body.as_mut().frame())).is_pending());
    time.advance(ms(5));
    let Poll::Ready(Some(Ok(frame))) = task.poll(pin!(body.as_mut().frame())) else { panic!("no trailers") };
    assert_eq!(status(&frame.into_trailers().unwrap()), ("4", "the call did not end within 25ms"));
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(None)));
}

#[test]
fn e4_a_stream_that_is_always_ready_ends_at_the_deadline_too() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default().layer(service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Ticks { sleep: Box::pin(sleep(Duration::ZERO)), every: Duration::ZERO }))
    }));
    let response = answered(&task, pin!(service.call(call(&["25m"]))));
    let mut body = pin!(response.into_body());
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(Some(Ok(frame))) if frame.is_data()));
    time.advance(ms(25));
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(Some(Ok(frame))) if frame.is_trailers()));
}

#[test]
fn e4_after_a_shutdown_of_the_engine_a_call_that_waits_is_unavailable() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let mut service =
        GrpcDeadlineLayer::default().layer(service_fn(|_| pending::<Result<Response<Empty<Bytes>>, Infallible>>()));
    let mut answer = pin!(service.call(call(&["1S"])));
    assert!(task.poll(answer.as_mut()).is_pending());
    engine.shutdown();
    assert_eq!(status(answered(&task, answer).headers()), ("14", "the timer engine was shut down"));
}

#[test]
fn e4_a_body_that_has_ended_gets_no_trailers_at_the_deadline() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default()
        .layer(service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("all of it")))) }));
    let response = answered(&task, pin!(service.call(call(&["25m"]))));
    let mut body = pin!(response.into_body());
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(Some(Ok(frame))) if frame.is_data()));
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(None)));
    time.advance(ms(25));
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(None)));
}

#[test]
fn e4_code_that_runs_before_the_future_of_a_call_is_in_its_scope_too() {
    let _time = Paused::new();
    let task = Task::new();
    let mut service = GrpcDeadlineLayer::default().layer(service_fn(|_| {
        let given = Deadline::current().expect("the call is in the scope").remaining();
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{given:?}"))))) }
    }));
    let body = answered(&task, pin!(service.call(call(&["25m"])))).into_body();
    assert_eq!(futures_lite::future::block_on(body.collect()).unwrap().to_bytes(), "25ms");
    assert_eq!(Deadline::current(), None);
}

#[test]
fn e4_a_scope_outside_of_the_layer_makes_no_grpc_answer_to_another_request() {
    let time = Paused::new();
    let task = Task::new();
    let page = |_: Request<()>| async move {
        sleep(ms(60)).await;
        Ok::<_, Infallible>(Response::new("page".to_owned()))
    };
    let mut service = GrpcDeadlineLayer::new(ms(10)).layer(service_fn(page));
    let mut request = call(&[]);
    request.headers_mut().insert(CONTENT_TYPE, "text/html".parse().unwrap());
    let mut answer = pin!(Deadline::after(ms(30)).scope(service.call(request)));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(30));
    assert!(matches!(task.poll(answer.as_mut()), Poll::Ready(Err(elapsed)) if !elapsed.is_stopped()));
}

#[test]
fn e4_a_request_with_another_content_type_than_that_of_grpc_passes_without_a_limit() {
    let time = Paused::new();
    let task = Task::new();
    let page = |request: Request<()>| async move {
        assert_eq!(Deadline::current().and_then(Deadline::instant), None);
        sleep(ms(3_600_000)).await;
        Ok(Response::new(request.uri().path().to_owned()))
    };
    let mut service = GrpcDeadlineLayer::new(ms(10)).layer(service_fn(page));
    let mut request = call(&["soon"]);
    request.headers_mut().insert(CONTENT_TYPE, "text/html".parse().unwrap());
    let mut answer = pin!(service.call(request));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(3_600_000));
    let response = answered(&task, answer);
    assert!(!response.headers().contains_key("grpc-status"));
    assert_eq!(response.body().size_hint().exact(), Some("/a.B/C".len() as u64));

    for content_type in ["application/grpc", "application/grpc+proto"] {
        let mut request = call(&["soon"]);
        request.headers_mut().insert(CONTENT_TYPE, content_type.parse().unwrap());
        assert_eq!(status(answered(&task, pin!(service.call(request))).headers()).0, "3", "{content_type}");
    }
}
