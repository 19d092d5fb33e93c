//! Runs that take longer than their time limit: futures are dropped, closures are reported.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tourbillon::scheduler::{Backoff, Cause, Plan, Run, RunStatus, ScheduleErrorKind, Scheduler};
use tourbillon::{Clock, Engine};

use crate::support::{eventually, manual, ms};
use crate::{Count, Gate, Story};

#[test]
fn e5_an_async_run_beyond_its_limit_is_dropped_and_has_failed() {
    let causes: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&causes);
    let story = Story::with(|builder| {
        builder.on_failure(move |failure| {
            assert!(matches!(failure.cause, Cause::TimeLimit(limit) if limit == ms(20)));
            noted.lock().unwrap().push(failure.to_string());
        })
    });
    let owned = Arc::new(());
    let held = Arc::clone(&owned);
    let job = move |_: Run<&'static str>| {
        let held = Arc::clone(&held);
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    };
    story.scheduler.schedule_async("stuck", Plan::every(ms(100)).time_limit(ms(20)), job).unwrap();
    story.pass(ms(119));
    assert_eq!((story.scheduler.stats().running, Arc::strong_count(&owned)), (1, 3));
    story.pass(ms(1));
    assert_eq!((story.scheduler.stats().running, Arc::strong_count(&owned)), (0, 2), "its future is dropped");
    let report = story.scheduler.report("stuck").unwrap();
    assert_eq!((report.failed, report.over_limit), (1, 1));
    let last = report.last_run.unwrap();
    assert_eq!((last.status, last.duration), (RunStatus::TimedOut, ms(20)));
    assert_eq!(last.began, story.instant(ms(100)));
    assert!(last.error.unwrap().contains("20ms"));
    story.pass(ms(100));
    assert_eq!(causes.lock().unwrap().len(), 2, "the plan goes on");
}

#[test]
fn e5_an_async_run_within_its_limit_is_left_alone_and_one_that_is_ready_at_the_limit_counts() {
    let story = Story::new();
    for (key, takes) in [("quick", 5), ("just", 20)] {
        story.add_slow(key, Plan::once(ms(10)).time_limit(ms(20)), ms(takes));
    }
    story.pass(ms(100));
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.failed, stats.over_limit), (2, 0, 0));
}

#[test]
fn e5_a_run_that_exceeds_its_limit_is_repeated() {
    let story = Story::new();
    let count = Count::default();
    let counted = count.clone();
    let job = move |run: Run<&'static str>| {
        counted.add();
        let takes = if run.attempt() < 3 { Duration::MAX } else { ms(1) };
        tourbillon::time::sleep(takes)
    };
    let plan = Plan::once(ms(10)).time_limit(ms(50)).retry(5, Backoff::fixed(ms(10)));
    story.scheduler.schedule_async("job", plan, job).unwrap();
    story.pass(ms(1000));
    assert_eq!((count.get(), story.scheduler.stats().over_limit, story.scheduler.len()), (3, 2, 0));
}

/// A scheduler with one thread, and a closure with a limit of 20 ms that is due after 100 ms and blocks until `opener` is dropped.
struct LimitedRun {
    scheduler: Scheduler<&'static str>,
    /// How many failures were reported.
    reports: Count,
    begun: Count,
    opener: Sender<()>,
}

impl LimitedRun {
    fn new(engine: &Engine) -> LimitedRun {
        let (reports, begun) = (Count::default(), Count::default());
        let reported = reports.clone();
        let builder = Scheduler::builder().engine(engine).threads(1);
        let scheduler = builder.on_failure(move |_| reported.add()).build().unwrap();
        let (opener, gate) = Gate::new();
        scheduler.schedule("limited", Plan::every(ms(100)).time_limit(ms(20)), gate.job(&begun)).unwrap();
        LimitedRun { scheduler, reports, begun, opener }
    }
}

#[test]
fn e5_a_closure_beyond_its_limit_is_reported_while_it_still_runs_and_only_once() {
    let engine = manual();
    let LimitedRun { scheduler, reports, begun, opener } = LimitedRun::new(&engine);
    engine.advance(ms(100));
    eventually("the run has begun", || begun.get() == 1);
    engine.advance(ms(20));
    eventually("the run is reported", || reports.get() == 1);
    let report = scheduler.report("limited").unwrap();
    assert_eq!((report.over_limit, report.failed, report.last_run), (1, 0, None), "it has not ended");
    drop(opener);
    eventually("the run has ended", || scheduler.stats().running == 0);
    let report = scheduler.report("limited").unwrap();
    assert_eq!((report.over_limit, report.failed, reports.get()), (1, 0, 1), "it has not failed");
    assert_eq!(report.last_run.unwrap().status, RunStatus::Succeeded);
}

#[test]
fn e5_a_closure_that_runs_while_its_engine_is_shut_down_is_not_reported_as_beyond_its_limit() {
    let engine = manual();
    let LimitedRun { scheduler, reports, begun, opener } = LimitedRun::new(&engine);
    engine.advance(ms(100));
    eventually("the run has begun", || begun.get() == 1);
    engine.shutdown();
    drop(opener);
    eventually("the run has ended", || scheduler.stats().running == 0);
    assert_eq!((reports.get(), scheduler.stats().over_limit), (0, 0));
}

#[test]
fn e5_in_a_full_engine_a_closure_is_reported_at_its_limit_and_not_when_it_gets_a_slot() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(2).build().unwrap();
    let LimitedRun { scheduler: _scheduler, reports, begun, opener } = LimitedRun::new(&engine);
    let others: Vec<_> = (0..2).filter_map(|_| engine.try_sleep(Duration::from_secs(60)).ok()).collect();
    engine.advance(ms(100));
    eventually("the run has begun", || begun.get() == 1);
    engine.advance(ms(10));
    drop(others);
    engine.advance(ms(5));
    assert_eq!(reports.get(), 0, "a free slot is not the end of the limit");
    engine.advance(ms(10));
    eventually("the run is reported", || reports.get() == 1);
    drop(opener);
}

#[test]
fn e5_without_threads_a_closure_beyond_its_limit_is_reported_when_it_returns() {
    let story = Story::new();
    let engine = story.engine.clone();
    let job = move |_: &_| engine.clock().advance(ms(30));
    story.scheduler.schedule("slow", Plan::once(ms(10)).time_limit(ms(20)), job).unwrap();
    story.add("quick", Plan::once(ms(100)).time_limit(ms(20)));
    story.pass(ms(200));
    assert_eq!(story.scheduler.stats().over_limit, 1);
}

#[test]
fn e5_g8_a_limit_of_zero_is_refused() {
    let story = Story::new();
    let error = story.scheduler.schedule("zero", Plan::every(ms(1)).time_limit(Duration::ZERO), |_| ()).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::ZeroTimeLimit);
    assert!(story.scheduler.schedule("ever", Plan::every(ms(1)).time_limit(Duration::MAX), |_| ()).is_ok());
    story.pass(ms(5));
    assert_eq!(story.scheduler.stats().over_limit, 0);
}

#[test]
fn p7_a_run_with_a_limit_leaves_no_timer_behind() {
    let engine = manual();
    let scheduler: Scheduler<u8> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    scheduler.schedule(0, Plan::every(ms(1)).times(100).time_limit(ms(1000)), |_| ()).unwrap();
    scheduler.schedule_async(1, Plan::every(ms(1)).times(100).time_limit(ms(1000)), |_| async {}).unwrap();
    engine.advance(ms(200));
    assert!(scheduler.is_empty());
    drop(scheduler);
    eventually("no timer is left", || {
        engine.turn();
        engine.stats().pending == 0
    });
}
