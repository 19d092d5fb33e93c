//! The book alone: no clock, no threads. Whoever looks at it says what time it is.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::book::{Begin, Book, End, Next, Phase};
use super::job::{Gone, Job};
use super::plan::{FOR_EVER, Timing};
use super::times::Times;
use super::work::{Begun, Run, Work};
use super::{Overflow, Overlap, Plan, Rules, ScheduleErrorKind, Scheduler, Shutdown};
use crate::instant::Instant;
use crate::multi::deadline_map::Key;
use crate::time::MissedTickBehavior::{Burst, Delay, Skip};
use crate::{Clock, Engine};

/// A job's key. What it does is nobody's business here.
struct Named(u64);

impl Work<u64> for Named {
    fn key(&self) -> &u64 {
        &self.0
    }

    fn begin(&self, _: &Run<u64>) -> Begun {
        unreachable!("the book calls nobody")
    }
}

/// A book, and what time it is.
struct Story {
    book: Book<u64>,
    now: u64,
}

fn rules() -> Rules {
    Rules { overflow: Overflow::Wait, queue: 1000, capacity: 1 << 20, overlap: Overlap::Skip, missed: Skip }
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn every(nanos: u64) -> Plan {
    Plan::every(Duration::from_nanos(nanos))
}

impl Story {
    fn new(rules: Rules) -> Story {
        Story { book: Book::new(rules, 0), now: 0 }
    }

    fn insert(&mut self, key: u64, plan: Plan, due: u64) -> Key {
        let job = Job::new(Arc::new(Named(key)), key as u32, plan, at(due), &self.book.rules);
        self.book.insert(job)
    }

    fn now(&self) -> Times {
        Times { engine: at(self.now), wall: Time::ZERO }
    }

    /// What a thread would do next that comes now.
    fn next(&mut self) -> Next<u64> {
        loop {
            match self.book.next(self.now()) {
                Next::Again => {}
                next => return next,
            }
        }
    }

    /// The run that a thread begins that comes now.
    fn begin(&mut self) -> Option<Begin<u64>> {
        match self.next() {
            Next::Run(begin) => Some(begin),
            Next::Wait | Next::Over => None,
            Next::Task(_) | Next::Again => panic!("there are no tasks"),
        }
    }

    fn end(&mut self, begin: &Begin<u64>) -> Option<Gone<u64>> {
        self.book.end(End { job: begin.job, failure: None })
    }

    /// Makes all runs that are due, one after the other, in no time: keys, and when they were due.
    fn run_all(&mut self) -> Vec<(u64, u64)> {
        let mut made = Vec::new();
        while let Some(begin) = self.begin() {
            made.push((*begin.work.key(), begin.due.time.as_nanos()));
            let _gone = self.end(&begin);
        }
        made
    }

    fn troubles(&self, key: Key) -> (u64, u64, u64) {
        let job = self.book.jobs.get(key).expect("the job is there");
        job.troubles.as_ref().map_or((0, 0, 0), |it| (it.missed, it.overlapped, it.overflowed))
    }

    fn job(&self, key: Key) -> &Job<u64> {
        self.book.jobs.get(key).expect("the job is there")
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
    assert_eq!(every(10).first_due(engine.core()), at(1010));
    assert_eq!(every(10).first_at_once().first_due(engine.core()), at(1000));
    assert_eq!(every(10).first_at(instant).first_due(engine.core()), at(700));
    assert_eq!(Plan::every(Duration::MAX).first_due(engine.core()), Time::NEVER);
}

#[test]
fn p5_d31_times_that_cannot_be_represented_are_never() {
    let timing = Timing::Every(Span::from(Duration::MAX));
    assert_eq!(timing.after(at(5)), Time::NEVER);
    assert_eq!(timing.beyond(at(5), at(10)), (Time::NEVER, 0));
    let timing = Timing::Every(Span::from_nanos(u64::MAX / 2));
    assert_eq!(timing.beyond(at(5), at(u64::MAX - 1)), (Time::NEVER, 1));
    assert_eq!(timing.beyond(at(0), at(0)), (at(u64::MAX / 2), 0));
}

#[test]
fn d14_what_has_passed_is_counted_to_the_nanosecond() {
    let timing = Timing::Every(Span::from_nanos(10));
    for (now, next, passed) in
        [(100, 110, 0), (109, 110, 0), (110, 120, 1), (119, 120, 1), (195, 200, 9), (200, 210, 10)]
    {
        assert_eq!(timing.beyond(at(100), at(now)), (at(next), passed), "at {now}");
    }
}

#[test]
fn d23_each_policy_does_its_own_with_times_that_went_by() {
    // Due at 100, 110 .. 190; somebody comes at 195.
    let cases = [
        (Skip, vec![100], 200, 9),
        (Burst, vec![100, 110, 120, 130, 140, 150, 160, 170, 180, 190], 200, 0),
        (Delay, vec![100], 200, 9),
    ];
    for (missed, made, next, count) in cases {
        let mut story = Story::new(Rules { missed, ..rules() });
        let key = story.insert(7, every(10), 100);
        story.now = 195;
        let expected: Vec<_> = made.into_iter().map(|due| (7, due)).collect();
        assert_eq!(story.run_all(), expected, "{missed:?}");
        assert_eq!((story.job(key).due, story.troubles(key).0), (at(next), count), "{missed:?}");
    }
}

#[test]
fn d23_delay_counts_from_when_the_late_run_was_made_but_not_for_a_few_milliseconds() {
    const MS: u64 = 1_000_000;
    for (late, next) in [(4 * MS, 200 * MS), (5 * MS, 200 * MS), (5 * MS + 1, 205 * MS + 1), (950 * MS, 1150 * MS)] {
        let mut story = Story::new(Rules { missed: Delay, ..rules() });
        let key = story.insert(7, every(100 * MS), 100 * MS);
        story.now = 100 * MS + late;
        assert_eq!(story.run_all(), [(7, 100 * MS)]);
        assert_eq!(story.job(key).due, at(next), "{late} ns late");
    }
}

#[test]
fn d24_a_job_that_takes_longer_than_its_interval_overlaps_as_its_policy_says() {
    // One run from 100 to 145; those of 110, 120, 130 and 140 fall into it. (Each is seen in time.)
    let cases = [(Overlap::Skip, vec![150], 4), (Overlap::QueueOne, vec![110, 150], 3)];
    for (overlap, after, overlapped) in cases {
        let mut story = Story::new(Rules { overlap, ..rules() });
        let key = story.insert(7, every(10), 100);
        story.now = 100;
        let begin = story.begin().unwrap();
        for now in [110, 120, 130, 140] {
            story.now = now;
            assert!(story.begin().is_none(), "{overlap:?} at {now}");
        }
        story.now = 145;
        assert!(story.end(&begin).is_none());
        let mut made = story.run_all();
        story.now = 150;
        made.extend(story.run_all());
        assert_eq!(made.into_iter().map(|(_, due)| due).collect::<Vec<_>>(), after, "{overlap:?}");
        assert_eq!(story.troubles(key), (0, overlapped, 0), "{overlap:?}");
    }
}

#[test]
fn d24_in_parallel_each_time_has_a_run_of_its_own_number() {
    let mut story = Story::new(Rules { overlap: Overlap::Parallel, ..rules() });
    let key = story.insert(7, every(10).times(3), 100);
    let mut runs = Vec::new();
    for now in [100, 110, 120, 130, 140] {
        story.now = now;
        runs.extend(story.begin());
    }
    assert_eq!(
        runs.iter().map(|run| (run.number, run.due.time)).collect::<Vec<_>>(),
        [(1, at(100)), (2, at(110)), (3, at(120))]
    );
    assert_eq!(story.job(key).active, 3);
    // The job is there until the last of them has ended, whichever that is.
    assert!(story.end(&runs[2]).is_none());
    assert!(story.end(&runs[0]).is_none());
    assert!(story.end(&runs[1]).is_some());
    assert_eq!(story.book.running, 0);
}

#[test]
fn d17_with_no_line_at_all_a_thread_that_is_free_makes_a_run() {
    for overflow in [Overflow::Wait, Overflow::Skip, Overflow::RunLate] {
        let mut story = Story::new(Rules { queue: 0, overflow, ..rules() });
        story.insert(7, every(10), 10);
        story.now = 10;
        assert!(story.begin().is_some(), "{overflow:?}");
    }
}

/// So many threads are busy that one comes by only now and then.
#[test]
fn d17_the_line_is_as_long_as_the_rules_say_and_the_books_balance() {
    for (overflow, in_line, overflowed, late) in
        [(Overflow::Wait, 3, 0, 0), (Overflow::Skip, 3, 16, 0), (Overflow::RunLate, 19, 0, 16)]
    {
        let mut story = Story::new(Rules { queue: 3, overflow, ..rules() });
        for key in 0..20 {
            story.insert(key, every(1000), 10);
        }
        story.now = 10;
        let first = story.begin().unwrap();
        assert_eq!(*first.work.key(), 0);
        assert_eq!(story.book.waiting(), in_line, "{overflow:?}");
        let _gone = story.end(&first);
        let made = 1 + story.run_all().len() as u64;
        let stats = story.book.stats;
        assert_eq!((stats.overflowed, stats.late, made), (overflowed, late, 20 - overflowed), "{overflow:?}");
        assert_eq!(stats.runs, made);
    }
}

#[test]
fn d17_a_run_that_finds_no_room_uses_up_none_of_the_times() {
    let mut story = Story::new(Rules { queue: 0, overflow: Overflow::Skip, ..rules() });
    story.insert(0, every(1000), 10);
    let key = story.insert(1, every(10).times(2), 10);
    story.now = 10;
    let other = story.begin().unwrap();
    assert_eq!((*other.work.key(), story.job(key).times, story.troubles(key)), (0, 2, (0, 0, 1)));
    story.now = 30;
    assert_eq!(story.run_all(), [(1, 20)]);
    assert_eq!(story.troubles(key), (1, 0, 1));
}

#[test]
fn d17_a_burst_that_finds_no_room_is_counted_whole() {
    let mut story = Story::new(Rules { queue: 0, overflow: Overflow::Skip, missed: Burst, ..rules() });
    story.insert(0, every(1000), 10);
    let key = story.insert(1, every(10), 10);
    story.now = 55;
    let other = story.begin().unwrap();
    assert_eq!(*other.work.key(), 0);
    // Of 10, 20, 30, 40 and 50 none is made, and the next is due at 60.
    assert_eq!((story.troubles(key), story.job(key).due), ((0, 0, 5), at(60)));
}

#[test]
fn g4_a_run_in_line_whose_job_is_removed_is_not_made() {
    let mut story = Story::new(rules());
    let keys: Vec<_> = (0..3).map(|key| story.insert(key, every(10), 10)).collect();
    story.now = 10;
    let first = story.begin().unwrap();
    assert!(story.book.remove(keys[1]).is_some());
    assert!(story.book.remove(keys[1]).is_none());
    assert_eq!(*story.begin().unwrap().work.key(), 2);
    assert!(story.begin().is_none());
    // The first is removed while it runs: its end finds nothing to do.
    assert!(story.book.remove(keys[0]).is_some());
    assert!(story.end(&first).is_none());
    assert_eq!((story.book.running, story.book.jobs.len()), (1, 1));
}

#[test]
fn g3_a_job_whose_last_run_stands_in_line_has_no_more_that_could_overlap() {
    let mut story = Story::new(Rules { overlap: Overlap::QueueOne, ..rules() });
    let key = story.insert(1, every(10).times(2), 10);
    story.now = 10;
    let first = story.begin().unwrap();
    story.now = 20;
    assert!(story.begin().is_none());
    let _not_over = story.end(&first);
    story.now = 30;
    assert_eq!(story.begin().unwrap().due.time, at(20));
    assert_eq!(story.troubles(key), (0, 0, 0));
}

#[test]
fn g4_a_paused_job_gives_up_what_waits_behind_its_run() {
    let mut story = Story::new(Rules { overlap: Overlap::QueueOne, ..rules() });
    let key = story.insert(1, every(10).times(3), 10);
    story.now = 10;
    let run = story.begin().unwrap();
    story.now = 20;
    assert!(story.begin().is_none());
    assert_eq!(story.job(key).backlog.count, 1);
    assert!(story.book.pause(key));
    let _gone = story.end(&run);
    story.now = 95;
    assert!(story.begin().is_none());
    assert!(story.book.resume(key, story.now()));
    story.now = 100;
    // One run, and not that of 20 after it.
    assert_eq!(story.run_all(), [(1, 100)]);
    story.now = 110;
    assert_eq!(story.run_all(), [(1, 110)]);
    assert!(story.book.jobs.get(key).is_none());
}

#[test]
fn g4_a_run_in_line_when_its_job_is_paused_is_not_lost_from_its_times() {
    let mut story = Story::new(rules());
    story.insert(0, every(1000), 10);
    let key = story.insert(1, every(10).times(1), 10);
    story.now = 10;
    let _other = story.begin().unwrap();
    assert_eq!(story.job(key).times, 0);
    assert!(story.book.pause(key));
    assert!(story.begin().is_none());
    assert_eq!((story.job(key).times, story.job(key).active), (1, 0));
    assert!(story.book.resume(key, story.now()));
    story.now = 20;
    assert_eq!(story.run_all(), [(1, 20)]);
    assert_eq!(story.book.jobs.len(), 1);
}

#[test]
fn g4_a_job_that_is_resumed_before_anybody_looked_has_lost_nothing() {
    let mut story = Story::new(rules());
    story.insert(0, every(1000), 10);
    let key = story.insert(1, every(10).times(1), 10);
    story.now = 10;
    let _other = story.begin().unwrap();
    assert!(story.book.pause(key));
    assert!(story.book.resume(key, story.now()));
    assert_eq!(story.run_all(), [(1, 10)]);
}

#[test]
fn g5_times_that_go_by_while_it_is_stopped_are_missed() {
    let mut story = Story::new(Rules { missed: Burst, ..rules() });
    let key = story.insert(7, every(10), 10);
    story.book.stop();
    story.now = 55;
    assert!(story.begin().is_none());
    story.book.start(story.now());
    assert!(story.begin().is_none());
    assert_eq!(story.troubles(key), (5, 0, 0));
    story.now = 60;
    assert_eq!(story.run_all(), [(7, 60)]);
}

#[test]
fn g5_a_time_that_is_just_now_when_it_is_started_is_not_missed() {
    let mut story = Story::new(rules());
    story.insert(7, every(10), 10);
    story.book.stop();
    story.now = 50;
    story.book.start(story.now());
    assert_eq!(story.run_all(), [(7, 50)]);
    assert_eq!(story.book.stats.missed, 4);
}

#[test]
fn g5_a_past_first_time_that_was_asked_for_after_the_start_is_not_passed_over() {
    for (missed, overlap, expected) in [
        (Burst, Overlap::Skip, vec![95, 105, 115]),
        (Burst, Overlap::Parallel, vec![95, 105, 115]),
        (Skip, Overlap::Skip, vec![95]),
        (Delay, Overlap::Skip, vec![95]),
    ] {
        let mut story = Story::new(Rules { missed, overlap, ..rules() });
        story.book.stop();
        story.now = 110;
        story.book.start(story.now());
        story.now = 120;
        story.insert(7, every(10), 95);
        let made: Vec<_> = story.run_all().into_iter().map(|(_, due)| due).collect();
        assert_eq!(made, expected, "{missed:?} {overlap:?}");
        // The same for one that is given such a plan later.
        let key = story.insert(8, every(1000), 5000);
        let _old = story.book.change_plan(key, every(10), at(95));
        let made: Vec<_> = story.run_all().into_iter().filter(|(key, _)| *key == 8).map(|(_, due)| due).collect();
        assert_eq!(made, expected, "{missed:?} {overlap:?}");
    }
}

#[test]
fn g5_runs_in_line_wait_while_it_is_stopped() {
    let mut story = Story::new(rules());
    (0..3).for_each(|key| _ = story.insert(key, every(10), 10));
    story.now = 10;
    let first = story.begin().unwrap();
    story.book.stop();
    let _gone = story.end(&first);
    assert!(story.begin().is_none());
    assert_eq!(story.book.waiting(), 2);
    story.book.start(story.now());
    assert_eq!(story.run_all(), [(1, 10), (2, 10)]);
}

#[test]
fn g4_drain_makes_what_stands_in_line_and_what_waits_behind_a_run() {
    let mut story = Story::new(Rules { overlap: Overlap::QueueOne, ..rules() });
    story.insert(0, every(10), 10);
    story.insert(1, every(1000), 20);
    story.now = 10;
    let first = story.begin().unwrap();
    story.now = 20;
    let second = story.begin().unwrap();
    let _gone = story.book.shut_down(Shutdown::Drain, story.now());
    story.now = 1000;
    assert!(story.book.try_end().is_none());
    let _gone = story.end(&second);
    let _gone = story.end(&first);
    assert_eq!(story.run_all(), [(0, 20)]);
    assert!(matches!(story.next(), Next::Over));
    assert!(story.book.try_end().is_some());
    assert_eq!(story.book.phase, Phase::Over);
}

#[test]
fn g4_drain_makes_what_was_due_and_had_no_room_in_the_line() {
    for overflow in [Overflow::Wait, Overflow::Skip, Overflow::RunLate] {
        let mut story = Story::new(Rules { queue: 2, overflow, ..rules() });
        (0..200).for_each(|key| _ = story.insert(key, every(10), 10));
        story.insert(200, every(10), 11);
        story.now = 10;
        let first = story.begin().unwrap();
        let _gone = story.book.shut_down(Shutdown::Drain, story.now());
        story.now = 1000;
        let _gone = story.end(&first);
        let made = 1 + story.run_all().len() as u64;
        assert_eq!(made + story.book.stats.overflowed, 200, "{overflow:?}");
        assert!(overflow == Overflow::Skip || made == 200, "{overflow:?}");
        assert!(story.book.try_end().is_some(), "{overflow:?}");
    }
}

#[test]
fn g4_drain_of_a_stopped_one_makes_what_stands_in_line_and_nothing_that_went_by() {
    let mut story = Story::new(rules());
    (0..3).for_each(|key| _ = story.insert(key, every(10), 10));
    story.now = 10;
    let first = story.begin().unwrap();
    story.book.stop();
    story.now = 100;
    let _gone = story.book.shut_down(Shutdown::Drain, story.now());
    let _gone = story.end(&first);
    assert_eq!(story.run_all(), [(1, 10), (2, 10)]);
    assert!(story.book.try_end().is_some());
}

#[test]
fn g4_an_idle_one_is_over_at_once() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let mut story = Story::new(rules());
        story.insert(7, every(10), 10);
        let gone = story.book.shut_down(how, story.now());
        assert_eq!(gone.is_some(), how == Shutdown::Abort);
        assert!(story.book.try_end().is_some());
        assert!(story.book.try_end().is_none());
        assert!(story.book.shut_down(Shutdown::Abort, story.now()).is_none());
    }
}

#[test]
fn g4_abort_counts_the_runs_that_it_takes_from_the_line_and_no_others() {
    let mut story = Story::new(rules());
    let keys: Vec<_> = (0..5).map(|key| story.insert(key, every(10), 10)).collect();
    story.now = 10;
    let _first = story.begin().unwrap();
    let _removed = story.book.remove(keys[3]);
    assert!(story.book.shut_down(Shutdown::Abort, story.now()).is_some());
    // The first is being made, the fourth was removed before.
    assert_eq!((story.book.stats.aborted, story.book.waiting()), (3, 0));
}

#[test]
fn g4_a_new_plan_begins_afresh_and_keeps_the_count_of_runs() {
    let mut story = Story::new(Rules { missed: Burst, ..rules() });
    let key = story.insert(7, every(10).times(3), 10);
    story.now = 30;
    let first = story.begin().unwrap();
    assert_eq!(story.job(key).backlog.count, 2);
    assert!(story.book.change_plan(key, every(100).times(2), at(150)).is_some());
    assert!(story.end(&first).is_none());
    assert!(story.begin().is_none());
    story.now = 250;
    let second = story.begin().unwrap();
    assert_eq!((second.number, second.due.time), (2, at(150)));
    assert!(story.end(&second).is_none());
    let third = story.begin().unwrap();
    assert_eq!((third.number, third.due.time), (3, at(250)));
    assert!(story.end(&third).is_some());
    assert!(story.book.change_plan(key, every(1), at(1)).is_none());
}

#[test]
fn p9_nobody_looks_while_nothing_is_due() {
    let mut story = Story::new(rules());
    assert_eq!(story.book.plan().map(|rings| rings.engine), Some(Time::NEVER));
    story.insert(7, every(100), 100);
    let rings = story.book.plan().expect("the bell has to ring");
    assert!(rings.engine <= at(100));
    // What is later needs no other bell.
    story.insert(8, every(200), 200);
    assert_eq!(story.book.plan(), None);
    story.insert(9, every(5), 5);
    assert_eq!(story.book.plan().map(|rings| rings.engine), Some(at(5)));
}

/// Random jobs, looked at by random threads at random times: of each job that follows a grid every time is accounted for.
#[test]
fn p7_the_books_balance_after_any_story() {
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Lcg(seed);
        let overflow = [Overflow::Wait, Overflow::Skip, Overflow::RunLate][random.below(3) as usize];
        let mut story = Story::new(Rules { queue: random.below(4) as usize, overflow, ..rules() });
        let mut jobs = Vec::new();
        for key in 0..1 + random.below(12) {
            let overlap = [Overlap::Skip, Overlap::QueueOne, Overlap::Parallel][random.below(3) as usize];
            let missed = [Skip, Burst][random.below(2) as usize];
            let (interval, due) = (1 + random.below(20), random.below(40));
            let plan = every(interval).overlap(overlap).missed(missed);
            jobs.push((story.insert(key, plan, due), interval, due));
        }
        let mut running: Vec<Begin<u64>> = Vec::new();
        for _ in 0..200 {
            story.now += random.below(8);
            story.book.idle = random.below(3) as usize;
            if running.len() < 4 {
                running.extend(story.begin());
            }
            if !running.is_empty() && random.below(2) == 0 {
                let ended = running.swap_remove(random.below(running.len() as u64) as usize);
                assert!(story.end(&ended).is_none(), "a job that runs for ever does not end");
            }
        }
        // All threads come until nothing is left to do.
        loop {
            running
                .drain(..)
                .for_each(|ended| assert!(story.book.end(End { job: ended.job, failure: None }).is_none()));
            match story.begin() {
                Some(begin) => running.push(begin),
                None => break,
            }
        }
        let mut runs = 0;
        for (key, interval, due) in jobs {
            let (missed, overlapped, overflowed) = story.troubles(key);
            let job = story.job(key);
            let times = if story.now < due { 0 } else { (story.now - due) / interval + 1 };
            assert_eq!(
                job.runs + missed + overlapped + overflowed,
                times,
                "seed {seed}, {overflow:?}, {:?}",
                job.overlap
            );
            assert_eq!((job.active, job.backlog.count, job.times), (0, 0, FOR_EVER), "seed {seed}");
            assert_eq!((job.due.as_nanos() - due) % interval, 0, "seed {seed}: off its grid");
            runs += job.runs;
        }
        assert_eq!((story.book.stats.runs, story.book.running, story.book.waiting()), (runs, 0, 0), "seed {seed}");
    }
}

/// Random numbers.
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
        // Making it sends an event, and a subscriber may schedule a cron job in there.
        let on_engine = || (engine.core().clone(), None);
        let inner = shared.wall(|| {
            shared.wall(on_engine).unwrap();
            on_engine()
        });
        sender.send(inner.is_some()).unwrap();
    });
    assert!(receiver.recv_timeout(Duration::from_secs(60)).expect("no deadlock, no panic"));
}
