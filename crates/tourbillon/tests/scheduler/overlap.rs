//! Jobs that take longer than their interval.

use tourbillon::scheduler::{Overlap, Plan, Scheduler};
use tourbillon::time::MissedTickBehavior;

use crate::support::{eventually, manual, ms};
use crate::{Count, Gate, Story};

/// Every 10 ms a run that takes 24: when runs began, how many were not made, how many were active at once at most.
#[test]
fn d24_a_slow_job_overlaps_itself_only_if_it_is_allowed_to() {
    let cases = [
        (Overlap::Skip, vec![10, 40, 70, 100], 6, 1),
        (Overlap::QueueOne, vec![10, 34, 58, 82], 5, 1),
        (Overlap::Parallel, vec![10, 20, 30, 40, 50, 60, 70, 80, 90, 100], 0, 3),
    ];
    for (overlap, begun, overlapped, at_once) in cases {
        let story = Story::with(|builder| builder.overlap(overlap));
        story.add_slow("slow", ms(10), ms(24));
        let mut most = 0;
        for _ in 0..105 {
            story.pass(ms(1));
            most = most.max(story.scheduler.stats().running);
        }
        assert_eq!(story.ms(), begun, "{overlap:?}");
        let report = story.scheduler.report("slow").unwrap();
        assert_eq!((report.overlapped, report.missed, most), (overlapped, 0, at_once), "{overlap:?}");
        assert_eq!(story.scheduler.stats().overlapped, overlapped, "{overlap:?}");
    }
}

#[test]
fn d24_by_default_a_job_does_not_overlap_itself() {
    let story = Story::new();
    story.add_slow("slow", ms(10), ms(10));
    story.pass(ms(100));
    // A run that ends exactly when the next is due may or may not count as active: there are never two.
    assert!(story.scheduler.stats().running <= 1);
    assert_eq!(story.made().len() as u64 + story.scheduler.stats().overlapped, 10);
}

#[test]
fn d24_the_policy_of_a_plan_comes_before_that_of_the_scheduler() {
    let story = Story::with(|builder| builder.overlap(Overlap::Parallel));
    story.add_slow("skips", Plan::every(ms(10)).overlap(Overlap::Skip), ms(15));
    story.add_slow("both", Plan::every(ms(10)), ms(15));
    story.pass(ms(45));
    let made = story.made_at_ms();
    let of = |key| made.iter().filter(|run| run.0 == key).map(|run| run.1).collect::<Vec<_>>();
    assert_eq!((of("skips"), of("both")), (vec![10, 30], vec![10, 20, 30, 40]));
}

#[test]
fn d24_the_run_that_waits_keeps_the_time_for_which_it_was_due() {
    let story = Story::with(|builder| builder.overlap(Overlap::QueueOne));
    story.add_slow("slow", Plan::every(ms(10)).times(3), ms(35));
    story.pass(ms(200));
    let made: Vec<_> = story.made().into_iter().map(|run| (run.due / 1_000_000, run.at / 1_000_000)).collect();
    // The run of 20 waits until 45; meanwhile those of 30 and 40 overlap. Then that of 50 waits until 80.
    assert_eq!(made, [(10, 10), (20, 45), (50, 80)]);
    assert!(!story.scheduler.contains("slow"));
    assert_eq!(story.scheduler.stats().running, 0);
}

#[test]
fn d24_overlapping_runs_use_up_none_of_the_times() {
    let story = Story::new();
    story.add_slow("slow", Plan::every(ms(10)).times(3), ms(25));
    story.pass(ms(200));
    assert_eq!(story.ms(), [10, 40, 70]);
}

#[test]
fn d24_a_slow_job_delays_no_other() {
    let story = Story::new();
    story.add_slow("slow", ms(10), ms(1000));
    story.add("quick", ms(10));
    story.pass(ms(100));
    let made = story.made_at_ms();
    assert_eq!(made.iter().filter(|run| run.0 == "quick").count(), 10);
    assert_eq!(made.iter().filter(|run| run.0 == "slow").count(), 1);
}

#[test]
fn d23_d24_during_a_run_a_stall_counts_as_overlap() {
    for (overlap, then, overlapped) in [(Overlap::Skip, vec![10, 120], 10), (Overlap::QueueOne, vec![10, 20, 120], 9)] {
        for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst] {
            let story = Story::with(|builder| builder.overlap(overlap).missed(missed));
            story.add_slow("slow", ms(10), ms(5));
            story.pass(ms(10));
            // The run would have ended at 15, but the engine is not driven before 115. The runs of 20 to 110 were due meanwhile.
            story.stall(ms(105));
            story.pass(ms(6));
            let report = story.scheduler.report("slow").unwrap();
            assert_eq!((story.due_ms(), report.overlapped), (then.clone(), overlapped), "{overlap:?} {missed:?}");
        }
    }
}

/// Closures that block their threads, of which there are three.
#[test]
fn d24_a_closure_that_blocks_overlaps_itself_only_if_it_is_allowed_to() {
    for (overlap, at_once, overlapped) in [(Overlap::Skip, 1, 2), (Overlap::QueueOne, 1, 1), (Overlap::Parallel, 3, 0)]
    {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(3).overlap(overlap).build().unwrap();
        let (opener, gate) = Gate::new();
        let (begun, ended) = (Count::default(), Count::default());
        let (first, last) = (begun.clone(), ended.clone());
        let job = move |_: &_| {
            first.add();
            gate.wait();
            last.add();
        };
        scheduler.schedule("slow", ms(10), job).unwrap();
        for round in 1..=3 {
            engine.advance(ms(10));
            let waits = u64::from(overlap == Overlap::QueueOne && round > 1);
            eventually("its run is made or counted", || {
                let stats = scheduler.stats();
                begun.get() as u64 + stats.overlapped + waits == round
            });
        }
        assert_eq!((begun.get(), ended.get()), (at_once, 0), "{overlap:?}");
        assert_eq!(scheduler.report("slow").unwrap().overlapped, overlapped, "{overlap:?}");
        scheduler.pause("slow");
        drop(opener);
        eventually("all runs have ended", || ended.get() == begun.get() && scheduler.stats().running == 0);
    }
}
