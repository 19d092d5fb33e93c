//! The surface `Scheduler`: keyed jobs that run once or several times, are removed, or panic.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Plan, Run, Scheduler, Shutdown};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::promise::Promise;
use super::tally::SurfaceTally;
use crate::clock::{monotonic, nanos};
use crate::text::{count, many};

/// Schedules jobs that run once, and counts how they end.
struct JobUser<'a> {
    scheduler: &'a Scheduler<u64>,
    log: Arc<RunLog>,
    random: Random,
    /// Recent jobs, oldest first.
    jobs: VecDeque<TrackedJob>,
    next_key: u64,
    tally: SurfaceTally,
}

struct TrackedJob {
    key: u64,
    /// Shared with the job's closure: the job is over when no other reference is left.
    runs: Arc<AtomicU64>,
    was_removed: bool,
}

/// Counts that all runs share.
#[derive(Default)]
struct RunLog {
    checked: AtomicU64,
    early: AtomicU64,
    panics: AtomicU64,
    /// Runs of repeating jobs.
    repeats: AtomicU64,
}

const LONGEST: Duration = Duration::from_millis(100);
/// Number of repeating jobs, and of the runs of each.
const REPEATING: u64 = 16;
const TIMES: u64 = 10;
/// Number of the most recent jobs, of which some are removed.
const RECENT: usize = 64;

/// Runs as long as the load does, and stops the jobs that are left.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let mut findings = Findings::default();
    let Ok(scheduler) = Scheduler::builder().engine(engine).threads(2).build() else {
        findings.skipped.push("jobs: the system refused the scheduler's threads".into());
        return findings;
    };
    let log = Arc::new(RunLog::default());
    repeat(&scheduler, &log);
    let mut user = JobUser::new(check, &scheduler, &log);
    while check.is_under_load() {
        (0..16).for_each(|_| user.schedule());
        user.count_ended(RECENT);
        thread::sleep(Duration::from_millis(2));
    }
    check_repeats(check, &log, &mut findings);
    findings.tallies.push(user.finish(check));
    let panics = log.panics.load(SeqCst);
    findings.counted(Promise::P6, format!("{} contained", many(panics, "panicking job")));
    let reported = scheduler.stats().failed;
    findings.expect(reported == panics, Promise::P6, || {
        format!("jobs: {} panicked, {} were reported", count(panics), count(reported))
    });
    findings
}

/// Schedules repeating jobs; the first run of each panics.
fn repeat(scheduler: &Scheduler<u64>, log: &Arc<RunLog>) {
    for key in 0..REPEATING {
        let interval = Duration::from_micros(500 + 100 * key);
        let (log, before) = (Arc::clone(log), monotonic());
        let job = move |run: &Run<u64>| {
            log.began(before + run.number() * nanos(interval));
            log.repeats.fetch_add(1, SeqCst);
            if run.number() == 1 {
                log.panics.fetch_add(1, SeqCst);
                // Unlike `panic!`, this prints nothing.
                resume_unwind(Box::new("planned"));
            }
        };
        // A refused job is noticed below, where its runs are missing.
        let _ = scheduler.schedule(key, Plan::every(interval).times(TIMES), job);
    }
}

/// Checks that each job made all its runs despite its panic.
fn check_repeats(check: &CheckRun, log: &RunLog, findings: &mut Findings) {
    let all = REPEATING * TIMES;
    check.reference.wait_limit().wait_for_all(all, || log.repeats.load(SeqCst));
    let made = log.repeats.load(SeqCst);
    findings.expect(made == all, Promise::P6, || {
        format!("jobs: {} of {} runs were made by jobs that had panicked once", count(made), count(all))
    });
}

impl<'a> JobUser<'a> {
    fn new(check: &CheckRun, scheduler: &'a Scheduler<u64>, log: &Arc<RunLog>) -> JobUser<'a> {
        JobUser {
            scheduler,
            log: Arc::clone(log),
            random: check.random("jobs", 0),
            jobs: VecDeque::new(),
            next_key: REPEATING,
            tally: SurfaceTally::new("jobs"),
        }
    }

    /// Schedules a job, and sometimes removes one.
    fn schedule(&mut self) {
        let duration = self.random.duration(LONGEST);
        let (key, due, runs) = (self.next_key, monotonic() + nanos(duration), Arc::new(AtomicU64::new(0)));
        let begin = {
            let (log, runs) = (Arc::clone(&self.log), Arc::clone(&runs));
            move || {
                log.began(due);
                runs.fetch_add(1, SeqCst);
            }
        };
        self.next_key += 1;
        // Every fourth job is asynchronous.
        let plan = Plan::once(duration);
        let refused = if key % 4 == 0 {
            let job = move |_: Run<u64>| {
                begin();
                std::future::ready(())
            };
            self.scheduler.schedule_async(key, plan, job).err().map(|error| error.kind)
        } else {
            self.scheduler.schedule(key, plan, move |_: &Run<u64>| begin()).err().map(|error| error.kind)
        };
        match refused {
            None => {
                self.tally.armed += 1;
                self.jobs.push_back(TrackedJob { key, runs, was_removed: false });
            }
            Some(why) => self.tally.complain(Promise::P6, format!("jobs: a job was refused: {why}")),
        }
        if self.random.one_in(4) && !self.jobs.is_empty() {
            let place = self.random.below(self.jobs.len() as u64) as usize;
            let job = &mut self.jobs[place];
            job.was_removed |= self.scheduler.remove(&job.key);
        }
    }

    /// Counts the oldest jobs that are over, except for the last `keep`.
    fn count_ended(&mut self, keep: usize) {
        while self.jobs.len() > keep && Arc::strong_count(&self.jobs[0].runs) == 1 {
            let Some(job) = self.jobs.pop_front() else { return };
            match (job.runs.load(SeqCst), job.was_removed) {
                (0, true) => self.tally.cancelled += 1,
                (0, false) => self.tally.stopped += 1,
                (runs, _) => {
                    self.tally.fired += 1;
                    if runs > 1 {
                        self.tally.complain(Promise::P2, format!("jobs: a job that runs once ran {runs} times"));
                    }
                }
            }
        }
    }

    fn finish(mut self, check: &CheckRun) -> SurfaceTally {
        // No run begins any more, and the running ones end.
        self.scheduler.stop();
        check.reference.wait_limit().wait_for(|| self.scheduler.stats().running == 0);
        let left = self.scheduler.len() as u64;
        if !self.scheduler.shutdown(Shutdown::Abort).wait_for(Duration::from_secs(5)) {
            self.tally.complain(Promise::P2, "jobs: the scheduler did not end");
        }
        // The scheduler drops jobs outside its locks, so that may take a moment.
        let in_use = || self.jobs.iter().filter(|job| Arc::strong_count(&job.runs) > 1).count() as u64;
        check.reference.wait_limit().wait_for_all(0, in_use);
        self.count_ended(0);
        let mut tally = self.tally;
        if tally.stopped != left {
            let [stopped, left] = [tally.stopped, left].map(count);
            tally.complain(
                Promise::P2,
                format!("jobs: {left} were left at the end, and {stopped} had neither run nor been removed"),
            );
        }
        tally.checked = self.log.checked.load(SeqCst);
        tally.early = self.log.early.load(SeqCst);
        if tally.early > 0 {
            tally.complain(Promise::P1, format!("jobs: {} began early", many(tally.early, "run")));
        }
        tally.balance();
        tally
    }
}

impl RunLog {
    fn began(&self, due: u64) {
        self.checked.fetch_add(1, SeqCst);
        if monotonic() < due {
            self.early.fetch_add(1, SeqCst);
        }
    }
}
