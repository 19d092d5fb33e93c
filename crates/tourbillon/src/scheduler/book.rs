//! All that a scheduler knows, behind its lock. It reads no clock, starts no thread and calls nobody.
//!
//! ```text
//!     table: key -> job          jobs: an agenda, by the engine's time      wall: those that follow the wall clock
//!                                          |   due                           |
//!                                          v                                 v
//!                            runs: in line, in the order in which they were due       tasks: runs that were woken
//!                                          |                                            |
//!                                          v     a thread takes one at a time           v
//! ```
//!
//! Keys are compared under the lock; nothing else of the user's happens there. What has to be dropped is given to the caller.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use tourbillon_queue::{Settled, Time};

use super::error::ScheduleErrorKind;
use super::flight::Flag;
use super::job::{Backlog, Job};
use super::plan::{Plan, Timing};
use super::table::Table;
use super::work::Work;
use super::{Overflow, Rules, SchedulerStats, Shutdown};
use crate::agenda::{Agenda, Key};

pub(super) struct Book<K> {
    pub(super) rules: Rules,
    pub(super) jobs: Agenda<Job<K>>,
    pub(super) table: Table,
    wall: Wall,
    runs: VecDeque<Ready>,
    tasks: VecDeque<Runnable>,
    /// Whether it is the tasks' turn, if there are runs too.
    tasks_first: bool,
    pub(super) phase: Phase,
    /// Times before this are passed over: the scheduler had been stopped.
    since: Now,
    /// Runs that have been begun and have not ended.
    pub(super) running: usize,
    /// Those of them that are futures.
    pub(super) flights: Agenda<Arc<Flag>>,
    /// Threads that wait for work.
    pub(super) idle: usize,
    /// Counts what a thread that is about to wait must not miss.
    pub(super) alerts: u64,
    /// Until when somebody is sure to look; `None` if nobody has seen to that.
    pub(super) bell: Option<Rings>,
    /// The earliest time for which a job was put on the wheel since somebody last saw to the bell.
    wish: Rings,
    /// Who waits for the end.
    pub(super) watchers: Vec<Waker>,
    pub(super) stats: SchedulerStats,
}

/// The jobs that follow the wall clock. They are parked among the others.
struct Wall {
    dues: Agenda<Key>,
    of_job: HashMap<Key, Key>,
}

/// A run in line.
struct Ready {
    job: Key,
    due: Due,
}

/// When a run was due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) time: Time,
    pub(super) is_wall: bool,
}

/// What time it is, on both clocks. `ZERO` on the wall if no job asks for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Now {
    pub(super) engine: Time,
    pub(super) wall: Time,
}

/// When somebody will look at the book by themselves, at the latest; on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rings {
    pub(super) engine: Time,
    pub(super) wall: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Running,
    Stopped,
    Ending(Shutdown),
    /// Nothing will ever run again.
    Over,
}

/// What a thread does next.
pub(super) enum Next<K> {
    Run(Begin<K>),
    Task(Runnable),
    /// Lets go of the lock and comes again.
    Again,
    /// There is nothing to do.
    Wait,
    /// There will never be anything to do.
    Over,
}

/// A run that is begun.
pub(super) struct Begin<K> {
    pub(super) job: Key,
    pub(super) work: Arc<dyn Work<K>>,
    pub(super) number: u64,
    pub(super) due: Due,
}

/// How a run ended.
pub(super) struct End {
    pub(super) job: Key,
    /// What went wrong, in words.
    pub(super) failure: Option<String>,
}

impl<K> Book<K> {
    /// So many jobs are looked at before the lock is let go of.
    const BATCH: usize = 64;
    /// So many are moved in the wheel before that.
    const STEPS: usize = 1024;

    pub(super) fn new(rules: Rules) -> Book<K> {
        Book {
            rules,
            jobs: Agenda::new(),
            table: Table::new(),
            wall: Wall { dues: Agenda::new(), of_job: HashMap::new() },
            runs: VecDeque::new(),
            tasks: VecDeque::new(),
            tasks_first: false,
            phase: Phase::Running,
            since: Now { engine: Time::ZERO, wall: Time::ZERO },
            running: 0,
            flights: Agenda::new(),
            idle: 0,
            alerts: 0,
            bell: None,
            wish: Rings::NEVER,
            watchers: Vec::new(),
            stats: SchedulerStats::default(),
        }
    }

    /// Whether any job follows the wall clock.
    pub(super) fn has_wall(&self) -> bool {
        !self.wall.of_job.is_empty()
    }

    pub(super) fn find<Q>(&self, hash: u32, key: &Q) -> Option<Key>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.table.find(hash, |index| self.has_key(index, key)).and_then(|index| self.jobs.key_at(index))
    }

    fn has_key<Q>(&self, index: u32, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let job = self.jobs.key_at(index).and_then(|job| self.jobs.get(job));
        job.is_some_and(|job| job.work.key().borrow() == key)
    }

    /// Whether a job can be put in under this key.
    pub(super) fn check_new(&self, hash: u32, key: &K) -> Result<(), ScheduleErrorKind>
    where
        K: Eq,
    {
        let capacity = self.rules.capacity;
        match () {
            () if !self.is_open() => Err(ScheduleErrorKind::ShutDown),
            () if self.find(hash, key).is_some() => Err(ScheduleErrorKind::Duplicate),
            () if self.jobs.len() >= capacity || self.jobs.is_full() => Err(ScheduleErrorKind::Full { capacity }),
            () => Ok(()),
        }
    }

    /// Puts in a job that was [found](Book::check_new) to have a place here.
    pub(super) fn insert(&mut self, job: Job<K>) -> Key {
        let (hash, wants, is_wall) = (job.hash, job.wants(), job.timing.is_wall());
        let key = self.jobs.insert(if is_wall { Time::NEVER } else { wants }, job);
        if is_wall {
            self.wall.set(key, wants);
        }
        self.wish = self.wish.or(Rings::at(wants, is_wall));
        self.table.insert(hash, key.index());
        key
    }

    /// Takes a job out. Its run in line, if there is one, is not made.
    pub(super) fn remove(&mut self, key: Key) -> Option<Job<K>> {
        let job = self.jobs.remove(key)?;
        self.table.remove(job.hash, key.index());
        if job.timing.is_wall() {
            self.wall.set(key, Time::NEVER);
        }
        Some(job)
    }

    /// Puts a job where it wants to be.
    pub(super) fn place(&mut self, key: Key) {
        let Some(job) = self.jobs.get(key) else { return };
        let (wants, is_wall) = (job.wants(), job.timing.is_wall());
        if is_wall {
            self.wall.set(key, wants);
        } else {
            self.jobs.set_deadline(key, wants);
        }
        self.wish = self.wish.or(Rings::at(wants, is_wall));
    }

    /// Gives a job another plan. Gives back its old timing, to be dropped.
    #[must_use]
    pub(super) fn change_plan(&mut self, key: Key, plan: Plan, due: Time) -> Option<Timing> {
        let rules = self.rules;
        // From one clock to the other: it is on neither for a moment.
        self.unplace(key);
        let job = self.jobs.get_mut(key)?;
        job.overlap = plan.overlap.unwrap_or(rules.overlap);
        job.missed = plan.missed.unwrap_or(rules.missed);
        (job.due, job.times, job.backlog) = (due, plan.times, Backlog::default());
        let old = std::mem::replace(&mut job.timing, plan.timing);
        self.place(key);
        Some(old)
    }

    /// Gives whether the job is there.
    pub(super) fn pause(&mut self, key: Key) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return false };
        job.is_paused = true;
        self.place(key);
        true
    }

    /// Gives whether the job is there.
    pub(super) fn resume(&mut self, key: Key, now: Now) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return false };
        if std::mem::replace(&mut job.is_paused, false) {
            let _rested = job.come_back(if job.timing.is_wall() { now.wall } else { now.engine });
            self.place(key);
        }
        true
    }

    fn unplace(&mut self, key: Key) {
        self.wall.set(key, Time::NEVER);
        self.jobs.set_deadline(key, Time::NEVER);
    }

    /// When the bell has to ring, if it has to be set for that.
    #[must_use]
    pub(super) fn plan(&mut self) -> Option<Rings> {
        let wish = std::mem::replace(&mut self.wish, Rings::NEVER);
        match self.bell {
            Some(bell) if wish.engine >= bell.engine && wish.wall >= bell.wall => None,
            Some(bell) => Some(*self.bell.insert(bell.or(wish))),
            None => Some(*self.bell.insert(self.next_look())),
        }
    }

    /// When somebody has to look by themselves.
    fn next_look(&self) -> Rings {
        match self.phase {
            Phase::Running => Rings { engine: self.jobs.next_wakeup(), wall: self.wall.dues.next_wakeup() },
            _ => Rings::NEVER,
        }
    }

    /// What a thread does next.
    pub(super) fn next(&mut self, now: Now) -> Next<K> {
        let admitted = if self.phase == Phase::Running { self.admit(now) } else { Admitted::All };
        self.tasks_first = !self.tasks_first;
        if self.tasks_first
            && let Some(task) = self.tasks.pop_front()
        {
            return Next::Task(task);
        }
        if let Some(begin) = self.begin() {
            return Next::Run(begin);
        }
        if let Some(task) = self.tasks.pop_front() {
            return Next::Task(task);
        }
        match (self.phase, admitted) {
            (Phase::Ending(_), _) if self.running == 0 => Next::Over,
            (Phase::Over, _) => Next::Over,
            (_, Admitted::Some) => Next::Again,
            _ => Next::Wait,
        }
    }

    /// Whether another thread should come and help.
    pub(super) fn wants_help(&self) -> bool {
        self.idle > 0 && (!self.tasks.is_empty() || (!self.runs.is_empty() && self.phase != Phase::Stopped))
    }

    /// Puts what is due in line, as far as there is room, and as far as is done in one go.
    fn admit(&mut self, now: Now) -> Admitted {
        let mut left = Self::BATCH;
        while left > 0 {
            if self.is_full() && self.rules.overflow == Overflow::Wait {
                return Admitted::All;
            }
            let Some((key, due)) = self.pop(now) else { break };
            self.fall_due(key, due, now);
            left -= 1;
        }
        let more = left == 0
            || self.jobs.settle(now.engine, Self::STEPS) == Settled::More
            || self.wall.dues.settle(now.wall, Self::STEPS) == Settled::More;
        if more { Admitted::Some } else { Admitted::All }
    }

    /// A job that is due.
    fn pop(&mut self, now: Now) -> Option<(Key, Due)> {
        if let Some((key, time)) = self.jobs.pop_ready(now.engine) {
            return Some((key, Due { time, is_wall: false }));
        }
        if let Settled::Done = self.jobs.settle(now.engine, Self::STEPS)
            && let Some((key, time)) = self.jobs.pop_ready(now.engine)
        {
            return Some((key, Due { time, is_wall: false }));
        }
        if self.wall.of_job.is_empty() {
            return None;
        }
        self.wall.pop(now.wall).map(|(key, time)| (key, Due { time, is_wall: true }))
    }

    /// Whether no more runs can stand in line.
    fn is_full(&self) -> bool {
        self.runs.len() >= self.rules.queue.saturating_add(self.idle)
    }

    fn fall_due(&mut self, key: Key, due: Due, now: Now) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let (now, since) = if due.is_wall { (now.wall, self.since.wall) } else { (now.engine, self.since.engine) };
        job.due = due.time;
        let away = job.come_back(since);
        if away > 0 {
            job.troubles().missed += away;
            self.stats.missed += away;
            return self.place(key);
        }
        let outcome = job.fall_due(due.time, now);
        if outcome.missed + outcome.overlapped > 0 {
            let troubles = job.troubles();
            troubles.missed += outcome.missed;
            troubles.overlapped += outcome.overlapped;
            self.stats.missed += outcome.missed;
            self.stats.overlapped += outcome.overlapped;
        }
        if outcome.run {
            self.line_up(key, due);
        }
        self.place(key);
    }

    /// Puts a run in line, or does what the rules say if there is no room.
    fn line_up(&mut self, key: Key, due: Due) {
        let is_full = self.is_full();
        let Some(job) = self.jobs.get_mut(key) else { return };
        if is_full && self.rules.overflow == Overflow::Skip {
            job.troubles().overflowed += 1;
            self.stats.overflowed += 1;
            return;
        }
        if is_full {
            self.stats.late += 1;
        }
        job.line_up();
        self.runs.push_back(Ready { job: key, due });
    }

    /// Begins the first run in line whose job is still there and not paused.
    fn begin(&mut self) -> Option<Begin<K>> {
        if matches!(self.phase, Phase::Stopped | Phase::Over) {
            return None;
        }
        while let Some(Ready { job: key, due }) = self.runs.pop_front() {
            let Some(job) = self.jobs.get_mut(key) else { continue };
            if job.is_paused {
                job.step_back();
                continue;
            }
            job.runs += 1;
            self.stats.runs += 1;
            self.running += 1;
            return Some(Begin { job: key, work: Arc::clone(&job.work), number: job.runs, due });
        }
        None
    }

    /// A run has ended. Gives what is to be dropped: its job, if that was the last of its times.
    #[must_use]
    pub(super) fn end(&mut self, end: End) -> Option<Job<K>> {
        self.running -= 1;
        self.stats.failed += u64::from(end.failure.is_some());
        let job = self.jobs.get_mut(end.job)?;
        if end.failure.is_some() {
            let troubles = job.troubles();
            troubles.failed += 1;
            troubles.last_failure = end.failure;
        }
        let is_wall = job.timing.is_wall();
        let next = job.end_run();
        if let (Some(time), Phase::Running | Phase::Stopped) = (next, self.phase) {
            self.line_up(end.job, Due { time, is_wall });
        }
        let is_over = self.jobs.get(end.job).is_some_and(Job::is_over);
        if is_over { self.remove(end.job) } else { None }
    }

    /// A run that was woken wants to be polled.
    pub(super) fn push_task(&mut self, task: Runnable) {
        self.tasks.push_back(task);
        self.alerts += 1;
    }

    pub(super) fn start(&mut self, now: Now) {
        if self.phase == Phase::Stopped {
            self.phase = Phase::Running;
            self.since = now;
            self.alerts += 1;
            self.bell = None;
        }
    }

    pub(super) fn stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopped;
        }
    }

    /// Begins the end. Gives what is to be dropped.
    #[must_use]
    pub(super) fn shut_down(&mut self, how: Shutdown) -> Option<Agenda<Job<K>>> {
        match (self.phase, how) {
            (Phase::Over, _) | (Phase::Ending(Shutdown::Abort), _) | (Phase::Ending(_), Shutdown::Drain) => {
                return None;
            }
            _ => self.phase = Phase::Ending(how),
        }
        self.alerts += 1;
        if how == Shutdown::Drain {
            return None;
        }
        self.stats.aborted += self.runs.len() as u64;
        Some(self.clear())
    }

    /// The end, if nothing runs and nothing will. Gives what is to be dropped.
    #[must_use]
    pub(super) fn try_end(&mut self) -> Option<Agenda<Job<K>>> {
        if !matches!(self.phase, Phase::Ending(_)) || self.running > 0 || !self.runs.is_empty() {
            return None;
        }
        self.phase = Phase::Over;
        Some(self.clear())
    }

    fn clear(&mut self) -> Agenda<Job<K>> {
        self.table = Table::new();
        self.wall = Wall { dues: Agenda::new(), of_job: HashMap::new() };
        self.runs = VecDeque::new();
        std::mem::replace(&mut self.jobs, Agenda::new())
    }

    /// How many runs stand in line.
    pub(super) fn waiting(&self) -> usize {
        self.runs.len()
    }

    /// What all jobs do.
    pub(super) fn works(&self) -> impl Iterator<Item = Arc<dyn Work<K>>> {
        self.jobs.keys().filter_map(|key| self.jobs.get(key)).map(|job| Arc::clone(&job.work))
    }

    /// Whether it has not been shut down.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopped)
    }
}

/// Whether all that is due was put in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    /// All that has room.
    All,
    /// There may be more.
    Some,
}

impl Wall {
    /// With `NEVER` the job is not waited for.
    fn set(&mut self, job: Key, due: Time) {
        match self.of_job.get(&job) {
            Some(key) if due.is_never() => {
                self.dues.remove(*key);
                self.of_job.remove(&job);
            }
            Some(key) => self.dues.set_deadline(*key, due),
            None if due.is_never() => {}
            None => _ = self.of_job.insert(job, self.dues.insert(due, job)),
        }
    }

    fn pop(&mut self, now: Time) -> Option<(Key, Time)> {
        if self.dues.settle(now, Book::<()>::STEPS) == Settled::More {
            return None;
        }
        let (key, time) = self.dues.pop_ready(now)?;
        self.dues.get(key).map(|job| (*job, time))
    }
}

impl Rings {
    const NEVER: Rings = Rings { engine: Time::NEVER, wall: Time::NEVER };

    fn at(time: Time, is_wall: bool) -> Rings {
        if is_wall { Rings { wall: time, ..Rings::NEVER } } else { Rings { engine: time, ..Rings::NEVER } }
    }

    /// The earlier of both, on each clock.
    fn or(self, other: Rings) -> Rings {
        Rings { engine: self.engine.min(other.engine), wall: self.wall.min(other.wall) }
    }
}
