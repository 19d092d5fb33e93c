//! The end of a plan, and its jitter.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tourbillon::scheduler::{Backoff, Overlap, Plan, Run, ScheduleErrorKind, Scheduler};
use tourbillon::time::MissedTickBehavior;

use crate::support::{manual, ms};
use crate::{Count, Story};

#[test]
fn e5_no_run_is_due_after_the_end_of_a_plan_and_its_job_is_removed() {
    let story = Story::new();
    story.add("job", Plan::every(ms(10)).until(story.instant(ms(30))));
    story.pass(ms(29));
    assert_eq!(story.scheduler.next_run("job"), Some(story.instant(ms(30))));
    story.pass(ms(1));
    assert_eq!(story.ms(), [10, 20, 30], "a run that is due at the end is made");
    assert!(!story.scheduler.contains("job"));
    story.pass(ms(100));
    assert_eq!(story.ms(), []);
}

#[test]
fn e5_times_after_the_end_are_neither_made_nor_missed() {
    for (missed, made, count) in [
        (MissedTickBehavior::Skip, vec![10], 2),
        (MissedTickBehavior::Burst, vec![10, 20, 30], 0),
        (MissedTickBehavior::Delay, vec![10], 0),
    ] {
        let story = Story::with(|builder| builder.missed(missed));
        story.add("job", Plan::every(ms(10)).until(story.instant(ms(35))));
        story.stall(ms(500));
        assert_eq!(story.due_ms(), made, "{missed:?}");
        assert_eq!((story.scheduler.stats().missed, story.scheduler.len()), (count, 0), "{missed:?}");
    }
}

#[test]
fn e5_a_job_whose_end_passes_while_it_is_paused_or_stopped_is_removed_afterwards() {
    let story = Story::new();
    story.add("job", Plan::every(ms(10)).until(story.instant(ms(35))));
    story.scheduler.pause("job");
    story.pass(ms(100));
    assert!(story.scheduler.contains("job") && story.scheduler.next_run("job").is_none());
    assert!(story.scheduler.resume("job"));
    assert!(!story.scheduler.contains("job"));
    story.add("job", Plan::every(ms(10)).until(story.instant(ms(135))));
    story.scheduler.stop();
    story.pass(ms(100));
    assert_eq!(story.scheduler.next_run("job"), None);
    story.scheduler.start();
    story.turn();
    assert!(story.scheduler.is_empty() && story.ms().is_empty());
}

#[test]
fn e5_a_job_whose_last_times_overlap_is_removed_with_its_active_run() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let story = Story::new();
        story.add_slow("job", Plan::every(ms(10)).overlap(overlap).until(story.instant(ms(25))), ms(50));
        story.pass(ms(59));
        assert!(story.scheduler.contains("job"));
        story.pass(ms(200));
        let expected: &[u64] = if overlap == Overlap::Skip { &[10] } else { &[10, 60] };
        assert_eq!(story.ms(), expected);
        assert!(story.scheduler.is_empty());
    }
}

#[test]
fn e5_a_retry_after_the_end_is_not_made() {
    let story = Story::new();
    let count = Count::default();
    let counted = count.clone();
    let job = move |_: &Run<&'static str>| {
        counted.add();
        Err::<(), _>("always")
    };
    let plan = Plan::every(ms(100)).until(story.instant(ms(115))).retry(9, Backoff::fixed(ms(10)));
    story.scheduler.schedule("job", plan, job).unwrap();
    story.pass(ms(500));
    assert_eq!((count.get(), story.scheduler.len()), (2, 0));
}

#[test]
fn e5_an_end_on_the_wall_clock_is_kept_by_a_plan_on_the_engines_clock() {
    let story = Story::new();
    // The wall clock of an engine that tests move shows the time of its creation, and moves with it.
    let end = SystemTime::now() + ms(60_000);
    story.add("job", Plan::every(ms(10_000)).until_wall(end));
    story.pass(ms(300_000));
    let runs = story.ms().len();
    assert!((5..=6).contains(&runs), "{runs} runs in a minute");
    assert!(story.scheduler.is_empty());
}

#[test]
fn e5_g8_a_plan_that_ends_before_its_first_run_is_refused() {
    let story = Story::new();
    story.pass(ms(100));
    let refused = |plan: Plan| story.scheduler.schedule("job", plan, |_| ()).map(drop).unwrap_err().kind;
    let ends = ScheduleErrorKind::EndsBeforeFirstRun;
    assert_eq!(refused(Plan::every(ms(10)).until(story.instant(ms(50)))), ends);
    assert_eq!(refused(Plan::every(ms(10)).until(story.instant(ms(109)))), ends);
    assert_eq!(refused(Plan::every(ms(10)).first_at_once().until(story.instant(ms(99)))), ends);
    assert_eq!(refused(Plan::once(ms(10)).until_wall(SystemTime::UNIX_EPOCH)), ends);
    assert!(ends.to_string().contains("ends before"));
    story.add("job", Plan::every(ms(10)).until(story.instant(ms(110))));
    assert_eq!(story.scheduler.reschedule("job", Plan::every(ms(10)).until(story.instant(ms(1)))), Err(ends));
    story.pass(ms(50));
    assert_eq!(story.ms(), [110], "a plan that was refused leaves the old one");
}

#[test]
fn e5_an_end_in_the_past_is_refused_in_real_time_too() {
    let scheduler = Scheduler::builder().threads(1).build().unwrap();
    let past = SystemTime::now() - Duration::from_secs(1);
    let error = scheduler.schedule(0, Plan::every(ms(10)).first_at_once().until_wall(past), |_| ()).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::EndsBeforeFirstRun);
}

#[test]
fn e5_jitter_spreads_jobs_and_keeps_the_interval_of_each() {
    let engine = manual();
    let scheduler: Scheduler<u32> = Scheduler::builder().engine(&engine).threads(0).seed(1).build().unwrap();
    let start = crate::now_on(&engine);
    let plan = Plan::every(Duration::from_secs(60)).jitter(Duration::from_secs(30));
    for key in 0..100 {
        scheduler.schedule(key, plan.clone(), |_| ()).unwrap();
    }
    let firsts: Vec<_> = (0..100).map(|key| scheduler.next_run(&key).unwrap()).collect();
    let delays: Vec<_> = firsts.iter().map(|first| *first - start - Duration::from_secs(60)).collect();
    assert!(delays.iter().all(|delay| *delay < Duration::from_secs(30)), "{delays:?}");
    assert!(delays.iter().collect::<BTreeSet<_>>().len() > 90, "{delays:?}");
    assert!(delays.iter().any(|delay| *delay > Duration::from_secs(20)));
    engine.advance(Duration::from_secs(600));
    for (key, first) in firsts.iter().enumerate() {
        let passed = scheduler.next_run(&(key as u32)).unwrap() - *first;
        assert_eq!(passed.as_nanos() % Duration::from_secs(60).as_nanos(), 0, "its interval is exact");
    }
}

#[test]
fn e5_jitter_delays_a_first_run_at_once_and_at_an_instant() {
    let story = Story::with(|builder| builder.seed(3));
    let late = |key| story.scheduler.next_run(key).unwrap() - story.origin;
    story.add("at once", Plan::every(ms(1000)).first_at_once().jitter(ms(100)));
    story.add("at", Plan::every(ms(1000)).first_at(story.instant(ms(500))).jitter(ms(100)));
    assert!(late("at once") > ms(0) && late("at once") < ms(100));
    assert!(late("at") > ms(500) && late("at") < ms(600));
    story.add("none", Plan::every(ms(1000)).jitter(Duration::ZERO));
    assert_eq!(late("none"), ms(1000));
}

#[test]
fn e5_jitter_never_puts_the_first_run_after_the_end_of_a_plan() {
    let engine = manual();
    let scheduler: Scheduler<u32> = Scheduler::builder().engine(&engine).threads(0).seed(5).build().unwrap();
    let end = crate::now_on(&engine) + ms(110);
    let plan = |end| Plan::every(ms(100)).jitter(ms(1000)).until(end);
    for key in 0..100 {
        scheduler.schedule(key, plan(end), |_| ()).unwrap();
        assert!(scheduler.next_run(&key).unwrap() <= end);
    }
    let firsts: BTreeSet<_> = (0..100).map(|key| scheduler.next_run(&key).unwrap()).collect();
    assert!(firsts.len() > 90, "the jobs are spread over the time before the end");
    // At the latest the first run is due at the end.
    scheduler.schedule(100, plan(end - ms(10)), |_| ()).unwrap();
    assert_eq!(scheduler.next_run(&100), Some(end - ms(10)));
    let error = scheduler.schedule(101, plan(end - ms(11)), |_| ()).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::EndsBeforeFirstRun);
    engine.advance(ms(200));
    assert_eq!((scheduler.stats().runs, scheduler.len()), (101, 0));
}
