//! Retries, time limits, ends and requested runs in Tokio's virtual time, with the scheduler's own threads and on the runtime.
#![cfg(all(feature = "test-util", feature = "tokio"))]

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use support::ms;
use tourbillon::scheduler::{Backoff, Builder, Plan, Run, RunStatus, Scheduler};
use tourbillon::time::{self, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Times since the start of a test, in whole seconds, with the attempts.
#[derive(Clone)]
struct Log(Instant, Arc<Mutex<Vec<(u32, u64)>>>);

impl Log {
    fn new() -> Log {
        Log(Instant::now(), Arc::default())
    }

    fn note(&self, run: &Run<&'static str>) {
        assert_eq!(run.due().elapsed(), Duration::ZERO, "each run is made at its own time");
        self.1.lock().unwrap().push((run.attempt(), self.0.elapsed().as_secs()));
    }

    fn take(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.1.lock().unwrap())
    }
}

fn exact(first: Duration) -> Backoff {
    Backoff::exponential(first).jitter(0.0)
}

/// Returns builders of schedulers that poll async jobs on their own threads, and on the runtime.
fn builders() -> [Builder<&'static str>; 3] {
    [Scheduler::builder(), Scheduler::builder().threads(1), Scheduler::builder().on_tokio()]
}

#[tokio::test(start_paused = true)]
async fn e5_b6_retries_come_at_their_own_virtual_times() {
    for builder in builders() {
        let (jobs, log) = (builder.build().unwrap(), Log::new());
        let plan = || Plan::every(MINUTE).times(2).retry(3, exact(SECOND));
        let noted = log.clone();
        let job = move |run: &Run<&'static str>| {
            noted.note(run);
            if run.attempt() < 3 { Err("not yet") } else { Ok(()) }
        };
        jobs.schedule("closure", plan(), job).unwrap();
        time::advance(10 * MINUTE).await;
        assert_eq!(log.take(), [(1, 60), (2, 61), (3, 63), (1, 120), (2, 121), (3, 123)]);
        assert!(jobs.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn e5_b6_async_jobs_on_tokio_use_its_timers_and_are_repeated_and_limited() {
    let (jobs, log) = (Scheduler::builder().on_tokio().build().unwrap(), Log::new());
    let noted = log.clone();
    let job = move |run: Run<&'static str>| {
        noted.note(&run);
        async move {
            // The first attempt exceeds its limit, the second fails.
            tokio::time::sleep(if run.attempt() == 1 { MINUTE } else { SECOND }).await;
            if run.attempt() == 2 { Err("not yet") } else { Ok(()) }
        }
    };
    let plan = Plan::once(10 * SECOND).time_limit(5 * SECOND).retry(3, exact(10 * SECOND));
    jobs.schedule_async("sync", plan, job).unwrap();
    time::sleep(27 * SECOND).await;
    let last = jobs.report("sync").unwrap().last_run.unwrap();
    assert_eq!((last.status, last.duration, last.attempt), (RunStatus::Failed, SECOND, 2));
    time::sleep(10 * MINUTE).await;
    assert_eq!(log.take(), [(1, 10), (2, 25), (3, 46)]);
    assert_eq!((jobs.stats().over_limit, jobs.stats().failed, jobs.len()), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn e5_b6_a_closure_holds_virtual_time_and_so_stays_within_its_limit() {
    for builder in builders() {
        let jobs = builder.build().unwrap();
        let job = |_: &_| std::thread::sleep(ms(5));
        jobs.schedule("slow", Plan::every(MINUTE).times(3).time_limit(ms(1)), job).unwrap();
        time::advance(10 * MINUTE).await;
        assert_eq!((jobs.stats().runs, jobs.stats().over_limit), (3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn e5_b6_a_plan_ends_by_either_clock() {
    for builder in builders() {
        let (jobs, log) = (builder.build().unwrap(), Log::new());
        let (first, second) = (log.clone(), log.clone());
        let plan = Plan::every(MINUTE).until(Instant::now() + 3 * MINUTE);
        jobs.schedule("until", plan, move |run: &Run<_>| first.note(run)).unwrap();
        time::advance(10 * MINUTE).await;
        assert_eq!(log.take(), [(1, 60), (1, 120), (1, 180)]);
        // The virtual wall clock is ten minutes ahead of the real one by now, or more.
        let plan = Plan::every(MINUTE).until_wall(SystemTime::now() + MINUTE);
        assert!(jobs.schedule("over", plan, |_| ()).is_err(), "that time has passed in virtual time");
        jobs.schedule("wall", Plan::every(MINUTE), move |run: &Run<_>| second.note(run)).unwrap();
        time::advance(MINUTE).await;
        assert_eq!(log.take(), [(1, 660)]);
    }
}

#[tokio::test(start_paused = true)]
async fn e5_b6_a_run_now_is_made_before_time_moves() {
    for builder in builders() {
        let (jobs, log) = (builder.build().unwrap(), Log::new());
        let noted = log.clone();
        jobs.schedule("hourly", 60 * MINUTE, move |run: &Run<_>| noted.note(run)).unwrap();
        time::advance(MINUTE).await;
        jobs.run_now("hourly").unwrap();
        time::advance(MINUTE).await;
        assert_eq!(log.take(), [(1, 60)]);
    }
}

#[tokio::test(start_paused = true)]
async fn e5_b6_cron_jobs_are_repeated_and_know_their_times_in_virtual_time() {
    let jobs = Scheduler::builder().build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let job = move |run: &Run<&'static str>| {
        noted.lock().unwrap().push((run.attempt(), run.due_wall().unwrap()));
        if run.attempt() < 2 { Err("not yet") } else { Ok(()) }
    };
    let hourly = tourbillon::Cron::utc("0 * * * *").unwrap();
    jobs.schedule("hourly", Plan::cron(hourly).retry(3, exact(MINUTE)), job).unwrap();
    let first = jobs.next_run_wall("hourly").unwrap();
    // The first run is due within an hour, whatever the time is now.
    for _ in 0..200 {
        if log.lock().unwrap().len() < 4 {
            time::advance(MINUTE).await;
        }
    }
    let hour = 60 * MINUTE;
    assert_eq!(*log.lock().unwrap(), [(1, first), (2, first), (1, first + hour), (2, first + hour)]);
    assert_eq!(jobs.next_run_wall("hourly"), Some(first + 2 * hour));
}
