//! `StreamExt`: timeouts, throttling and chunks for streams; and `yield_now`.
#![cfg(all(feature = "futures", feature = "test-util"))]

mod random;
mod support;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::Stream;
use random::{Random, seed};
use support::{Paused, Task, manual, ms, years};
use tokio::time as theirs;
use tokio_stream::StreamExt as TheirStreamExt;
use tourbillon::time::{self as ours, Instant, StreamExt, error, yield_now};

const STORIES: u64 = 200;
const STEPS: u32 = 150;

/// A stream whose items the test sends; `None` is the end. It panics if it is polled after its end, as some streams do.
#[derive(Clone, Default)]
struct Source(Rc<RefCell<SourceState>>);

#[derive(Default)]
struct SourceState {
    items: VecDeque<Option<u32>>,
    waker: Option<Waker>,
    has_ended: bool,
}

impl Source {
    fn send(&self, item: Option<u32>) {
        let mut state = self.0.borrow_mut();
        state.items.push_back(item);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl Stream for Source {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        let mut state = self.0.borrow_mut();
        assert!(!state.has_ended, "polled after the end");
        match state.items.pop_front() {
            Some(item) => {
                state.has_ended = item.is_none();
                Poll::Ready(item)
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let state = self.0.borrow();
        let items = state.items.iter().flatten().count();
        (items, state.items.back().is_some_and(Option::is_none).then_some(items))
    }
}

fn next<S: Stream>(task: &Task, stream: &mut Pin<Box<S>>) -> Poll<Option<S::Item>> {
    stream.as_mut().poll_next(&mut task.cx())
}

/// Runs one random story on two streams, ours and Tokio's: the same items are sent to both, and both are polled at the same times.
async fn compare<A: Stream, B: Stream>(
    mut random: Random,
    name: String,
    make: impl FnOnce(&mut Random, Source, Source) -> (A, B),
) where
    A::Item: Into<Seen>,
    B::Item: Into<Seen>,
{
    ours::pause();
    let (source, source_theirs) = (Source::default(), Source::default());
    let (stream, stream_theirs) = make(&mut random, source.clone(), source_theirs.clone());
    let (mut stream, mut stream_theirs) = (Box::pin(stream), Box::pin(stream_theirs));
    let (task, task_theirs) = (Task::new(), Task::new());
    let end = random.below(u64::from(STEPS)) as u32;
    let mut waits = false;
    for step in 0..STEPS {
        match random.below(8) {
            0..3 if step < end => {
                source.send(Some(step));
                source_theirs.send(Some(step));
            }
            3..5 => {
                let by = random.millis([2, 10, 60]);
                if random.below(2) == 0 { ours::advance(by).await } else { theirs::advance(by).await }
            }
            _ => {
                // Tokio wakes more often, for limits of chunks that were complete before, for example.
                let is_woken = task.wakes() > 0;
                let seen = next(&task, &mut stream).map(|item| item.map(Into::into));
                let seen_theirs = next(&task_theirs, &mut stream_theirs).map(|item| item.map(Into::into));
                assert_eq!(seen, seen_theirs, "{name}, step {step}");
                assert!(
                    !waits || is_woken || seen.is_pending(),
                    "{name}, step {step}: the task was not woken for {seen:?}"
                );
                if matches!(seen, Poll::Ready(None)) {
                    return;
                }
                waits = seen.is_pending();
            }
        }
        if step == end {
            source.send(None);
            source_theirs.send(None);
        }
    }
}

/// What a stream yields, in a form that is the same for both crates.
#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Item(u32),
    Chunk(Vec<u32>),
    Elapsed(String),
}

impl From<u32> for Seen {
    fn from(item: u32) -> Seen {
        Seen::Item(item)
    }
}

impl From<Vec<u32>> for Seen {
    fn from(items: Vec<u32>) -> Seen {
        Seen::Chunk(items)
    }
}

impl<E: std::error::Error> From<Result<u32, E>> for Seen {
    fn from(result: Result<u32, E>) -> Seen {
        result.map_or_else(|error| Seen::Elapsed(error.to_string()), Seen::Item)
    }
}

fn in_tokio(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::unconstrained(story));
}

fn stories<A: Stream, B: Stream>(make: impl Fn(&mut Random, Source, Source) -> (A, B))
where
    A::Item: Into<Seen>,
    B::Item: Into<Seen>,
{
    let seed = seed();
    for story in 0..STORIES {
        in_tokio(compare(Random(seed ^ story), format!("story {story}"), &make));
    }
}

#[test]
fn e6_a_stream_with_a_timeout_yields_what_tokios_does_at_the_same_times() {
    stories(|random, ours, theirs| {
        let limit = ms(1 + random.below(40));
        (StreamExt::timeout(ours, limit), TheirStreamExt::timeout(theirs, limit))
    });
}

#[test]
fn e6_a_stream_with_repeating_timeouts_yields_what_tokios_does_at_the_same_times() {
    stories(|random, source, source_theirs| {
        let (first, period) = (ms(1 + random.below(20)), ms(1 + random.below(40)));
        let interval = ours::interval_at(Instant::now() + first, period);
        let interval_theirs = theirs::interval_at(theirs::Instant::now() + first, period);
        (
            StreamExt::timeout_repeating(source, interval),
            TheirStreamExt::timeout_repeating(source_theirs, interval_theirs),
        )
    });
}

#[test]
fn e6_a_throttled_stream_yields_what_tokios_does_at_the_same_times() {
    stories(|random, ours, theirs| {
        let duration = ms(random.below(40));
        (StreamExt::throttle(ours, duration), TheirStreamExt::throttle(theirs, duration))
    });
}

#[test]
fn e6_chunks_are_those_of_tokio_at_the_same_times() {
    stories(|random, ours, theirs| {
        let (size, duration) = (1 + random.below(5) as usize, ms(1 + random.below(40)));
        (StreamExt::chunks_timeout(ours, size, duration), TheirStreamExt::chunks_timeout(theirs, size, duration))
    });
}

#[test]
fn e6_the_timeout_of_a_stream_is_exact_to_the_nanosecond() {
    let time = Paused::new();
    let task = Task::new();
    let source = Source::default();
    let mut stream = Box::pin(StreamExt::timeout(source.clone(), ms(10)));
    assert!(next(&task, &mut stream).is_pending());
    time.advance(ms(10) - Duration::from_nanos(1));
    assert_eq!(task.wakes(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(task.wakes(), 1);
    let Poll::Ready(Some(Err(elapsed))) = next(&task, &mut stream) else { panic!("not elapsed") };
    assert!(!elapsed.is_stopped());
    assert!(next(&task, &mut stream).is_pending(), "one error for an item");
    source.send(None);
    assert_eq!(next(&task, &mut stream), Poll::Ready(None));
    assert_eq!(next(&task, &mut stream), Poll::Ready(None), "a stream that has ended stays so");
}

#[test]
fn e6_durations_of_zero_are_valid() {
    let _time = Paused::new();
    let task = Task::new();
    let source = Source::default();
    source.send(Some(1));
    source.send(Some(2));
    let mut chunks = Box::pin(StreamExt::chunks_timeout(source.clone(), 10, Duration::ZERO));
    assert_eq!(next(&task, &mut chunks), Poll::Ready(Some(vec![1, 2])), "what is ready at once");
    assert!(next(&task, &mut chunks).is_pending());

    let source = Source::default();
    source.send(Some(1));
    let mut limited = Box::pin(StreamExt::timeout(source.clone(), Duration::ZERO));
    assert_eq!(next(&task, &mut limited), Poll::Ready(Some(Ok(1))), "an item that is ready wins");
    assert!(matches!(next(&task, &mut limited), Poll::Ready(Some(Err(_)))));

    let source = Source::default();
    let mut throttled = Box::pin(StreamExt::throttle(source.clone(), Duration::ZERO));
    for item in 0..1000 {
        source.send(Some(item));
        assert_eq!(next(&task, &mut throttled), Poll::Ready(Some(item)));
    }
}

#[test]
fn p5_the_longest_duration_is_no_limit() {
    let time = Paused::new();
    let task = Task::new();
    let source = Source::default();
    source.send(Some(1));
    let mut chunks = Box::pin(StreamExt::chunks_timeout(source.clone(), usize::MAX, Duration::MAX));
    let mut limited = Box::pin(StreamExt::timeout(Source::default(), Duration::MAX));
    assert!(next(&task, &mut chunks).is_pending(), "and the largest size reserves no memory for it");
    assert!(next(&task, &mut limited).is_pending());
    time.advance(years(200));
    assert!(next(&task, &mut limited).is_pending());
    assert!(next(&task, &mut chunks).is_pending());
    source.send(None);
    assert_eq!(next(&task, &mut chunks), Poll::Ready(Some(vec![1])));
}

#[test]
fn e6_chunks_of_size_zero_are_an_error_or_the_panic_of_tokio_stream() {
    let error = StreamExt::try_chunks_timeout(Source::default(), 0, ms(1)).unwrap_err();
    assert_eq!(error.to_string(), "`max_size` must be non-zero.");
    let panic = catch_unwind(AssertUnwindSafe(|| StreamExt::chunks_timeout(Source::default(), 0, ms(1)))).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "`max_size` must be non-zero.");
}

#[test]
fn e6_the_items_of_an_incomplete_chunk_can_be_taken() {
    let time = Paused::new();
    let task = Task::new();
    let source = Source::default();
    let mut chunks = Box::pin(StreamExt::chunks_timeout(source.clone(), 3, ms(10)));
    for item in 0..2 {
        source.send(Some(item));
        assert!(next(&task, &mut chunks).is_pending());
    }
    assert_eq!(chunks.size_hint(), (1, None));
    assert_eq!(chunks.as_mut().into_remainder(), [0, 1]);
    time.advance(ms(10));
    assert!(next(&task, &mut chunks).is_pending(), "the limit has gone with the items");
    source.send(Some(2));
    assert!(next(&task, &mut chunks).is_pending());
    time.advance(ms(10));
    assert_eq!(next(&task, &mut chunks), Poll::Ready(Some(vec![2])));
}

#[test]
fn e6_a_size_hint_never_promises_what_does_not_come() {
    let _time = Paused::new();
    let task = Task::new();
    let source = Source::default();
    (0..7).for_each(|item| source.send(Some(item)));
    source.send(None);
    let chunks = StreamExt::chunks_timeout(source.clone(), 3, ms(10));
    assert_eq!(chunks.size_hint(), (3, Some(7)));
    assert_eq!(StreamExt::timeout(source.clone(), ms(1)).size_hint(), (7, Some(15)));
    assert_eq!(StreamExt::timeout_repeating(source.clone(), ours::interval(ms(1))).size_hint(), (7, None));
    assert_eq!(StreamExt::throttle(source.clone(), ms(1)).size_hint(), (7, Some(7)));
    let mut chunks = Box::pin(chunks);
    while let Poll::Ready(Some(_)) = next(&task, &mut chunks) {}
    assert_eq!(chunks.size_hint(), (0, Some(0)));
}

#[test]
fn d32_after_a_shutdown_of_the_engine_no_stream_hangs_and_none_is_busy() {
    let engine = manual();
    let _entered = engine.enter();
    let task = Task::new();
    let (limited, repeating, throttled, chunked) =
        (Source::default(), Source::default(), Source::default(), Source::default());
    let mut limited_stream = Box::pin(StreamExt::timeout(limited, ms(10)));
    let mut repeating_stream =
        Box::pin(StreamExt::timeout_repeating(repeating.clone(), ours::interval_at(Instant::now() + ms(10), ms(10))));
    let mut throttled_stream = Box::pin(StreamExt::throttle(throttled.clone(), ms(10)));
    let mut chunks = Box::pin(StreamExt::chunks_timeout(chunked.clone(), 2, ms(10)));
    throttled.send(Some(1));
    assert_eq!(next(&task, &mut throttled_stream), Poll::Ready(Some(1)));
    throttled.send(Some(2));
    chunked.send(Some(1));
    assert!(next(&task, &mut limited_stream).is_pending());
    assert!(next(&task, &mut repeating_stream).is_pending());
    assert!(next(&task, &mut throttled_stream).is_pending());
    assert!(next(&task, &mut chunks).is_pending());

    engine.shutdown();
    let is_stopped = |seen: Poll<Option<Result<u32, error::Elapsed>>>| matches!(seen, Poll::Ready(Some(Err(elapsed))) if elapsed.is_stopped());
    assert!(is_stopped(next(&task, &mut limited_stream)));
    assert!(next(&task, &mut limited_stream).is_pending());
    assert!(is_stopped(next(&task, &mut repeating_stream)));
    assert!(next(&task, &mut repeating_stream).is_pending());
    assert_eq!(next(&task, &mut throttled_stream), Poll::Ready(Some(2)));
    assert_eq!(next(&task, &mut chunks), Poll::Ready(Some(vec![1])));
    repeating.send(Some(1));
    assert_eq!(next(&task, &mut repeating_stream), Poll::Ready(Some(Ok(1))));
}

#[test]
fn t12_a_stream_that_uses_up_the_budget_of_its_task_does_not_prevent_its_own_timeout() {
    /// Uses up the budget of a Tokio task in each poll, without an item.
    struct Greedy;

    impl Stream for Greedy {
        type Item = u32;

        fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
            while let Poll::Ready(unit) = tokio::task::coop::poll_proceed(cx) {
                unit.made_progress();
            }
            Poll::Pending
        }
    }

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let limited = pin!(StreamExt::timeout(Greedy, ms(0)));
        assert!(TheirStreamExt::next(&mut { limited }).await.unwrap().is_err());
        let repeating = pin!(StreamExt::timeout_repeating(Greedy, ours::interval(ms(10))));
        assert!(TheirStreamExt::next(&mut { repeating }).await.unwrap().is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn e6_yield_now_lets_each_other_task_run_once_and_takes_no_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let log = Rc::new(RefCell::new(Vec::new()));
        let tasks = tokio::task::LocalSet::new();
        for name in ["a", "b"] {
            let log = Rc::clone(&log);
            tasks.spawn_local(async move {
                for round in 0..3 {
                    log.borrow_mut().push((name, round));
                    yield_now().await;
                }
            });
        }
        tasks.await;
        assert_eq!(*log.borrow(), [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
        assert_eq!(start.elapsed(), Duration::ZERO);
    });

    let task = Task::new();
    let mut once = pin!(yield_now());
    assert!(task.poll(once.as_mut()).is_pending());
    assert_eq!(task.wakes(), 1, "under any executor");
    assert!(task.poll(once).is_ready());
}
