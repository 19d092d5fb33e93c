//! Jobs that follow the wall clock, on a clock that the test sets.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use support::manual;
use tourbillon::scheduler::{Backoff, Overlap, Plan, Run, ScheduleErrorKind, Scheduler};
use tourbillon::time::{Instant, MissedTickBehavior};
use tourbillon::{Cron, Engine, Span, Time};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A scheduler whose wall clock the test sets, and a log of the clock's time at each run.
struct Wall {
    engine: Engine,
    scheduler: Scheduler<&'static str>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Wall {
    fn at(timestamp: &str) -> Wall {
        let engine = manual();
        engine.clock().set(time(timestamp));
        let scheduler = Scheduler::builder().engine(&engine).wall_engine(&engine).threads(0).build().unwrap();
        Wall { engine, scheduler, log: Arc::default() }
    }

    fn schedule(&self, key: &'static str, plan: impl Into<Plan>) {
        let (log, engine) = (Arc::clone(&self.log), self.engine.clone());
        let job = move |_: &_| log.lock().unwrap().push(shown(engine.clock().now()));
        self.scheduler.schedule(key, plan, job).unwrap();
    }

    /// Lets time pass and returns the new entries of the log.
    fn pass(&self, time: Duration) -> Vec<String> {
        self.engine.advance(time);
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// Sets the clock and returns the new entries of the log.
    fn set(&self, timestamp: &str) -> Vec<String> {
        self.engine.clock().set(time(timestamp));
        while self.engine.turn().more {}
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

/// Returns an engine, a wall clock that shows `wall`, and a scheduler on both, without threads.
fn two_clocks(wall: &str) -> (Engine, Engine, Scheduler<&'static str>) {
    let (engine, clock) = (manual(), manual());
    clock.clock().set(time(wall));
    let scheduler = Scheduler::builder().engine(&engine).wall_engine(&clock).threads(0).build().unwrap();
    (engine, clock, scheduler)
}

fn time(timestamp: &str) -> Time {
    let timestamp: jiff::Timestamp = timestamp.parse().unwrap();
    Time::from_nanos(u64::try_from(timestamp.as_nanosecond()).unwrap())
}

fn shown(time: Time) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())).unwrap().to_string()
}

fn cron(line: &str, zone: &str) -> Cron {
    Cron::parse(line).unwrap().in_zone(zone).unwrap()
}

#[test]
fn b8_a_cron_job_runs_when_the_wall_clock_shows_its_time() {
    let wall = Wall::at("2026-11-16T10:00:30Z");
    wall.schedule("noon", cron("0 12 * * *", "UTC"));
    assert!(wall.pass(HOUR).is_empty());
    assert_eq!(wall.pass(DAY), ["2026-11-16T12:00:00Z"]);
    assert_eq!(wall.pass(DAY), ["2026-11-17T12:00:00Z"]);
}

#[test]
fn b8_a_time_in_the_gap_of_spring_runs_once_and_so_does_one_in_the_overlap_of_autumn() {
    let wall = Wall::at("2026-03-28T12:00:00Z");
    wall.schedule("nightly", cron("30 2 * * *", "Europe/Berlin"));
    let runs = ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(wall.pass(2 * DAY), runs);

    let wall = Wall::at("2026-10-24T12:00:00Z");
    wall.schedule("nightly", cron("30 2 * * *", "Europe/Berlin"));
    assert_eq!(wall.pass(2 * DAY), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
}

#[test]
fn a8_a_clock_that_is_set_forward_causes_one_run_for_the_times_that_it_jumped_over() {
    let wall = Wall::at("2026-11-16T10:00:00Z");
    wall.schedule("hourly", cron("@hourly", "UTC"));
    assert_eq!(wall.set("2026-11-16T15:30:00Z"), ["2026-11-16T15:30:00Z"]);
    assert_eq!(wall.scheduler.report("hourly").unwrap().missed, 4);
    assert_eq!(wall.pass(HOUR), ["2026-11-16T16:00:00Z"]);
}

#[test]
fn a8_a_clock_that_is_set_forward_causes_all_runs_if_the_plan_says_so() {
    let wall = Wall::at("2026-11-16T10:00:00Z");
    wall.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).missed(MissedTickBehavior::Burst));
    assert_eq!(wall.set("2026-11-16T15:30:00Z").len(), 5);
    assert_eq!(wall.scheduler.report("hourly").unwrap().missed, 0);
}

#[test]
fn a8_p7_making_up_for_each_second_of_a_day_does_not_count_them_again_for_each() {
    let wall = Wall::at("2026-11-16T00:00:00Z");
    let plan = Plan::cron(cron("* * * * * *", "UTC")).missed(MissedTickBehavior::Burst).overlap(Overlap::Parallel);
    wall.schedule("each second", plan);
    assert_eq!(wall.set("2026-11-17T00:00:00Z").len(), 24 * 60 * 60);
}

#[test]
fn a8_years_that_a_clock_jumps_over_are_counted_up_to_a_thousand_missed_runs() {
    let wall = Wall::at("1970-01-01T00:00:01Z");
    wall.schedule("each second", cron("* * * * * *", "UTC"));
    assert_eq!(wall.set("2026-11-16T10:00:00.5Z").len(), 1);
    assert_eq!(wall.scheduler.report("each second").unwrap().missed, 1000);
    assert_eq!(wall.pass(Duration::from_secs(2)), ["2026-11-16T10:00:01Z", "2026-11-16T10:00:02Z"]);
}

#[test]
fn a8_b6_jobs_that_are_due_together_run_in_the_same_order_each_time_after_the_clock_was_set_back() {
    let wall = Wall::at("2026-11-16T11:30:00Z");
    let order = Arc::new(Mutex::new(Vec::new()));
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let order = Arc::clone(&order);
        let job = move |run: &Run<&'static str>| order.lock().unwrap().push(*run.key());
        wall.scheduler.schedule(key, cron("@hourly", "UTC"), job).unwrap();
    }
    wall.pass(HOUR);
    let before = std::mem::take(&mut *order.lock().unwrap());
    assert_eq!(before.len(), 8);
    wall.set("2026-11-16T04:30:00Z");
    wall.pass(HOUR);
    assert_eq!(*order.lock().unwrap(), before);
}

#[test]
fn a8_a_clock_that_is_set_back_a_little_repeats_no_run() {
    let wall = Wall::at("2026-11-16T11:59:00Z");
    wall.schedule("noon", cron("0 12 * * *", "UTC"));
    assert_eq!(wall.pass(HOUR), ["2026-11-16T12:00:00Z"]);
    assert!(wall.set("2026-11-16T11:00:00Z").is_empty());
    assert!(wall.pass(2 * HOUR).is_empty());
    assert_eq!(wall.pass(DAY), ["2026-11-17T12:00:00Z"]);
}

#[test]
fn a8_a_clock_that_was_wrong_by_years_and_is_set_back_counts_from_now_on() {
    let wall = Wall::at("2031-01-01T00:00:00Z");
    wall.schedule("noon", cron("0 12 * * *", "UTC"));
    assert!(wall.set("2026-11-16T10:00:00Z").is_empty());
    assert_eq!(wall.pass(DAY), ["2026-11-16T12:00:00Z"]);
}

#[test]
fn a_paused_cron_job_does_not_run_and_a_rescheduled_one_may_change_its_clock() {
    let wall = Wall::at("2026-11-16T10:00:00Z");
    wall.schedule("job", cron("@hourly", "UTC"));
    assert!(wall.scheduler.pause("job"));
    assert_eq!(wall.scheduler.next_run("job"), None);
    assert!(wall.pass(3 * HOUR + HOUR / 2).is_empty());
    assert!(wall.scheduler.resume("job"));
    assert_eq!(wall.pass(HOUR), ["2026-11-16T14:00:00Z"]);

    wall.scheduler.reschedule("job", Duration::from_secs(60)).unwrap();
    assert_eq!(wall.pass(Duration::from_secs(60)), ["2026-11-16T14:31:00Z"]);
    wall.scheduler.reschedule("job", cron("@daily", "UTC")).unwrap();
    assert_eq!(wall.pass(DAY), ["2026-11-17T00:00:00Z"]);
    assert!(wall.scheduler.remove("job"));
    assert!(wall.pass(DAY).is_empty());
}

#[test]
fn a8_a_cron_job_that_is_paused_while_the_clock_is_set_back_by_days_follows_it_when_it_is_resumed() {
    for is_alone in [true, false] {
        let wall = Wall::at("2026-11-16T10:00:30Z");
        if !is_alone {
            wall.scheduler.schedule("other", cron("@hourly", "UTC"), |_| ()).unwrap();
        }
        wall.schedule("job", cron("@hourly", "UTC"));
        assert!(wall.scheduler.pause("job"));
        assert!(wall.set("2026-11-10T10:00:30Z").is_empty());
        assert!(wall.scheduler.resume("job"));
        assert_eq!(wall.pass(2 * HOUR), ["2026-11-10T11:00:00Z", "2026-11-10T12:00:00Z"]);
    }
}

#[test]
fn a_cron_line_whose_years_are_over_is_never_due() {
    let wall = Wall::at("2026-11-16T10:00:00Z");
    wall.schedule("past", cron("0 0 12 * * * 2025", "UTC"));
    assert_eq!(wall.scheduler.next_run("past"), None);
    assert!(wall.scheduler.contains("past"));
    assert!(wall.pass(400 * DAY).is_empty());
}

#[test]
fn d3_jobs_that_keep_every_thread_busy_do_not_keep_a_cron_job_from_running() {
    let engine = manual();
    engine.clock().set(time("2026-11-16T10:00:00Z"));
    let scheduler = Scheduler::builder().engine(&engine).wall_engine(&engine).threads(0).queue(0).build().unwrap();
    // More work than the threads can do: one of these two jobs is due at any time.
    for key in ["busy", "as busy"] {
        let time = engine.clone();
        scheduler
            .schedule(key, Duration::from_millis(1), move |_| time.clock().advance(Duration::from_millis(2)))
            .unwrap();
    }
    let runs = Arc::new(Mutex::new(0));
    let count = Arc::clone(&runs);
    scheduler.schedule("each second", cron("* * * * * *", "UTC"), move |_| *count.lock().unwrap() += 1).unwrap();
    engine.clock().advance(Duration::from_millis(1));
    while engine.clock().now() < time("2026-11-16T10:00:10Z") {
        engine.turn();
    }
    assert!(scheduler.stats().runs > 1000);
    assert!(*runs.lock().unwrap() >= 9, "{runs:?}");
}

#[test]
fn p7_a_scheduler_dropped_with_its_wall_clock_leaves_nothing_behind_without_another_turn() {
    let owned = Arc::new(());
    {
        let (engine, mine) = (manual(), Arc::clone(&owned));
        let builder = Scheduler::builder().engine(&engine).wall_engine(&engine).threads(0);
        let scheduler = builder.on_failure(move |_| _ = &mine).build().unwrap();
        scheduler.schedule("nightly", cron("@daily", "UTC"), |_| ()).unwrap();
        scheduler.stop();
        scheduler.start();
    }
    assert_eq!(Arc::strong_count(&owned), 1);
}

#[test]
fn on_the_systems_own_wall_clock_a_job_of_every_second_runs() {
    let scheduler = Scheduler::builder().threads(1).build().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let send = Mutex::new(send);
    let job = move |_: &_| send.lock().unwrap().send(std::time::SystemTime::now()).unwrap();
    scheduler.schedule("each second", cron("* * * * * *", "UTC"), job).unwrap();
    let ran = receive.recv_timeout(Duration::from_secs(60)).unwrap();
    // Not before the full second at which it was due.
    let since = ran.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    println!("{:?} after the full second", Duration::from_nanos(u64::from(since.subsec_nanos())));
    assert!(scheduler.next_run("each second").is_some());
}

// ---- forms of lines as plans ----

#[test]
fn d79_a_plan_of_at_every_is_an_interval_from_its_scheduling_and_does_not_follow_the_wall_clock() {
    let wall = Wall::at("2026-11-16T10:00:30.25Z");
    wall.schedule("often", cron("@every 1h30m", "Europe/Berlin"));
    assert_eq!(wall.pass(4 * HOUR), ["2026-11-16T11:30:30.25Z", "2026-11-16T13:00:30.25Z"]);

    // It follows the engine's clock, so setting the wall clock does not move it.
    let (engine, clock, scheduler) = two_clocks("2026-11-16T10:00:00Z");
    scheduler.schedule("often", Plan::cron(cron("@every 5m", "UTC")), |_: &Run<&str>| {}).unwrap();
    clock.clock().set(time("2036-11-16T10:00:00Z"));
    while clock.turn().more {}
    engine.advance(Duration::from_secs(11 * 60));
    let stats = scheduler.stats();
    assert_eq!((stats.runs, stats.missed), (2, 0));
}

#[test]
fn d79_d60_a_plan_that_is_never_due_is_kept_and_reported_as_such() {
    for line in ["0 0 30 2 *", "0 0 0 1 1 * 2020"] {
        let wall = Wall::at("2026-11-16T10:00:00Z");
        wall.schedule("never", cron(line, "UTC"));
        assert!(wall.scheduler.contains("never"), "{line}");
        assert_eq!(wall.scheduler.next_run("never"), None, "{line}");
        assert!(wall.pass(400 * DAY).is_empty(), "{line}");
        assert_eq!((wall.scheduler.stats().jobs, wall.scheduler.stats().missed), (1, 0), "{line}");
        // It can be given a plan that is due.
        wall.scheduler.reschedule("never", cron("@daily", "UTC")).unwrap();
        assert_eq!(wall.pass(DAY).len(), 1, "{line}");
        assert!(wall.scheduler.remove("never"), "{line}");
        // A first run that was requested is made, and none after it.
        wall.schedule("never", Plan::cron(cron(line, "UTC")).first_at_once());
        assert_eq!(wall.pass(400 * DAY).len(), 1, "{line}");
        assert_eq!(wall.scheduler.next_run("never"), None, "{line}");
    }
}

#[test]
fn d60_a_line_with_a_last_date_misses_no_dates_after_it() {
    for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
        for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::Parallel] {
            // Midnight of 1, 2 and 3 January 2027, and never again.
            let line = cron("0 0 0 1-3 1 * 2027", "UTC");
            let wall = Wall::at("2026-12-31T12:00:00Z");
            wall.schedule("thrice", Plan::cron(line.clone()).missed(missed).overlap(overlap));
            let made = wall.set("2031-01-01T00:00:00Z").len() as u64;
            assert_eq!(made + wall.scheduler.stats().missed, 3, "{missed:?} {overlap:?}");
            assert_eq!(made, if missed == MissedTickBehavior::Burst { 3 } else { 1 }, "{missed:?} {overlap:?}");

            let wall = Wall::at("2027-01-02T12:00:00Z");
            wall.schedule("last", Plan::cron(line).missed(missed).overlap(overlap));
            assert_eq!(wall.set("2031-01-01T00:00:00Z").len(), 1, "{missed:?} {overlap:?}");
            assert_eq!(wall.scheduler.stats().missed, 0, "{missed:?} {overlap:?}");
        }
    }
}

#[test]
fn d60_a_cron_plan_of_one_run_misses_nothing() {
    for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
        let wall = Wall::at("2026-11-16T10:00:00Z");
        wall.schedule("once", Plan::cron(cron("@hourly", "UTC")).times(1).missed(missed));
        assert_eq!(wall.set("2026-11-17T10:30:00Z").len(), 1, "{missed:?}");
        let stats = wall.scheduler.stats();
        assert_eq!((stats.missed, stats.jobs), (0, 0), "{missed:?}");
    }
}

#[test]
fn p6_a_line_for_an_engine_that_was_shut_down_is_refused_and_the_other_jobs_continue() {
    let (engine, clock) = (manual(), manual());
    clock.clock().set(time("2026-11-16T10:00:00Z"));
    clock.shutdown();
    let scheduler = Scheduler::builder().engine(&engine).wall_engine(&clock).threads(0).build().unwrap();
    scheduler.schedule("interval", Duration::from_secs(1), |_: &Run<&str>| {}).unwrap();
    let error = scheduler.schedule("noon", cron("0 12 * * *", "UTC"), |_: &Run<&str>| {}).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::ShutDown);
    assert_eq!(scheduler.reschedule("interval", cron("@daily", "UTC")), Err(ScheduleErrorKind::ShutDown));
    engine.advance(Duration::from_secs(3));
    let stats = scheduler.stats();
    assert_eq!((stats.runs, stats.jobs), (3, 1));
}

// ---- wall-clock times, ends, jitter and retries ----

#[test]
fn e5_due_and_next_run_are_exact_times_of_the_wall_clock() {
    let wall = Wall::at("2026-11-16T10:00:30Z");
    let log: Arc<Mutex<Vec<SystemTime>>> = Arc::default();
    let noted = Arc::clone(&log);
    let job = move |run: &Run<&'static str>| noted.lock().unwrap().extend(run.due_wall());
    wall.scheduler.schedule("hourly", cron("@hourly", "UTC"), job).unwrap();
    wall.scheduler.schedule("each", HOUR, |run: &Run<_>| assert_eq!(run.due_wall(), None)).unwrap();
    assert_eq!(wall.scheduler.next_run_wall("hourly"), Some(system("2026-11-16T11:00:00Z")));
    assert_eq!(wall.scheduler.next_run_wall("each"), None, "its plan does not follow the wall clock");
    assert_eq!(wall.scheduler.next_run_wall("none"), None);
    wall.pass(2 * HOUR);
    assert_eq!(*log.lock().unwrap(), ["2026-11-16T11:00:00Z", "2026-11-16T12:00:00Z"].map(system));
    assert_eq!((wall.scheduler.stats().failed, wall.scheduler.stats().runs), (0, 4));
}

#[test]
fn e5_a_cron_plan_ends_when_the_wall_clock_shows_its_end() {
    let wall = Wall::at("2026-11-16T10:00:30Z");
    wall.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).until_wall(system("2026-11-16T12:30:00Z")));
    assert_eq!(wall.pass(DAY), ["2026-11-16T11:00:00Z", "2026-11-16T12:00:00Z"]);
    assert!(!wall.scheduler.contains("hourly"));
    // A clock that is set beyond the end makes one late run for the times before it, and ends the job.
    wall.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).until_wall(system("2026-11-17T15:30:00Z")));
    assert_eq!(wall.set("2026-11-19T00:00:00Z").len(), 1);
    assert!(!wall.scheduler.contains("hourly"));
    for past in ["2026-11-18T00:00:00Z", "2026-11-19T00:30:00Z", "1970-01-01T00:00:00Z"] {
        let plan = Plan::cron(cron("@hourly", "UTC")).until_wall(system(past));
        let error = wall.scheduler.schedule("hourly", plan, |_| ()).unwrap_err();
        assert_eq!(error.kind, ScheduleErrorKind::EndsBeforeFirstRun, "{past}");
    }
}

#[test]
fn e5_jitter_makes_all_times_of_a_cron_line_later_by_the_same_span() {
    let wall = Wall::at("2026-11-16T10:00:30Z");
    wall.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).jitter(Duration::from_secs(600)));
    let first = wall.scheduler.next_run_wall("hourly").unwrap();
    let late = first.duration_since(system("2026-11-16T10:00:00Z")).unwrap().as_nanos() % HOUR.as_nanos();
    assert!(late > 0 && late < Duration::from_secs(600).as_nanos(), "{late} ns after the hour");
    assert!(wall.pass(5 * HOUR).len() >= 4);
    let next = wall.scheduler.next_run_wall("hourly").unwrap();
    assert_eq!(next.duration_since(first).unwrap().as_nanos() % HOUR.as_nanos(), 0);
}

#[test]
fn e5_jitter_repeats_no_time_of_a_cron_line_when_its_job_gets_the_plan_again() {
    let wall = Wall::at("2026-11-16T10:30:00Z");
    let plan = || Plan::cron(cron("@hourly", "UTC")).jitter(Duration::from_secs(600));
    wall.schedule("hourly", plan());
    assert_eq!(wall.pass(45 * MINUTE).len(), 1, "the run of 11:00, by 11:10");
    // Ten minutes after the hour or less, as after a restart of the process.
    wall.engine.clock().set(time("2026-11-16T12:00:00Z"));
    for second in 1..300 {
        wall.engine.clock().set(time("2026-11-16T12:00:00Z") + Span::from_secs(second));
        wall.scheduler.reschedule("hourly", plan()).unwrap();
        let next = wall.scheduler.next_run_wall("hourly").unwrap();
        assert!(next >= system("2026-11-16T13:00:00Z"), "that of 12:00 again, at {next:?}");
        assert!(next < system("2026-11-16T13:10:00Z"));
    }
}

#[test]
fn e5_jitter_delays_a_first_run_of_a_cron_line_at_once_and_at_an_instant() {
    let wall = Wall::at("2026-11-16T10:00:01Z");
    let hourly = || Plan::cron(cron("@hourly", "UTC")).jitter(Duration::from_secs(1800));
    let entered = wall.engine.enter();
    let at = Instant::now() + MINUTE;
    drop(entered);
    for (plan, first) in [
        (hourly().first_at_once(), system("2026-11-16T10:00:01Z")),
        (hourly().first_at(at), system("2026-11-16T10:01:01Z")),
    ] {
        wall.schedule("job", plan.times(2));
        let late = wall.scheduler.next_run_wall("job").unwrap().duration_since(first).unwrap();
        assert!(late > Duration::ZERO && late < Duration::from_secs(1800), "{late:?}");
        // Windows tells times of day in units of 100 ns.
        assert_eq!(wall.pass(late + MINUTE + Duration::from_nanos(100)).len(), 1);
        // The second run is that of 11:00, and later by the same span.
        let second = system("2026-11-16T11:00:00Z") + late;
        assert_eq!(wall.scheduler.next_run_wall("job"), Some(second));
        wall.scheduler.remove("job");
        wall.engine.clock().set(time("2026-11-16T10:00:01Z"));
    }
}

#[test]
fn e5_a_retry_of_a_cron_job_that_comes_after_the_next_time_gives_way_to_the_regular_run() {
    let (engine, wall, scheduler) = two_clocks("2026-11-16T10:59:59Z");
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let job = move |run: &Run<&'static str>| {
        noted.lock().unwrap().push((run.attempt(), run.due_wall().unwrap()));
        Err::<(), _>("always")
    };
    let plan = Plan::cron(cron("@hourly", "UTC")).retry(1, Backoff::fixed(MINUTE));
    scheduler.schedule("job", plan, job).unwrap();
    let turn = || while wall.turn().more | engine.turn().more {};
    wall.clock().set(time("2026-11-16T11:00:00Z"));
    turn();
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(1, system("2026-11-16T11:00:00Z"))]);
    // Both the retry and the next regular time have come when the scheduler looks.
    engine.clock().advance(MINUTE);
    wall.clock().set(time("2026-11-16T12:00:00Z"));
    turn();
    assert_eq!(*log.lock().unwrap(), [(1, system("2026-11-16T12:00:00Z"))]);
}

#[test]
fn e5_a_retry_of_a_cron_job_waits_on_the_engines_clock_and_has_the_time_of_its_occurrence() {
    let (engine, wall, scheduler) = two_clocks("2026-11-16T10:59:59Z");
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let job = move |run: &Run<&'static str>| {
        noted.lock().unwrap().push((run.attempt(), run.due_wall()));
        if run.attempt() < 3 { Err("not yet") } else { Ok(()) }
    };
    let backoff = Backoff::fixed(Duration::from_secs(10));
    scheduler.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).retry(5, backoff), job).unwrap();
    wall.advance(Duration::from_secs(1));
    engine.advance(Duration::from_secs(1));
    let due = Some(system("2026-11-16T11:00:00Z"));
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(1, due)]);
    // A wall clock that is set back does not hold the retry up.
    wall.clock().set(time("2026-11-16T10:30:00Z"));
    while wall.turn().more || engine.turn().more {}
    engine.advance(Duration::from_secs(20));
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(2, due), (3, due)]);
    assert_eq!(scheduler.next_run_wall("hourly"), Some(system("2026-11-16T12:00:00Z")), "the regular time is kept");
}

#[test]
fn e5_a_wall_clock_that_is_set_forward_brings_the_regular_run_instead_of_a_retry() {
    let wall = Wall::at("2026-11-16T10:59:59Z");
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let job = move |run: &Run<&'static str>| {
        noted.lock().unwrap().push((run.attempt(), run.due_wall()));
        Err::<(), _>("always")
    };
    let engine = manual();
    let builder = Scheduler::builder().engine(&engine).wall_engine(&wall.engine);
    let scheduler = builder.threads(0).build().unwrap();
    let backoff = Backoff::fixed(Duration::from_secs(600));
    scheduler.schedule("hourly", Plan::cron(cron("@hourly", "UTC")).retry(1, backoff), job).unwrap();
    wall.pass(Duration::from_secs(1));
    engine.advance(Duration::from_secs(10));
    wall.set("2026-11-16T12:00:00Z");
    while engine.turn().more {}
    let regular = ["2026-11-16T11:00:00Z", "2026-11-16T12:00:00Z"].map(|due| (1, Some(system(due))));
    assert_eq!(*log.lock().unwrap(), regular);
    engine.advance(Duration::from_secs(599));
    assert_eq!(log.lock().unwrap().len(), 2, "the retry of the first run is not made");
    engine.advance(Duration::from_secs(1));
    assert_eq!(log.lock().unwrap().last(), Some(&(2, Some(system("2026-11-16T12:00:00Z")))));
}

#[test]
fn e5_a_cron_job_that_is_run_now_keeps_its_times() {
    let wall = Wall::at("2026-11-16T10:00:30Z");
    wall.schedule("hourly", cron("@hourly", "UTC"));
    wall.scheduler.run_now("hourly").unwrap();
    assert_eq!(wall.pass(HOUR), ["2026-11-16T10:00:30Z", "2026-11-16T11:00:00Z"]);
}

fn system(timestamp: &str) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(time(timestamp).as_nanos())
}
