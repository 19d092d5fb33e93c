//! Runs that a user asks for.

use tourbillon::scheduler::{Backoff, Overflow, Overlap, Plan, Remaining, Run, RunNowError, Shutdown};

use crate::support::ms;
use crate::{Count, Story};

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
        (Overlap::QueueOne, Ok(()), Err(RunNowError::Active), vec![10, 30]),
        (Overlap::Parallel, Ok(()), Ok(()), vec![10, 15, 15]),
    ] {
        let story = Story::new();
        story.add_slow("job", Plan::every(ms(1000)).first_at(story.instant(ms(10))).overlap(overlap), ms(20));
        story.pass(ms(15));
        assert_eq!(story.scheduler.run_now("job"), second, "{overlap:?}");
        assert_eq!(story.scheduler.run_now("job"), third, "{overlap:?}");
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
    assert_eq!(story.scheduler.run_now("job"), Ok(()));
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
    let job = |run: &Run<&'static str>| run.scheduler().unwrap().run_now("second");
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
