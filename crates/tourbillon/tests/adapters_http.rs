//! `HttpTimeoutLayer`: slow requests are answered with 504 or 408.
#![cfg(all(feature = "http", feature = "test-util"))]

mod support;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use support::{Paused, Task, ms};
use tourbillon::adapters::http::{BodyTimeout, HttpTimeoutLayer, RequestBody, ResponseBody};
use tourbillon::time::{Deadline, Instant, sleep};
use tourbillon::{Clock, Engine};
use tower::{Layer, Service, service_fn};

type Answer = Result<Response<ResponseBody<Full<Bytes>>>, Infallible>;

/// A body whose frames the test sends.
#[derive(Clone, Default)]
struct Upload(Arc<Mutex<UploadState>>);

#[derive(Default)]
struct UploadState {
    parts: VecDeque<Option<&'static str>>,
    reader: Option<Waker>,
}

impl Upload {
    /// Sends a frame, or with `None` the end.
    fn send(&self, part: Option<&'static str>) {
        let mut upload = self.0.lock().unwrap();
        upload.parts.push_back(part);
        if let Some(waker) = upload.reader.take() {
            waker.wake();
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut upload = self.0.lock().unwrap();
        match upload.parts.pop_front() {
            Some(part) => Poll::Ready(part.map(|part| Ok(Frame::data(part.into())))),
            None => {
                upload.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn ok(text: impl Into<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(text.into())))
}

/// Answers with the request's body, or with 400 and the error of the body, as a framework would.
async fn echo(request: Request<RequestBody<Upload>>) -> Result<Response<Full<Bytes>>, Infallible> {
    match request.into_body().collect().await {
        Ok(body) => ok(body.to_bytes()),
        Err(error) => {
            let mut response = Response::new(Full::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            Ok(response)
        }
    }
}

/// Answers after the time that the path says in milliseconds.
async fn after<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let given = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    sleep(ms(request.uri().path()[1..].parse().unwrap())).await;
    ok(format!("{given:?}"))
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

fn put(upload: &Upload) -> Request<Upload> {
    Request::put("/").body(upload.clone()).unwrap()
}

fn text(response: Response<ResponseBody<Full<Bytes>>>) -> String {
    let body = futures_lite::future::block_on(response.into_body().collect()).unwrap();
    String::from_utf8(body.to_bytes().into()).unwrap()
}

fn ready(task: &Task, future: Pin<&mut impl Future<Output = Answer>>) -> Response<ResponseBody<Full<Bytes>>> {
    let Poll::Ready(Ok(response)) = task.poll(future) else { panic!("there is no response") };
    response
}

#[test]
fn e4_a_response_in_time_is_that_of_the_service() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = HttpTimeoutLayer::new(ms(100)).layer(service_fn(after));
    let mut answer = pin!(service.call(get("/99")));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(99));
    let response = ready(&task, answer);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response), "100ms", "the service knows its deadline");
}

#[test]
fn e4_a_slow_service_is_answered_for_with_504_at_the_limit() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = HttpTimeoutLayer::new(ms(1500)).layer(service_fn(after));
    let mut answer = pin!(service.call(get("/1501")));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(1500) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 1);
    let response = ready(&task, answer);
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(response.headers().get(CONNECTION), None, "the connection can go on");
    assert_eq!(response.body().size_hint().exact(), Some("no response within 1.5s\n".len() as u64));
    assert_eq!(text(response), "no response within 1.5s\n");
}

#[test]
fn e4_a_client_that_is_slow_with_its_body_gets_408_at_the_limit_and_the_connection_is_closed() {
    let time = Paused::new();
    for (version, close) in [(Version::HTTP_10, true), (Version::HTTP_11, true), (Version::HTTP_2, false)] {
        let task = Task::new();
        let upload = Upload::default();
        let mut service = HttpTimeoutLayer::new(ms(100)).layer(service_fn(echo));
        let mut request = put(&upload);
        *request.version_mut() = version;
        let mut answer = pin!(service.call(request));
        upload.send(Some("a"));
        assert!(task.poll(answer.as_mut()).is_pending());
        time.advance(ms(100));
        let response = ready(&task, answer);
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(response.headers().get(CONNECTION).is_some_and(|value| value == "close"), close, "{version:?}");
        assert_eq!(text(response), "the request body was not complete within 100ms\n");
    }
}

#[test]
fn e4_a_service_that_has_the_whole_body_is_itself_the_slow_one() {
    let time = Paused::new();
    let task = Task::new();
    let upload = Upload::default();
    let mut service =
        HttpTimeoutLayer::new(ms(100)).layer(service_fn(|request: Request<RequestBody<Upload>>| async move {
            request.into_body().collect().await.unwrap();
            pending::<()>().await;
            ok("")
        }));
    let mut answer = pin!(service.call(put(&upload)));
    assert!(task.poll(answer.as_mut()).is_pending());
    upload.send(None);
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(100));
    assert_eq!(ready(&task, answer).status(), StatusCode::GATEWAY_TIMEOUT);
}

#[test]
fn e4_a_service_that_has_dropped_the_body_is_itself_the_slow_one() {
    let time = Paused::new();
    let task = Task::new();
    let upload = Upload::default();
    let mut service =
        HttpTimeoutLayer::new(ms(100)).layer(service_fn(|request: Request<RequestBody<Upload>>| async move {
            let mut body = Box::pin(request.into_body());
            assert!(futures_lite::future::poll_once(body.frame()).await.is_none());
            drop(body);
            pending::<()>().await;
            ok("")
        }));
    let mut answer = pin!(service.call(put(&upload)));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(100));
    assert_eq!(ready(&task, answer).status(), StatusCode::GATEWAY_TIMEOUT);
}

#[test]
fn e4_a_client_that_stops_sending_gets_408_after_the_idle_limit_whatever_the_service_answers() {
    let time = Paused::new();
    let task = Task::new();
    let upload = Upload::default();
    let mut service = HttpTimeoutLayer::new(Duration::MAX).body_idle(ms(20)).layer(service_fn(echo));
    let mut answer = pin!(service.call(put(&upload)));
    for part in ["a", "b", "c"] {
        assert!(task.poll(answer.as_mut()).is_pending());
        time.advance(ms(20) - Duration::from_nanos(1));
        upload.send(Some(part));
    }
    assert!(task.poll(answer.as_mut()).is_pending(), "each part has its own limit");
    time.advance(ms(20));
    let response = ready(&task, answer);
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT, "and not the 400 of the service");
    assert_eq!(text(response), "no part of the request body came within 20ms\n");
}

#[test]
fn e4_the_time_in_which_the_service_does_not_read_the_body_is_not_idle_time_of_the_client() {
    let time = Paused::new();
    let task = Task::new();
    let upload = Upload::default();
    let mut service = HttpTimeoutLayer::new(Duration::MAX).body_idle(ms(20)).layer(service_fn(
        |request: Request<RequestBody<Upload>>| async move {
            sleep(ms(500)).await;
            echo(request).await
        },
    ));
    let mut answer = pin!(service.call(put(&upload)));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(500));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(19));
    upload.send(Some("late, but not for this reason"));
    upload.send(None);
    let response = ready(&task, answer);
    assert_eq!((response.status(), text(response).as_str()), (StatusCode::OK, "late, but not for this reason"));
}

#[test]
fn e4_the_error_of_an_idle_body_is_typed_and_the_body_ends_after_it() {
    let time = Paused::new();
    let task = Task::new();
    let seen = Arc::new(Mutex::new(None));
    let mut service = HttpTimeoutLayer::new(Duration::MAX).body_idle(ms(20)).layer(service_fn(
        |request: Request<RequestBody<Upload>>| {
            let seen = Arc::clone(&seen);
            async move {
                let mut body = Box::pin(request.into_body());
                let error = body.frame().await.unwrap().unwrap_err();
                *seen.lock().unwrap() = Some((*error.downcast::<BodyTimeout>().unwrap(), body.frame().await.is_none()));
                // A service that waits for something else instead of giving up is answered for all the same.
                pending::<()>().await;
                ok("")
            }
        },
    ));
    let mut answer = pin!(service.call(put(&Upload::default())));
    assert!(task.poll(answer.as_mut()).is_pending());
    time.advance(ms(20));
    assert_eq!(ready(&task, answer).status(), StatusCode::REQUEST_TIMEOUT);
    let (error, has_ended) = seen.lock().unwrap().take().unwrap();
    assert_eq!((error.limit(), has_ended), (ms(20), true));
    assert_eq!(error.to_string(), "no part of the request body came within 20ms");
}

#[test]
fn e4_the_limit_can_depend_on_the_request() {
    let time = Paused::new();
    let task = Task::new();
    let limit = |request: &Request<Empty<Bytes>>| ms(if request.uri().path() == "/50" { 60 } else { 10 });
    let mut service = HttpTimeoutLayer::new(limit).layer(service_fn(after));
    let (mut long, mut short) = (pin!(service.call(get("/50"))), pin!(service.call(get("/40"))));
    assert!(task.poll(long.as_mut()).is_pending());
    assert!(task.poll(short.as_mut()).is_pending());
    time.advance(ms(50));
    assert_eq!(ready(&task, long).status(), StatusCode::OK);
    assert_eq!(
        ready(&task, short).status(),
        StatusCode::OK,
        "a response that is ready wins over a limit that has passed"
    );

    let mut short = pin!(service.call(get("/40")));
    assert!(task.poll(short.as_mut()).is_pending());
    time.advance(ms(10));
    assert_eq!(text(ready(&task, short)), "no response within 10ms\n");
}

#[test]
fn e4_a_limit_of_zero_lets_only_responses_through_that_are_ready_at_once() {
    let _time = Paused::new();
    let task = Task::new();
    let mut service = HttpTimeoutLayer::new(Duration::ZERO).body_idle(Duration::ZERO).layer(service_fn(echo));
    let upload = Upload::default();
    upload.send(Some("all"));
    upload.send(None);
    assert_eq!(ready(&task, pin!(service.call(put(&upload)))).status(), StatusCode::OK);
    assert_eq!(ready(&task, pin!(service.call(put(&upload)))).status(), StatusCode::REQUEST_TIMEOUT);
}

#[test]
fn b7_the_text_says_the_time_that_the_caller_had_left_if_that_was_less() {
    let time = Paused::new();
    let task = Task::new();
    let mut service = HttpTimeoutLayer::new(ms(100)).layer(service_fn(after));
    let start = Instant::now();
    let mut call = pin!(Deadline::after(ms(30)).scope(async { service.call(get("/5000")).await }));
    assert!(task.poll(call.as_mut()).is_pending());
    time.advance(ms(30));
    let Poll::Ready(Ok(Ok(response))) = task.poll(call) else { panic!("there is no response") };
    assert_eq!(text(response), "no response within 30ms\n");
    assert_eq!(start.elapsed(), ms(30));
}

#[test]
fn e4_after_a_shutdown_of_the_engine_a_request_that_waits_is_answered_with_503() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let mut service = HttpTimeoutLayer::new(ms(100)).layer(service_fn(|_: Request<RequestBody<Empty<Bytes>>>| async {
        pending::<()>().await;
        ok("")
    }));
    let mut answer = pin!(service.call(get("/")));
    assert!(task.poll(answer.as_mut()).is_pending());
    engine.shutdown();
    let response = ready(&task, answer);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(response), "the timer engine was shut down\n");
}

#[test]
fn e4_after_a_shutdown_of_the_engine_a_body_that_waits_fails_once_and_has_ended() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let (sender, bodies) = std::sync::mpsc::channel();
    let mut service =
        HttpTimeoutLayer::new(ms(100)).body_idle(ms(20)).layer(service_fn(|request: Request<RequestBody<Upload>>| {
            sender.send(request.into_body()).unwrap();
            async { ok("") }
        }));
    drop(service.call(put(&Upload::default())));
    let mut body = Box::pin(bodies.recv().unwrap());
    assert!(task.poll(pin!(body.as_mut().frame())).is_pending());
    engine.shutdown();
    let Poll::Ready(Some(Err(error))) = task.poll(pin!(body.as_mut().frame())) else { panic!("the body waits on") };
    assert!(error.downcast::<tourbillon::time::error::Elapsed>().unwrap().is_stopped());
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), None, "bytes are missing");
    assert!(matches!(task.poll(pin!(body.as_mut().frame())), Poll::Ready(None)));
}
