//! Runs that fail are repeated, after a backoff, and never beyond the next regular time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tourbillon::scheduler::{
    Backoff, BackoffError, Overlap, Plan, Remaining, Run, RunStatus, ScheduleErrorKind, Scheduler, Shutdown,
};

use crate::support::{manual, ms};
use crate::{Count, Story};

/// The attempts of runs, and when they were made, in milliseconds.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<(u32, u64)>>>);

impl Attempts {
    /// Returns a job that fails in each of its first `failures` attempts.
    fn job(&self, story: &Story, failures: u32) -> impl Fn(&Run<&'static str>) -> Result<(), String> + use<> {
        let (log, engine, start) = (Arc::clone(&self.0), story.engine.clone(), story.start);
        move |run| {
            log.lock().unwrap().push((run.attempt(), (engine.clock().now() - start).as_nanos() / 1_000_000));
            if run.attempt() <= failures { Err(format!("attempt {}", run.attempt())) } else { Ok(()) }
        }
    }

    fn take(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn exact(first: u64) -> Backoff {
    Backoff::exponential(ms(first)).jitter(0.0)
}

#[test]
fn e5_a_failed_run_is_repeated_after_each_delay_of_the_backoff_until_it_succeeds() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::every(ms(1000)).retry(5, exact(10));
    story.scheduler.schedule("job", plan, attempts.job(&story, 3)).unwrap();
    story.pass(ms(1999));
    assert_eq!(attempts.take(), [(1, 1000), (2, 1010), (3, 1030), (4, 1070)]);
    let report = story.scheduler.report("job").unwrap();
    assert_eq!((report.runs, report.failed, report.retried), (4, 3, 3));
    assert_eq!(report.next_retry, None);
    let last = report.last_run.unwrap();
    assert_eq!((last.status, last.attempt, last.error), (RunStatus::Succeeded, 4, None));
    assert_eq!((last.began, last.duration), (story.instant(ms(1070)), ms(0)));
    assert_eq!(report.last_failure.as_deref(), Some("failed: attempt 3"));
    // The regular times are those of the plan, and each begins with all its attempts.
    story.pass(ms(1));
    assert_eq!(attempts.take(), [(1, 2000)]);
    assert_eq!(story.scheduler.stats().retried, 3);
}

#[test]
fn e5_after_its_last_retry_a_run_is_given_up_and_the_plan_goes_on() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::every(ms(1000)).times(2).retry(2, Backoff::fixed(ms(100)));
    story.scheduler.schedule("job", plan, attempts.job(&story, u32::MAX)).unwrap();
    story.pass(ms(5000));
    assert_eq!(attempts.take(), [(1, 1000), (2, 1100), (3, 1200), (1, 2000), (2, 2100), (3, 2200)]);
    assert!(!story.scheduler.contains("job"), "it is removed after the last retry of its last run");
}

#[test]
fn e5_retries_use_up_none_of_the_times_and_the_job_is_there_until_they_are_over() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::once(ms(10)).retry(3, exact(10));
    story.scheduler.schedule("job", plan, attempts.job(&story, 2)).unwrap();
    story.pass(ms(15));
    assert_eq!(story.scheduler.remaining("job"), Some(Remaining::Runs(0)));
    let next = story.scheduler.report("job").unwrap().next_retry;
    assert_eq!((next, story.scheduler.next_run("job")), (Some(story.instant(ms(20))), None));
    story.pass(ms(100));
    assert_eq!(attempts.take(), [(1, 10), (2, 20), (3, 40)]);
    assert!(!story.scheduler.contains("job"));
}

#[test]
fn e5_a_retry_that_would_not_come_before_the_next_regular_run_is_not_made() {
    let (story, attempts) = (Story::new(), Attempts::default());
    // Delays of 40 and 80: the second would be due at 220, after the regular run at 200.
    let plan = Plan::every(ms(100)).retry(9, exact(40));
    story.scheduler.schedule("job", plan, attempts.job(&story, u32::MAX)).unwrap();
    story.pass(ms(250));
    assert_eq!(attempts.take(), [(1, 100), (2, 140), (1, 200), (2, 240)]);
    // A delay that ends exactly at the regular time is not before it.
    let plan = Plan::every(ms(100)).first_at(story.instant(ms(300))).retry(9, exact(50));
    story.scheduler.reschedule("job", plan).unwrap();
    story.pass(ms(200));
    assert_eq!(attempts.take(), [(1, 300), (2, 350), (1, 400), (2, 450)]);
}

#[test]
fn e5_panics_and_async_runs_are_repeated_too() {
    let story = Story::new();
    let count = Count::default();
    let counted = count.clone();
    let job = move |run: &Run<&'static str>| {
        counted.add();
        assert!(run.attempt() > 2, "planned");
    };
    story.scheduler.schedule("panics", Plan::once(ms(10)).retry(5, exact(1)), job).unwrap();
    let counted = count.clone();
    let job = move |run: Run<&'static str>| {
        let counted = counted.clone();
        async move {
            tourbillon::time::sleep(ms(3)).await;
            counted.add();
            if run.attempt() > 2 { Ok(()) } else { Err("not yet") }
        }
    };
    story.scheduler.schedule_async("async", Plan::once(ms(10)).retry(5, exact(1)), job).unwrap();
    story.pass(ms(100));
    assert_eq!((count.get(), story.scheduler.len(), story.scheduler.stats().failed), (6, 0, 4));
}

#[test]
fn e5_a_pending_retry_ends_with_a_pause_a_new_plan_a_removal_and_a_shutdown() {
    type Change = fn(&Scheduler<&'static str>);
    let changes: [Change; 4] = [
        |scheduler| assert!(scheduler.pause("job") && scheduler.resume("job")),
        |scheduler| scheduler.reschedule("job", Plan::every(ms(500))).unwrap(),
        |scheduler| assert!(scheduler.remove("job")),
        |scheduler| drop(scheduler.shutdown(Shutdown::Drain)),
    ];
    for change in changes {
        let (story, attempts) = (Story::new(), Attempts::default());
        let plan = Plan::every(ms(1000)).first_at(story.instant(ms(10))).retry(3, exact(100));
        story.scheduler.schedule("job", plan, attempts.job(&story, u32::MAX)).unwrap();
        story.pass(ms(50));
        assert_eq!(attempts.take(), [(1, 10)]);
        change(&story.scheduler);
        story.pass(ms(300));
        assert_eq!(attempts.take(), []);
        assert!(story.scheduler.report("job").is_none_or(|report| report.next_retry.is_none()));
    }
}

#[test]
fn e5_a_retry_that_is_due_while_the_scheduler_is_stopped_is_made_at_its_start() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::every(ms(1000)).first_at(story.instant(ms(10))).retry(3, exact(100));
    story.scheduler.schedule("job", plan, attempts.job(&story, 1)).unwrap();
    story.pass(ms(50));
    story.scheduler.stop();
    story.pass(ms(150));
    assert_eq!(attempts.take(), [(1, 10)]);
    story.scheduler.start();
    story.turn();
    assert_eq!(attempts.take(), [(2, 200)]);
}

#[test]
fn e5_a_retry_that_is_not_made_before_the_next_regular_time_gives_way_to_the_regular_run() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::every(ms(100)).retry(3, exact(40));
    story.scheduler.schedule("job", plan, attempts.job(&story, 1)).unwrap();
    story.add("other", Plan::once(ms(170)));
    story.pass(ms(100));
    assert_eq!(attempts.take(), [(1, 100)]);
    // The retry of 140 and the regular run of 200 are both due.
    story.stall(ms(105));
    assert_eq!(attempts.take(), [(1, 205)]);
    let due = story.made().iter().map(|made| (made.key, made.due / 1_000_000)).collect::<Vec<_>>();
    assert_eq!(due, [("other", 170)], "jobs are run in the order of their regular times");
    assert_eq!(story.scheduler.report("job").unwrap().runs, 2);
    // The regular run has all its retries.
    story.pass(ms(45));
    assert_eq!(attempts.take(), [(2, 245)]);
    assert_eq!(story.scheduler.stats().overlapped, 0);
}

#[test]
fn e5_a_retry_does_not_outlive_a_regular_time_that_passed_while_the_scheduler_was_stopped() {
    let (story, attempts) = (Story::new(), Attempts::default());
    let plan = Plan::every(ms(100)).retry(3, exact(40));
    story.scheduler.schedule("job", plan, attempts.job(&story, u32::MAX)).unwrap();
    story.pass(ms(110));
    story.scheduler.stop();
    story.pass(ms(140));
    story.scheduler.start();
    story.turn();
    assert_eq!(attempts.take(), [(1, 100)]);
    assert_eq!(story.scheduler.report("job").unwrap().missed, 1);
    story.pass(ms(51));
    assert_eq!(attempts.take(), [(1, 300)]);
}

#[test]
fn e5_runs_in_parallel_have_each_its_own_retries() {
    let story = Story::new();
    let log: Arc<Mutex<Vec<(u64, u32, u64)>>> = Arc::default();
    let (noted, engine, start) = (Arc::clone(&log), story.engine.clone(), story.start);
    let job = move |run: Run<&'static str>| {
        let now = (engine.clock().now() - start).as_nanos() / 1_000_000;
        noted.lock().unwrap().push((run.number(), run.attempt(), now));
        async move {
            tourbillon::time::sleep(ms(15)).await;
            Err::<(), _>("always")
        }
    };
    let plan = Plan::every(ms(10)).times(2).overlap(Overlap::Parallel).retry(1, Backoff::fixed(ms(5)));
    story.scheduler.schedule_async("job", plan, job).unwrap();
    story.pass(ms(200));
    // The runs of 10 and 20 end at 25 and 35. No regular time is left, so each is repeated.
    assert_eq!(*log.lock().unwrap(), [(1, 1, 10), (2, 1, 20), (3, 2, 30), (4, 2, 40)]);
    assert!(story.scheduler.is_empty());
}

#[test]
fn e5_the_jitter_of_a_backoff_shortens_delays_within_its_bounds_and_repeats_with_its_seed() {
    let delays = |seed: u64| {
        let (story, attempts) = (Story::with(|builder| builder.seed(seed)), Attempts::default());
        let plan = Plan::once(ms(0)).retry(50, Backoff::fixed(ms(1000)).jitter(0.5));
        story.scheduler.schedule("job", plan, attempts.job(&story, u32::MAX)).unwrap();
        story.pass(ms(60_000));
        let times: Vec<u64> = attempts.take().into_iter().map(|(_, at)| at).collect();
        assert_eq!(times.len(), 51);
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    };
    let drawn = delays(7);
    assert!(drawn.iter().all(|delay| (499..=1000).contains(delay)), "{drawn:?}");
    assert!(drawn.iter().any(|delay| *delay < 750) && drawn.iter().any(|delay| *delay > 750), "{drawn:?}");
    assert_eq!(drawn, delays(7), "the same seed, the same delays");
    assert_ne!(drawn, delays(8));
}

#[test]
fn e5_the_delays_of_a_backoff_grow_up_to_its_limit_for_any_number_of_retries() {
    let backoff = Backoff::exponential(ms(10)).factor(3).up_to(ms(100));
    assert_eq!([1, 2, 3, 4, u32::MAX].map(|retry| backoff.delay(retry)), [10, 30, 90, 100, 100].map(ms));
    assert_eq!(Backoff::exponential(Duration::MAX).delay(9), Duration::MAX);
    assert_eq!(Backoff::fixed(ms(7)).delay(1000), ms(7));
    let hour = Duration::from_secs(3600);
    assert_eq!(Backoff::exponential(Duration::from_nanos(1)).up_to(hour).delay(100), hour, "it grows up to the limit");
}

#[test]
fn e5_g8_retries_that_cannot_be_made_are_refused() {
    let scheduler: Scheduler<u8> = Scheduler::builder().engine(&manual()).threads(0).build().unwrap();
    let refused = |plan: Plan| scheduler.schedule(0, plan, |_| ()).map(drop).unwrap_err().kind;
    let every = || Plan::every(ms(100));
    assert_eq!(refused(every().retry(0, exact(1))), ScheduleErrorKind::ZeroRetries);
    assert_eq!(refused(every().retry(3, exact(100))), ScheduleErrorKind::RetryAfterNextRun);
    assert_eq!(refused(every().retry(3, Backoff::fixed(ms(150)))), ScheduleErrorKind::RetryAfterNextRun);
    for (backoff, error) in [
        (Backoff::fixed(Duration::ZERO), BackoffError::ZeroDelay),
        (exact(1).factor(0), BackoffError::ZeroFactor),
        (exact(10).up_to(ms(9)), BackoffError::LongestBelowFirst),
        (exact(1).jitter(1.1), BackoffError::JitterOutOfRange),
        (exact(1).jitter(f64::NAN), BackoffError::JitterOutOfRange),
    ] {
        assert_eq!(refused(every().retry(3, backoff)), ScheduleErrorKind::Backoff(error));
        assert!(!error.to_string().is_empty());
    }
    // With jitter a delay may be shorter than the interval; a plan with a single run has no next one.
    assert!(scheduler.schedule(1, every().retry(3, Backoff::exponential(ms(150))), |_| ()).is_ok());
    assert!(scheduler.schedule(2, Plan::once(ms(1)).retry(3, exact(1000)), |_| ()).is_ok());
    assert_eq!(scheduler.reschedule(&1, every().retry(0, exact(1))), Err(ScheduleErrorKind::ZeroRetries));
}
