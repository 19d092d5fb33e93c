//! Runs that a user asks for.

use tourbillon::scheduler::{
    Backoff, Overflow, Overlap, Plan, Remaining, Requested, Run, RunNowError, Scheduler, Shutdown,
};

use crate::support::ms;
use crate::{Count, Story};

/// Asks for a run, and returns whether it waits for the end of another.
fn waits(scheduler: &Scheduler<&'static str>, key: &'static str) -> Result<bool, RunNowError> {
    scheduler.run_now(key).map(|requested| matches!(requested, Requested::AfterActive(_)))
}

#[test]
fn e5_a_run_now_is_made_at_once_and_leaves_the_plan_as_it_is() {
    let story = Story::new();
    story.add("job", Plan::every(ms(100)).times(2));
    story.pass(ms(30));
    story.scheduler.run_now("job").unwrap();
    story.turn();
    assert_eq!(story.scheduler.remaining("job"), Some(Remaining::Runs(2)));
    story.pass(ms(300));
    assert_eq!(story.ms(), [30, 100, 200]);
    assert!(!story.scheduler.contains("job"));
}

#[test]
fn e5_a_run_now_is_due_now_and_has_a_number_of_its_own() {
    let story = Story::new();
    story.add("job", Plan::every(ms(100)));
    story.pass(ms(30));
    story.scheduler.run_now("job").unwrap();
    story.pass(ms(70));
    let made = story.made();
    assert_eq!(
        made.iter().map(|made| (made.number, made.due)).collect::<Vec<_>>(),
        [(1, 30_000_000), (2, 100_000_000)]
    );
}

#[test]
fn e5_while_a_run_is_active_a_run_now_is_refused_waits_or_overlaps() {
    for (overlap, second, third, runs) in [
        (Overlap::Skip, Err(RunNowError::Active), Err(RunNowError::Active), vec![10]),
        (Overlap::QueueOne, Ok(true), Err(RunNowError::Active), vec![10, 30]),
        (Overlap::Parallel, Ok(false), Ok(false), vec![10, 15, 15]),
    ] {
        let story = Story::new();
        story.add_slow("job", Plan::every(ms(1000)).first_at(story.instant(ms(10))).overlap(overlap), ms(20));
        story.pass(ms(15));
        assert_eq!(waits(&story.scheduler, "job"), second, "{overlap:?}");
        assert_eq!(waits(&story.scheduler, "job"), third, "{overlap:?}");
        story.pass(ms(500));
        assert_eq!(story.ms(), runs, "{overlap:?}");
    }
}

#[test]
fn e5_a_run_now_after_the_last_run_has_begun_is_made_before_the_job_is_removed() {
    let story = Story::new();
    story.add_slow("job", Plan::once(ms(10)).overlap(Overlap::QueueOne), ms(20));
    story.pass(ms(15));
    story.scheduler.run_now("job").unwrap();
    story.pass(ms(100));
    assert_eq!(story.ms(), [10, 30]);
    assert!(story.scheduler.is_empty());
}

#[test]
fn e5_a_run_now_that_fails_is_repeated() {
    let story = Story::new();
    let count = Count::default();
    let counted = count.clone();
    let job = move |run: &Run<&'static str>| {
        counted.add();
        if run.attempt() == 1 { Err("once") } else { Ok(()) }
    };
    let plan = Plan::every(ms(1000)).retry(1, Backoff::fixed(ms(10)));
    story.scheduler.schedule("job", plan, job).unwrap();
    story.scheduler.run_now("job").unwrap();
    story.pass(ms(20));
    assert_eq!(count.get(), 2);
}

#[test]
fn e5_g8_a_run_now_that_cannot_be_made_says_why() {
    let story = Story::with(|builder| builder.queue(0).overflow(Overflow::Skip));
    assert_eq!(story.scheduler.run_now("none"), Err(RunNowError::Unknown));
    story.add("job", Plan::every(ms(1000)));
    story.add("other", Plan::every(ms(1000)));
    story.scheduler.pause("job");
    assert_eq!(story.scheduler.run_now("job"), Err(RunNowError::Paused));
    story.scheduler.resume("job");
    story.scheduler.stop();
    assert_eq!(story.scheduler.run_now("job"), Err(RunNowError::Stopped));
    story.scheduler.start();
    assert_eq!(waits(&story.scheduler, "job"), Ok(false));
    // The thread that turns the engine takes one run; the queue itself has no room.
    assert_eq!(story.scheduler.run_now("other"), Err(RunNowError::Full { queue: 0 }));
    story.turn();
    assert_eq!(story.made().len(), 1);
    drop(story.scheduler.shutdown(Shutdown::Abort));
    assert_eq!(story.scheduler.run_now("job"), Err(RunNowError::ShutDown));
    for error in [RunNowError::Unknown, RunNowError::Paused, RunNowError::Active, RunNowError::Full { queue: 3 }] {
        let shown: Box<dyn std::error::Error> = Box::new(error);
        assert!(!shown.to_string().is_empty());
    }
}

#[test]
fn e5_a_job_runs_another_at_once() {
    let story = Story::new();
    story.add("second", Plan::every(ms(1000)));
    let job = |run: &Run<&'static str>| run.scheduler().unwrap().run_now("second").map(drop);
    story.scheduler.schedule("first", Plan::once(ms(10)), job).unwrap();
    story.pass(ms(20));
    assert_eq!(story.made_at_ms(), [("second", 10)]);
    assert_eq!(story.scheduler.stats().failed, 0);
}

#[test]
fn e5_a_run_that_was_asked_for_and_waits_is_dropped_by_a_pause() {
    let story = Story::new();
    story.add_slow("job", Plan::every(ms(1000)).first_at(story.instant(ms(10))).overlap(Overlap::QueueOne), ms(20));
    story.pass(ms(15));
    story.scheduler.run_now("job").unwrap();
    assert!(story.scheduler.pause("job") && story.scheduler.resume("job"));
    story.pass(ms(100));
    assert_eq!(story.ms(), [10]);
}

#[test]
fn e5_d24_one_run_waits_for_the_active_one_whether_it_was_asked_for_or_is_due() {
    let plan = |story: &Story| Plan::every(ms(20)).first_at(story.instant(ms(10))).overlap(Overlap::QueueOne);
    // The run from 10 to 35: one is asked for at 15, and the regular one of 30 finds the place taken.
    let story = Story::new();
    story.add_slow("job", plan(&story), ms(25));
    story.pass(ms(15));
    assert_eq!(waits(&story.scheduler, "job"), Ok(true));
    story.pass(ms(34));
    assert_eq!((story.due_ms(), story.scheduler.stats().overlapped), (vec![10, 15], 1));
    // The regular one of 30 waits, and none can be asked for.
    let story = Story::new();
    story.add_slow("job", plan(&story), ms(25));
    story.pass(ms(32));
    assert_eq!(waits(&story.scheduler, "job"), Err(RunNowError::Active));
    story.pass(ms(17));
    assert_eq!((story.due_ms(), story.scheduler.stats().overlapped), (vec![10, 30], 0));
}

#[test]
fn e5_the_only_run_of_a_plan_is_made_beside_one_that_was_asked_for() {
    let story = Story::new();
    story.add_slow("once", Plan::once(ms(30)).overlap(Overlap::QueueOne), ms(20));
    story.pass(ms(15));
    assert_eq!((waits(&story.scheduler, "once"), waits(&story.scheduler, "once")), (Ok(false), Ok(true)));
    story.pass(ms(200));
    assert_eq!((story.due_ms(), story.scheduler.len()), (vec![15, 30, 15], 0));
}

#[test]
fn e5_p2_a_run_that_was_accepted_is_made_however_full_the_queue_is_when_its_turn_comes() {
    let story = Story::with(|builder| builder.queue(0).overflow(Overflow::Skip));
    story.add_slow("job", Plan::every(ms(1000)).first_at(story.instant(ms(10))).overlap(Overlap::QueueOne), ms(20));
    story.pass(ms(15));
    assert_eq!(waits(&story.scheduler, "job"), Ok(true));
    // These are due when the active run ends, and the queue has room for none but the first.
    for key in ["a", "b", "c"] {
        story.add(key, Plan::every(ms(1000)).first_at(story.instant(ms(30))));
    }
    story.stall(ms(15));
    let made = story.made();
    assert_eq!(made.iter().filter(|made| made.key == "job").count(), 2, "{made:?}");
    assert_eq!(story.scheduler.report("job").unwrap().overflowed, 0);
    assert!(story.scheduler.stats().overflowed > 0, "the queue was full");
}

#[test]
fn e5_a_run_now_answers_with_the_identity_of_its_job() {
    let story = Story::new();
    let job = story.scheduler.schedule("job", ms(1000), |_| ()).unwrap();
    let requested = story.scheduler.run_now("job").unwrap();
    assert_eq!((requested, requested.job()), (Requested::Queued(job), job));
}
