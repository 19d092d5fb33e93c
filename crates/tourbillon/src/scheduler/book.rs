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
//! What is done to jobs is in this file, and so are the phases of life; how a job becomes a run is in [`runs`].
//!
//! Keys are compared under the lock; nothing else of the user's happens there. What has to be dropped is given to the caller.

mod runs;
mod wall;

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use tourbillon_queue::{Span, Time};

use self::runs::Ready;
pub(super) use self::runs::{Begin, End, Next};
use self::wall::Wall;
use super::error::ScheduleErrorKind;
use super::job::{Backlog, Gone, Job};
use super::plan::{Plan, Timing};
use super::table::Table;
use super::times::{Due, Times};
use super::work::Work;
use super::{Rules, SchedulerStats, Shutdown};
use crate::multi::deadline_map::{DeadlineMap, Key};
use crate::multi::waiter::Answer;

pub(super) struct Book<K> {
    pub(super) rules: Rules,
    pub(super) jobs: DeadlineMap<Job<K>>,
    pub(super) table: Table,
    wall: Box<Wall>,
    runs: VecDeque<Ready>,
    /// Those of them whose job is gone: they take no room.
    gone: usize,
    tasks: VecDeque<Runnable>,
    /// Whether it is the tasks' turn, if there are runs too.
    tasks_first: bool,
    /// Whether it was the wall clock's turn, if jobs were due by both clocks.
    wall_first: bool,
    pub(super) phase: Phase,
    /// Times before this are passed over: the scheduler had been stopped.
    since: Times,
    /// Some job may have been planned since then for a time before that.
    has_past: bool,
    /// What the clocks showed when somebody last looked.
    seen: Times,
    /// While it is drained: what was due before this is still to be put in line.
    until: Option<Times>,
    /// Runs that have been begun and have not ended.
    pub(super) running: usize,
    /// Those of them that are futures, by what tells them to end.
    pub(super) flights: Box<DeadlineMap<Arc<Answer>>>,
    /// Threads that wait for work.
    pub(super) idle: usize,
    /// How many threads there are.
    pub(super) alive: usize,
    /// Its engine was told that a thread has something to do, and not yet that none has.
    pub(super) is_at_work: bool,
    /// Those of them that have been woken, and have not come yet.
    pub(super) called: usize,
    /// Counts what a thread that is about to wait must not miss.
    pub(super) alerts: u64,
    /// The engine has been asked to call the scheduler, and has not yet.
    pub(super) is_called: bool,
    /// Until when somebody is sure to look; `None` if nobody has seen to that.
    pub(super) bell: Option<Times>,
    /// The earliest time for which a job was put on the wheel since somebody last saw to the bell.
    notify_driver: Times,
    /// Who waits for the end, by the numbers of their [`Ending`](super::Ending)s.
    pub(super) watchers: BTreeMap<u64, Waker>,
    /// How many endings have been waited for.
    pub(super) watched: u64,
    pub(super) stats: SchedulerStats,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Running,
    Stopped,
    Ending(Shutdown),
    /// Nothing will ever run again.
    Over,
}

/// A wall clock that is set back by no more than this shows again what has been; by more, and it had been wrong.
const SET_BACK: Span = Span::from_secs(3 * 60 * 60);

impl<K> Book<K> {
    pub(super) fn new(rules: Rules, threads: usize) -> Book<K> {
        Book {
            rules,
            jobs: DeadlineMap::new(),
            table: Table::new(),
            wall: Box::default(),
            runs: VecDeque::new(),
            gone: 0,
            tasks: VecDeque::new(),
            tasks_first: false,
            wall_first: false,
            phase: Phase::Running,
            since: Times::ZERO,
            has_past: false,
            seen: Times::ZERO,
            until: None,
            running: 0,
            flights: Box::default(),
            idle: 0,
            alive: threads,
            is_at_work: false,
            called: 0,
            alerts: 0,
            is_called: false,
            bell: None,
            notify_driver: Times::NEVER,
            watchers: BTreeMap::new(),
            watched: 0,
            stats: SchedulerStats::default(),
        }
    }

    /// Whether any job follows the wall clock.
    pub(super) fn has_wall(&self) -> bool {
        !self.wall.is_empty()
    }

    pub(super) fn find<Q>(&self, hash: u32, key: &Q) -> Option<Key>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let index = self.table.find(hash, |index| has_key(&self.jobs, index, key))?;
        self.jobs.key_at(index)
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
    // Inlined with what makes the job, so that it is made where it stays.
    #[inline(always)]
    pub(super) fn insert(&mut self, mut job: Job<K>) -> Key {
        let (hash, next_wake, is_wall, due) = (job.hash, job.next_wake(), job.timing.is_wall(), job.due);
        job.is_past = self.is_past(due, is_wall);
        self.has_past |= job.is_past;
        let key = self.jobs.insert(if is_wall { Time::NEVER } else { next_wake }, job);
        if is_wall {
            self.wall.set(key, next_wake);
        }
        self.notify_driver = self.notify_driver.or(Times::only(next_wake, is_wall));
        self.table.insert(hash, key.index());
        key
    }

    /// Takes a job out. Its run in line, if there is one, is not made.
    pub(super) fn remove(&mut self, key: Key) -> Option<Gone<K>> {
        let hash = self.jobs.get(key)?.hash;
        self.table.remove(hash, |index| index == key.index());
        self.remove_unlisted(key)
    }

    /// The same for the job under a key of the user's.
    pub(super) fn remove_under<Q>(&mut self, hash: u32, key: &Q) -> Option<Gone<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let Book { table, jobs, .. } = self;
        let index = table.remove(hash, |index| has_key(jobs, index, key))?;
        self.remove_unlisted(self.jobs.key_at(index)?)
    }

    /// Takes out a job that is no longer in the table.
    fn remove_unlisted(&mut self, key: Key) -> Option<Gone<K>> {
        let job = self.jobs.remove(key)?;
        self.gone += job.waiting as usize;
        if job.timing.is_wall() {
            self.wall.remove(key);
        }
        Some(job.into_gone())
    }

    /// Puts a job where it wants to be.
    pub(super) fn place(&mut self, key: Key) {
        let Some(job) = self.jobs.get(key) else { return };
        let (next_wake, is_wall) = (job.next_wake(), job.timing.is_wall());
        if is_wall {
            self.wall.set(key, next_wake);
        } else {
            self.jobs.set_deadline(key, next_wake);
        }
        self.notify_driver = self.notify_driver.or(Times::only(next_wake, is_wall));
    }

    /// Gives a job another plan. Gives back its old timing, to be dropped.
    #[must_use]
    pub(super) fn change_plan(&mut self, key: Key, plan: Plan, due: Time) -> Option<Timing> {
        let rules = self.rules;
        let is_past = self.is_past(due, plan.timing.is_wall());
        self.has_past |= is_past;
        // From one clock to the other: it is on neither for a moment.
        self.unplace(key);
        let job = self.jobs.get_mut(key)?;
        job.overlap = plan.overlap.unwrap_or(rules.overlap);
        job.missed = plan.missed.unwrap_or(rules.missed);
        (job.due, job.is_past, job.times, job.backlog) = (due, is_past, plan.times, Backlog::default());
        job.plans = job.plans.wrapping_add(1);
        let old = std::mem::replace(&mut job.timing, plan.timing);
        self.place(key);
        Some(old)
    }

    /// Gives whether the job is there.
    pub(super) fn pause(&mut self, key: Key) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return false };
        job.is_paused = true;
        // What goes by during a rest is not made up for, nor what stood behind a run.
        job.backlog = Backlog::default();
        self.place(key);
        true
    }

    /// Gives whether the job is there.
    pub(super) fn resume(&mut self, key: Key, now: Times) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return false };
        if std::mem::replace(&mut job.is_paused, false) {
            let _rested = job.come_back(now.on(job.timing.is_wall()));
            self.place(key);
        }
        true
    }

    /// Whether a plan that is made now begins before the scheduler was last started.
    fn is_past(&self, due: Time, is_wall: bool) -> bool {
        self.phase == Phase::Running && due < self.since.on(is_wall)
    }

    /// When a job is due next, but for what was passed over while the scheduler was stopped.
    pub(super) fn next_due(&self, key: Key, now: Times) -> Option<Due> {
        let job = self.jobs.get(key)?;
        let since = if self.phase == Phase::Stopped { now } else { self.since };
        let is_wall = job.timing.is_wall();
        let since = since.on(is_wall);
        let is_passed_over = job.next_wake() < since && !(job.is_past && self.phase == Phase::Running);
        let time = if is_passed_over { job.beyond(since).0 } else { job.next_wake() };
        (!time.is_never()).then_some(Due { time, is_wall })
    }

    fn unplace(&mut self, key: Key) {
        self.wall.remove(key);
        self.jobs.set_deadline(key, Time::NEVER);
    }

    /// When the bell has to ring, if it has to be set for that.
    #[must_use]
    pub(super) fn plan(&mut self) -> Option<Times> {
        let notify_driver = std::mem::replace(&mut self.notify_driver, Times::NEVER);
        match self.bell {
            Some(bell) if notify_driver.engine >= bell.engine && notify_driver.wall >= bell.wall => None,
            Some(bell) => Some(*self.bell.insert(bell.or(notify_driver))),
            None => Some(*self.bell.insert(self.next_look())),
        }
    }

    /// The same, after something was removed or put off: the bells, if they are set, are set for this from now on.
    pub(super) fn look_from_now_on(&mut self) -> Times {
        let next = self.next_look();
        self.bell = self.bell.map(|_| next);
        next
    }

    /// When somebody has to look by themselves.
    fn next_look(&self) -> Times {
        match self.phase {
            Phase::Running => Times { engine: self.jobs.next_wakeup(), wall: self.wall.next_wakeup() },
            _ => Times::NEVER,
        }
    }

    /// If the wall clock has been set back by so much that it must have been wrong, works out anew when its jobs are due.
    pub(super) fn see(&mut self, now: Times) {
        let expected = self.seen.wall + (now.engine - self.seen.engine);
        self.seen = now;
        if now.wall == Time::ZERO || expected - now.wall <= SET_BACK {
            return;
        }
        self.since.wall = self.since.wall.min(now.wall);
        for key in self.wall.jobs() {
            if let Some(job) = self.jobs.get_mut(key) {
                job.due = job.due.min(job.timing.after(now.wall));
                self.place(key);
            }
        }
    }

    /// Whether a thread that waits is to be woken, because there is something for it to do: one that has been woken already
    /// looks at everything when it comes.
    #[must_use]
    pub(super) fn call(&mut self) -> bool {
        let is_there = self.idle > self.called;
        self.called += usize::from(is_there);
        is_there
    }

    /// The same, if there is more than the thread that looks can do.
    #[must_use]
    pub(super) fn call_for_help(&mut self) -> bool {
        let is_wanted = !self.tasks.is_empty() || (self.waiting() > 0 && self.phase != Phase::Stopped);
        is_wanted && self.call()
    }

    pub(super) fn start(&mut self, now: Times) {
        if self.phase == Phase::Stopped {
            self.phase = Phase::Running;
            self.since = now;
            self.forget_past();
            self.alerts += 1;
            self.bell = None;
        }
    }

    /// What was planned before a start has no right to times before it. Few plans ever had: it is not looked for in vain.
    fn forget_past(&mut self) {
        if std::mem::take(&mut self.has_past) {
            let keys: Vec<Key> = self.jobs.keys().collect();
            for key in keys {
                self.jobs.get_mut(key).into_iter().for_each(|job| job.is_past = false);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopped;
        }
    }

    /// Begins the end. Gives what is to be dropped.
    #[must_use]
    pub(super) fn shut_down(&mut self, how: Shutdown, now: Times) -> Option<DeadlineMap<Job<K>>> {
        let is_due = self.phase == Phase::Running && self.next_look().is_by(now);
        match (self.phase, how) {
            (Phase::Over, _) | (Phase::Ending(Shutdown::Abort), _) | (Phase::Ending(_), Shutdown::Drain) => {
                return None;
            }
            _ => self.phase = Phase::Ending(how),
        }
        self.alerts += 1;
        if how == Shutdown::Drain {
            self.until = is_due.then_some(now);
            return None;
        }
        self.until = None;
        self.stats.aborted += self.waiting() as u64;
        Some(self.clear())
    }

    /// The end, if nothing runs and nothing will. Gives what is to be dropped.
    #[must_use]
    pub(super) fn try_end(&mut self) -> Option<DeadlineMap<Job<K>>> {
        let is_busy = self.running > 0 || self.waiting() > 0 || self.until.is_some();
        if is_busy || !matches!(self.phase, Phase::Ending(_)) {
            return None;
        }
        self.phase = Phase::Over;
        // A thread that has found nothing and does not wait yet must not begin to.
        self.alerts += 1;
        Some(self.clear())
    }

    fn clear(&mut self) -> DeadlineMap<Job<K>> {
        self.table = Table::new();
        *self.wall = Wall::default();
        (self.runs, self.gone) = (VecDeque::new(), 0);
        std::mem::take(&mut self.jobs)
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

fn has_key<K, Q>(jobs: &DeadlineMap<Job<K>>, index: u32, key: &Q) -> bool
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
{
    let job = jobs.key_at(index).and_then(|job| jobs.get(job));
    job.is_some_and(|job| job.work.key().borrow() == key)
}
