//! Tests of the scheduler's state alone, without clocks and threads: each call is told the time.

use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::builder::SchedulerRules;
use super::clock_pair::{ClockPair, JobClock};
use super::history::RunStatus;
use super::job::{RemovedJob, ScheduledJob};
use super::job_body::{BegunRun, JobBody, Run};
use super::plan::FOR_EVER;
use super::random::Random;
use super::state::{NextAction, RunEnd, RunStart, SchedulerPhase, SchedulerState};
use super::timing::JobTiming;
use super::{Overflow, Overlap, Plan, ScheduleErrorKind, Scheduler, Shutdown};
use crate::instant::Instant;
use crate::multi::deadline_map::DeadlineKey;
use crate::multi::wakeup_timer::WakeupTimer;
use crate::time::MissedTickBehavior::{Burst, Delay, Skip};
use crate::{Clock, Engine};

/// The body of a job that is never run: only its key counts.
struct KeyOnly(u64);

impl JobBody<u64> for KeyOnly {
    fn key(&self) -> &u64 {
        &self.0
    }

    fn is_blocking(&self) -> bool {
        true
    }

    fn begin(&self, _: &Run<u64>) -> BegunRun {
        unreachable!("the state runs no job")
    }
}

/// The state of a scheduler, and the time.
struct Fixture {
    state: SchedulerState<u64>,
    now: u64,
}

fn rules() -> SchedulerRules {
    SchedulerRules {
        overflow: Overflow::Wait,
        queue: 1000,
        capacity: 1 << 20,
        overlap: Overlap::Skip,
        missed: Skip,
        slack: None,
    }
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn every(nanos: u64) -> Plan {
    Plan::every(Duration::from_nanos(nanos))
}

impl Fixture {
    fn new(rules: SchedulerRules) -> Fixture {
        Fixture { state: SchedulerState::new(rules, 0, Random::new(1)), now: 0 }
    }

    fn insert(&mut self, key: u64, plan: Plan, due: u64) -> DeadlineKey {
        self.state.insert(Box::new(KeyOnly(key)), key as u32, plan, at(due))
    }

    fn now(&self) -> ClockPair {
        ClockPair { engine: at(self.now), wall: Time::ZERO }
    }

    /// Returns what a thread would do now.
    fn next(&mut self) -> NextAction<u64> {
        loop {
            match self.state.next(self.now()) {
                NextAction::Again => {}
                next => return next,
            }
        }
    }

    /// Returns the run that a thread would begin now.
    fn begin(&mut self) -> Option<RunStart<u64>> {
        match self.next() {
            NextAction::Run(begin) => Some(begin),
            NextAction::Wait | NextAction::End => None,
            NextAction::Task(_) | NextAction::Again => panic!("there are no tasks"),
        }
    }

    fn end(&mut self, begin: &RunStart<u64>) -> Option<RemovedJob<u64>> {
        let now = self.now();
        self.state.record_end(RunEnd::of(begin, RunStatus::Succeeded), now)
    }

    /// Makes all due runs, one after the other, in no time. Returns their keys and due times.
    fn run_all(&mut self) -> Vec<(u64, u64)> {
        let mut made = Vec::new();
        while let Some(begin) = self.begin() {
            made.push((*begin.body.key(), begin.due.time.as_nanos()));
            let _removed = self.end(&begin);
        }
        made
    }

    fn unmade(&self, job_key: DeadlineKey) -> (u64, u64, u64) {
        let job = self.state.jobs.get(job_key).expect("the job is there");
        let problems = job.extras.as_ref().map(|extras| extras.problems.clone()).unwrap_or_default();
        (problems.missed, problems.overlapped, problems.overflowed)
    }

    fn job(&self, job_key: DeadlineKey) -> &ScheduledJob<u64> {
        self.state.jobs.get(job_key).expect("the job is there")
    }
}

#[test]
fn g8_a_plan_with_nothing_in_it_is_refused() {
    assert_eq!(every(0).check(), Err(ScheduleErrorKind::ZeroInterval));
    assert_eq!(every(1).times(0).check(), Err(ScheduleErrorKind::ZeroTimes));
    assert_eq!(every(0).times(0).check(), Err(ScheduleErrorKind::ZeroTimes));
    assert_eq!(every(1).check(), Ok(()));
    assert_eq!(Plan::once(Duration::ZERO).check(), Ok(()));
    assert_eq!(Plan::every(Duration::MAX).times(u64::MAX).check(), Ok(()));
}

#[test]
fn g3_the_first_run_is_due_when_the_plan_says() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    engine.clock().set(at(1000));
    let instant = Instant::from_std(engine.clock().std_of(at(700)));
    let wakeup = WakeupTimer::on(engine.core(), Waker::noop().clone());
    let clock = JobClock::new(engine.core().clone(), wakeup, None);
    assert_eq!(every(10).first_due(&clock), at(1010));
    assert_eq!(every(10).first_at_once().first_due(&clock), at(1000));
    assert_eq!(every(10).first_at(instant).first_due(&clock), at(700));
    assert_eq!(Plan::every(Duration::MAX).first_due(&clock), Time::NEVER);
}

#[test]
fn p5_d31_times_that_cannot_be_represented_are_never() {
    let timing = JobTiming::Every(Span::from(Duration::MAX));
    assert_eq!(timing.after(at(5)), Time::NEVER);
    assert_eq!(timing.first_after(at(5), at(10)), (Time::NEVER, 0));
    let timing = JobTiming::Every(Span::from_nanos(u64::MAX / 2));
    assert_eq!(timing.first_after(at(5), at(u64::MAX - 1)), (Time::NEVER, 1));
    assert_eq!(timing.first_after(at(0), at(0)), (at(u64::MAX / 2), 0));
}

#[test]
fn d14_what_has_passed_is_counted_to_the_nanosecond() {
    let timing = JobTiming::Every(Span::from_nanos(10));
    for (now, next, passed) in
        [(100, 110, 0), (109, 110, 0), (110, 120, 1), (119, 120, 1), (195, 200, 9), (200, 210, 10)]
    {
        assert_eq!(timing.first_after(at(100), at(now)), (at(next), passed), "at {now}");
    }
}

#[test]
fn d23_each_policy_does_its_own_with_times_that_went_by() {
    // Due at 100, 110 .. 190; the first thread comes at 195.
    let cases = [
        (Skip, vec![100], 200, 9),
        (Burst, vec![100, 110, 120, 130, 140, 150, 160, 170, 180, 190], 200, 0),
        (Delay, vec![100], 200, 9),
    ];
    for (missed, made, next, count) in cases {
        let mut fixture = Fixture::new(SchedulerRules { missed, ..rules() });
        let key = fixture.insert(7, every(10), 100);
        fixture.now = 195;
        let expected: Vec<_> = made.into_iter().map(|due| (7, due)).collect();
        assert_eq!(fixture.run_all(), expected, "{missed:?}");
        assert_eq!((fixture.job(key).due, fixture.unmade(key).0), (at(next), count), "{missed:?}");
    }
}

#[test]
fn d23_delay_counts_from_when_the_late_run_was_made_but_not_for_a_few_milliseconds() {
    const MS: u64 = 1_000_000;
    for (late, next) in [(4 * MS, 200 * MS), (5 * MS, 200 * MS), (5 * MS + 1, 205 * MS + 1), (950 * MS, 1150 * MS)] {
        let mut fixture = Fixture::new(SchedulerRules { missed: Delay, ..rules() });
        let key = fixture.insert(7, every(100 * MS), 100 * MS);
        fixture.now = 100 * MS + late;
        assert_eq!(fixture.run_all(), [(7, 100 * MS)]);
        assert_eq!(fixture.job(key).due, at(next), "{late} ns late");
    }
}

#[test]
fn d24_a_job_that_takes_longer_than_its_interval_overlaps_as_its_policy_says() {
    // One run from 100 to 145; those of 110, 120, 130 and 140 fall into it. (Each is seen in time.)
    let cases = [(Overlap::Skip, vec![150], 4), (Overlap::QueueOne, vec![110, 150], 3)];
    for (overlap, after, overlapped) in cases {
        let mut fixture = Fixture::new(SchedulerRules { overlap, ..rules() });
        let key = fixture.insert(7, every(10), 100);
        fixture.now = 100;
        let begin = fixture.begin().unwrap();
        for now in [110, 120, 130, 140] {
            fixture.now = now;
            assert!(fixture.begin().is_none(), "{overlap:?} at {now}");
        }
        fixture.now = 145;
        assert!(fixture.end(&begin).is_none());
        let mut made = fixture.run_all();
        fixture.now = 150;
        made.extend(fixture.run_all());
        assert_eq!(made.into_iter().map(|(_, due)| due).collect::<Vec<_>>(), after, "{overlap:?}");
        assert_eq!(fixture.unmade(key), (0, overlapped, 0), "{overlap:?}");
    }
}

#[test]
fn d24_in_parallel_each_time_has_a_run_of_its_own_number() {
    let mut fixture = Fixture::new(SchedulerRules { overlap: Overlap::Parallel, ..rules() });
    let key = fixture.insert(7, every(10).times(3), 100);
    let mut runs = Vec::new();
    for now in [100, 110, 120, 130, 140] {
        fixture.now = now;
        runs.extend(fixture.begin());
    }
    assert_eq!(
        runs.iter().map(|run| (run.number, run.due.time)).collect::<Vec<_>>(),
        [(1, at(100)), (2, at(110)), (3, at(120))]
    );
    assert_eq!(fixture.job(key).active, 3);
    // The job is there until the last of its runs has ended, in whatever order they end.
    assert!(fixture.end(&runs[2]).is_none());
    assert!(fixture.end(&runs[0]).is_none());
    assert!(fixture.end(&runs[1]).is_some());
    assert_eq!(fixture.state.running, 0);
}

#[test]
fn d17_without_a_queue_a_thread_that_is_free_makes_a_run() {
    for overflow in [Overflow::Wait, Overflow::Skip, Overflow::RunLate] {
        let mut fixture = Fixture::new(SchedulerRules { queue: 0, overflow, ..rules() });
        fixture.insert(7, every(10), 10);
        fixture.now = 10;
        assert!(fixture.begin().is_some(), "{overflow:?}");
    }
}

/// All threads are busy but one.
#[test]
fn d17_the_queue_is_as_long_as_the_rules_say_and_the_counts_add_up() {
    for (overflow, queued, overflowed, late) in
        [(Overflow::Wait, 3, 0, 0), (Overflow::Skip, 3, 16, 0), (Overflow::RunLate, 19, 0, 16)]
    {
        let mut fixture = Fixture::new(SchedulerRules { queue: 3, overflow, ..rules() });
        for key in 0..20 {
            fixture.insert(key, every(1000), 10);
        }
        fixture.now = 10;
        let first = fixture.begin().unwrap();
        assert_eq!(*first.body.key(), 0);
        assert_eq!(fixture.state.queued(), queued, "{overflow:?}");
        let _removed = fixture.end(&first);
        let made = 1 + fixture.run_all().len() as u64;
        let stats = fixture.state.stats;
        assert_eq!((stats.overflowed, stats.late, made), (overflowed, late, 20 - overflowed), "{overflow:?}");
        assert_eq!(stats.runs, made);
    }
}

#[test]
fn d17_a_run_that_finds_no_room_uses_up_none_of_the_times() {
    let mut fixture = Fixture::new(SchedulerRules { queue: 0, overflow: Overflow::Skip, ..rules() });
    fixture.insert(0, every(1000), 10);
    let key = fixture.insert(1, every(10).times(2), 10);
    fixture.now = 10;
    let other = fixture.begin().unwrap();
    assert_eq!((*other.body.key(), fixture.job(key).runs_left, fixture.unmade(key)), (0, 2, (0, 0, 1)));
    fixture.now = 30;
    assert_eq!(fixture.run_all(), [(1, 20)]);
    assert_eq!(fixture.unmade(key), (1, 0, 1));
}

#[test]
fn d17_a_burst_that_finds_no_room_is_counted_whole() {
    let mut fixture = Fixture::new(SchedulerRules { queue: 0, overflow: Overflow::Skip, missed: Burst, ..rules() });
    fixture.insert(0, every(1000), 10);
    let key = fixture.insert(1, every(10), 10);
    fixture.now = 55;
    let other = fixture.begin().unwrap();
    assert_eq!(*other.body.key(), 0);
    // Of 10, 20, 30, 40 and 50 none is made, and the next is due at 60.
    assert_eq!((fixture.unmade(key), fixture.job(key).due), ((0, 0, 5), at(60)));
}

#[test]
fn g4_a_queued_run_whose_job_is_removed_is_not_made() {
    let mut fixture = Fixture::new(rules());
    let keys: Vec<_> = (0..3).map(|key| fixture.insert(key, every(10), 10)).collect();
    fixture.now = 10;
    let first = fixture.begin().unwrap();
    assert!(fixture.state.remove(keys[1]).is_some());
    assert!(fixture.state.remove(keys[1]).is_none());
    assert_eq!(*fixture.begin().unwrap().body.key(), 2);
    assert!(fixture.begin().is_none());
    // The first is removed while it runs: its end finds nothing to do.
    assert!(fixture.state.remove(keys[0]).is_some());
    assert!(fixture.end(&first).is_none());
    assert_eq!((fixture.state.running, fixture.state.jobs.len()), (1, 1));
}

#[test]
fn g3_a_job_whose_last_run_is_queued_has_no_more_that_could_overlap() {
    let mut fixture = Fixture::new(SchedulerRules { overlap: Overlap::QueueOne, ..rules() });
    let key = fixture.insert(1, every(10).times(2), 10);
    fixture.now = 10;
    let first = fixture.begin().unwrap();
    fixture.now = 20;
    assert!(fixture.begin().is_none());
    let _not_over = fixture.end(&first);
    fixture.now = 30;
    assert_eq!(fixture.begin().unwrap().due.time, at(20));
    assert_eq!(fixture.unmade(key), (0, 0, 0));
}

#[test]
fn g4_a_paused_job_gives_up_what_waits_behind_its_run() {
    let mut fixture = Fixture::new(SchedulerRules { overlap: Overlap::QueueOne, ..rules() });
    let key = fixture.insert(1, every(10).times(3), 10);
    fixture.now = 10;
    let run = fixture.begin().unwrap();
    fixture.now = 20;
    assert!(fixture.begin().is_none());
    assert_eq!(fixture.job(key).backlog().count, 1);
    assert!(fixture.state.pause(key));
    let _removed = fixture.end(&run);
    fixture.now = 95;
    assert!(fixture.begin().is_none());
    assert!(fixture.state.resume(key, fixture.now()));
    fixture.now = 100;
    // One run is made, and not the one of 20 after it.
    assert_eq!(fixture.run_all(), [(1, 100)]);
    fixture.now = 110;
    assert_eq!(fixture.run_all(), [(1, 110)]);
    assert!(fixture.state.jobs.get(key).is_none());
}

#[test]
fn g4_a_queued_run_when_its_job_is_paused_is_not_lost_from_its_times() {
    let mut fixture = Fixture::new(rules());
    fixture.insert(0, every(1000), 10);
    let key = fixture.insert(1, every(10).times(1), 10);
    fixture.now = 10;
    let _other = fixture.begin().unwrap();
    assert_eq!(fixture.job(key).runs_left, 0);
    assert!(fixture.state.pause(key));
    assert!(fixture.begin().is_none());
    assert_eq!((fixture.job(key).runs_left, fixture.job(key).active), (1, 0));
    assert!(fixture.state.resume(key, fixture.now()));
    fixture.now = 20;
    assert_eq!(fixture.run_all(), [(1, 20)]);
    assert_eq!(fixture.state.jobs.len(), 1);
}

#[test]
fn g4_a_job_that_is_resumed_before_a_thread_looked_has_lost_nothing() {
    let mut fixture = Fixture::new(rules());
    fixture.insert(0, every(1000), 10);
    let key = fixture.insert(1, every(10).times(1), 10);
    fixture.now = 10;
    let _other = fixture.begin().unwrap();
    assert!(fixture.state.pause(key));
    assert!(fixture.state.resume(key, fixture.now()));
    assert_eq!(fixture.run_all(), [(1, 10)]);
}

#[test]
fn g5_times_that_go_by_while_it_is_stopped_are_missed() {
    let mut fixture = Fixture::new(SchedulerRules { missed: Burst, ..rules() });
    let key = fixture.insert(7, every(10), 10);
    fixture.state.stop();
    fixture.now = 55;
    assert!(fixture.begin().is_none());
    fixture.state.start(fixture.now());
    assert!(fixture.begin().is_none());
    assert_eq!(fixture.unmade(key), (5, 0, 0));
    fixture.now = 60;
    assert_eq!(fixture.run_all(), [(7, 60)]);
}

#[test]
fn g5_a_time_that_is_just_now_when_it_is_started_is_not_missed() {
    let mut fixture = Fixture::new(rules());
    fixture.insert(7, every(10), 10);
    fixture.state.stop();
    fixture.now = 50;
    fixture.state.start(fixture.now());
    assert_eq!(fixture.run_all(), [(7, 50)]);
    assert_eq!(fixture.state.stats.missed, 4);
}

#[test]
fn g5_a_past_first_time_that_was_asked_for_after_the_start_is_not_passed_over() {
    for (missed, overlap, expected) in [
        (Burst, Overlap::Skip, vec![95, 105, 115]),
        (Burst, Overlap::Parallel, vec![95, 105, 115]),
        (Skip, Overlap::Skip, vec![95]),
        (Delay, Overlap::Skip, vec![95]),
    ] {
        let mut fixture = Fixture::new(SchedulerRules { overlap, missed, ..rules() });
        fixture.state.stop();
        fixture.now = 110;
        fixture.state.start(fixture.now());
        fixture.now = 120;
        fixture.insert(7, every(10), 95);
        let made: Vec<_> = fixture.run_all().into_iter().map(|(_, due)| due).collect();
        assert_eq!(made, expected, "{missed:?} {overlap:?}");
        // The same for a job that is given such a plan later.
        let key = fixture.insert(8, every(1000), 5000);
        let _old = fixture.state.change_plan(key, every(10), at(95), None);
        let made: Vec<_> = fixture.run_all().into_iter().filter(|(key, _)| *key == 8).map(|(_, due)| due).collect();
        assert_eq!(made, expected, "{missed:?} {overlap:?}");
    }
}

#[test]
fn g5_queued_runs_wait_while_it_is_stopped() {
    let mut fixture = Fixture::new(rules());
    (0..3).for_each(|key| _ = fixture.insert(key, every(10), 10));
    fixture.now = 10;
    let first = fixture.begin().unwrap();
    fixture.state.stop();
    let _removed = fixture.end(&first);
    assert!(fixture.begin().is_none());
    assert_eq!(fixture.state.queued(), 2);
    fixture.state.start(fixture.now());
    assert_eq!(fixture.run_all(), [(1, 10), (2, 10)]);
}

#[test]
fn g4_drain_makes_queued_runs_and_those_that_wait_behind_a_run() {
    let mut fixture = Fixture::new(SchedulerRules { overlap: Overlap::QueueOne, ..rules() });
    fixture.insert(0, every(10), 10);
    fixture.insert(1, every(1000), 20);
    fixture.now = 10;
    let first = fixture.begin().unwrap();
    fixture.now = 20;
    let second = fixture.begin().unwrap();
    let _removed = fixture.state.shut_down(Shutdown::Drain, fixture.now());
    fixture.now = 1000;
    assert!(fixture.state.try_end().is_none());
    let _removed = fixture.end(&second);
    let _removed = fixture.end(&first);
    assert_eq!(fixture.run_all(), [(0, 20)]);
    assert!(matches!(fixture.next(), NextAction::End));
    assert!(fixture.state.try_end().is_some());
    assert_eq!(fixture.state.phase, SchedulerPhase::Over);
}

#[test]
fn g4_drain_makes_what_was_due_and_had_no_room_in_the_queue() {
    for overflow in [Overflow::Wait, Overflow::Skip, Overflow::RunLate] {
        let mut fixture = Fixture::new(SchedulerRules { queue: 2, overflow, ..rules() });
        (0..200).for_each(|key| _ = fixture.insert(key, every(10), 10));
        fixture.insert(200, every(10), 11);
        fixture.now = 10;
        let first = fixture.begin().unwrap();
        let _removed = fixture.state.shut_down(Shutdown::Drain, fixture.now());
        fixture.now = 1000;
        let _removed = fixture.end(&first);
        let made = 1 + fixture.run_all().len() as u64;
        assert_eq!(made + fixture.state.stats.overflowed, 200, "{overflow:?}");
        assert!(overflow == Overflow::Skip || made == 200, "{overflow:?}");
        assert!(fixture.state.try_end().is_some(), "{overflow:?}");
    }
}

#[test]
fn g4_drain_of_a_stopped_one_makes_queued_runs_and_nothing_that_went_by() {
    let mut fixture = Fixture::new(rules());
    (0..3).for_each(|key| _ = fixture.insert(key, every(10), 10));
    fixture.now = 10;
    let first = fixture.begin().unwrap();
    fixture.state.stop();
    fixture.now = 100;
    let _removed = fixture.state.shut_down(Shutdown::Drain, fixture.now());
    let _removed = fixture.end(&first);
    assert_eq!(fixture.run_all(), [(1, 10), (2, 10)]);
    assert!(fixture.state.try_end().is_some());
}

#[test]
fn g4_an_idle_one_is_over_at_once() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let mut fixture = Fixture::new(rules());
        fixture.insert(7, every(10), 10);
        let removed = fixture.state.shut_down(how, fixture.now());
        assert_eq!(removed.is_some(), how == Shutdown::Abort);
        assert!(fixture.state.try_end().is_some());
        assert!(fixture.state.try_end().is_none());
        assert!(fixture.state.shut_down(Shutdown::Abort, fixture.now()).is_none());
    }
}

#[test]
fn g4_abort_counts_the_runs_that_it_takes_from_the_queue_and_no_others() {
    let mut fixture = Fixture::new(rules());
    let keys: Vec<_> = (0..5).map(|key| fixture.insert(key, every(10), 10)).collect();
    fixture.now = 10;
    let _first = fixture.begin().unwrap();
    let _removed = fixture.state.remove(keys[3]);
    assert!(fixture.state.shut_down(Shutdown::Abort, fixture.now()).is_some());
    // The first is being made, the fourth was removed before.
    assert_eq!((fixture.state.stats.aborted, fixture.state.queued()), (3, 0));
}

#[test]
fn g4_a_new_plan_begins_afresh_and_keeps_the_count_of_runs() {
    let mut fixture = Fixture::new(SchedulerRules { missed: Burst, ..rules() });
    let key = fixture.insert(7, every(10).times(3), 10);
    fixture.now = 30;
    let first = fixture.begin().unwrap();
    assert_eq!(fixture.job(key).backlog().count, 2);
    assert!(fixture.state.change_plan(key, every(100).times(2), at(150), None).is_some());
    assert!(fixture.end(&first).is_none());
    assert!(fixture.begin().is_none());
    fixture.now = 250;
    let second = fixture.begin().unwrap();
    assert_eq!((second.number, second.due.time), (2, at(150)));
    assert!(fixture.end(&second).is_none());
    let third = fixture.begin().unwrap();
    assert_eq!((third.number, third.due.time), (3, at(250)));
    assert!(fixture.end(&third).is_some());
    assert!(fixture.state.change_plan(key, every(1), at(1), None).is_none());
}

#[test]
fn p9_no_wakeup_is_set_while_nothing_is_due() {
    let mut fixture = Fixture::new(rules());
    assert_eq!(fixture.state.take_new_wakeups().map(|wakeups| wakeups.engine), Some(Time::NEVER));
    fixture.insert(7, every(100), 100);
    let wakeups = fixture.state.take_new_wakeups().expect("a wake-up has to be set");
    assert!(wakeups.engine <= at(100));
    // A later deadline does not change the wake-up.
    fixture.insert(8, every(200), 200);
    assert_eq!(fixture.state.take_new_wakeups(), None);
    fixture.insert(9, every(5), 5);
    assert_eq!(fixture.state.take_new_wakeups().map(|wakeups| wakeups.engine), Some(at(5)));
}

/// Random jobs, and threads that come at random times: every occurrence of every job is made or counted.
#[test]
fn p7_the_counts_add_up_after_any_sequence() {
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Lcg(seed);
        let overflow = [Overflow::Wait, Overflow::Skip, Overflow::RunLate][random.below(3) as usize];
        let mut fixture = Fixture::new(SchedulerRules { queue: random.below(4) as usize, overflow, ..rules() });
        let mut jobs = Vec::new();
        for key in 0..1 + random.below(12) {
            let overlap = [Overlap::Skip, Overlap::QueueOne, Overlap::Parallel][random.below(3) as usize];
            let missed = [Skip, Burst][random.below(2) as usize];
            let (interval, due) = (1 + random.below(20), random.below(40));
            let plan = every(interval).overlap(overlap).missed(missed);
            jobs.push((fixture.insert(key, plan, due), interval, due));
        }
        let mut running: Vec<RunStart<u64>> = Vec::new();
        for _ in 0..200 {
            fixture.now += random.below(8);
            fixture.state.idle = random.below(3) as usize;
            if running.len() < 4 {
                running.extend(fixture.begin());
            }
            if !running.is_empty() && random.below(2) == 0 {
                let ended = running.swap_remove(random.below(running.len() as u64) as usize);
                assert!(fixture.end(&ended).is_none(), "a job that runs for ever does not end");
            }
        }
        // Threads come until nothing is left to do.
        loop {
            running.drain(..).for_each(|ended| {
                assert!(fixture.end(&ended).is_none());
            });
            match fixture.begin() {
                Some(begin) => running.push(begin),
                None => break,
            }
        }
        let mut runs = 0;
        for (key, interval, due) in jobs {
            let (missed, overlapped, overflowed) = fixture.unmade(key);
            let job = fixture.job(key);
            let times = if fixture.now < due { 0 } else { (fixture.now - due) / interval + 1 };
            assert_eq!(
                job.runs + missed + overlapped + overflowed,
                times,
                "seed {seed}, {overflow:?}, {:?}",
                job.overlap
            );
            assert_eq!((job.active, job.backlog().count, job.runs_left), (0, 0, FOR_EVER), "seed {seed}");
            assert_eq!((job.due.as_nanos() - due) % interval, 0, "seed {seed}: off its grid");
            runs += job.runs;
        }
        assert_eq!(
            (fixture.state.stats.runs, fixture.state.running, fixture.state.queued()),
            (runs, 0, 0),
            "seed {seed}"
        );
    }
}

/// A generator of random numbers.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn d81_the_engine_of_the_wall_clock_is_made_outside_of_the_schedulers_cell() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
        let scheduler = Scheduler::<u64>::builder().engine(&engine).threads(0).build().unwrap();
        let shared = &scheduler.owner.shared;
        // Creating the engine sends an event, and the subscriber may schedule a cron job.
        let on_engine = || (engine.core().clone(), None);
        let inner = shared.wall_clock(|| {
            shared.wall_clock(on_engine).unwrap();
            on_engine()
        });
        sender.send(inner.is_some()).unwrap();
    });
    assert!(receiver.recv_timeout(Duration::from_secs(60)).expect("no deadlock, no panic"));
}

#[test]
fn e5_p7_the_histograms_of_a_job_are_allocated_outside_the_lock_and_once() {
    let mut fixture = Fixture::new(rules());
    fixture.state.records_each_job = true;
    let key = fixture.insert(7, every(10), 10);
    let has_timings =
        |fixture: &Fixture| fixture.job(key).extras.as_ref().is_some_and(|extras| extras.timings.is_some());
    for (now, needs) in [(10, true), (20, false)] {
        fixture.now = now;
        let begin = fixture.begin().unwrap();
        assert_eq!((begin.facts.needs_timings, has_timings(&fixture)), (needs, !needs));
        let _removed = fixture.end(&begin);
        assert!(has_timings(&fixture));
    }
    // The state itself allocates none: a run that began before the recording has no histograms.
    let mut fixture = Fixture::new(rules());
    let key = fixture.insert(7, every(10), 10);
    fixture.now = 10;
    let begin = fixture.begin().unwrap();
    fixture.state.records_each_job = true;
    let _removed = fixture.end(&begin);
    assert!(fixture.job(key).extras.as_ref().is_none_or(|extras| extras.timings.is_none()));
}
