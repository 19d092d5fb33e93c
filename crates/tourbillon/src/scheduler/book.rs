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
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use tourbillon_queue::{Span, Time};

use super::error::ScheduleErrorKind;
use super::flight::Flag;
use super::job::{Backlog, Gone, Job};
use super::plan::{Plan, Timing};
use super::table::Table;
use super::work::Work;
use super::{Overflow, Rules, SchedulerStats, Shutdown};
use crate::agenda::{Agenda, Key, Popped};

pub(super) struct Book<K> {
    pub(super) rules: Rules,
    pub(super) jobs: Agenda<Job<K>>,
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
    since: Now,
    /// Some job may have been planned since then for a time before that.
    has_past: bool,
    /// What the clocks showed when somebody last looked.
    seen: Now,
    /// While it is drained: what was due before this is still to be put in line.
    until: Option<Now>,
    /// Runs that have been begun and have not ended.
    pub(super) running: usize,
    /// Those of them that are futures.
    pub(super) flights: Box<Agenda<Arc<Flag>>>,
    /// Threads that wait for work.
    pub(super) idle: usize,
    /// Those of them that have been woken, and have not come yet.
    pub(super) called: usize,
    /// Counts what a thread that is about to wait must not miss.
    pub(super) alerts: u64,
    /// The engine has been asked to call the scheduler, and has not yet.
    pub(super) is_called: bool,
    /// Until when somebody is sure to look; `None` if nobody has seen to that.
    pub(super) bell: Option<Rings>,
    /// The earliest time for which a job was put on the wheel since somebody last saw to the bell.
    wish: Rings,
    /// Who waits for the end, by the numbers of their [`Ending`](super::Ending)s.
    pub(super) watchers: BTreeMap<u64, Waker>,
    /// How many endings have been waited for.
    pub(super) watched: u64,
    pub(super) stats: SchedulerStats,
}

/// The jobs that follow the wall clock. They are parked among the others.
#[derive(Default)]
struct Wall {
    dues: Agenda<Key>,
    of_job: HashMap<Key, Key>,
}

/// A run in line.
struct Ready {
    job: Key,
    due: Due,
    /// Of which of the job's plans.
    plan: u32,
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

/// A wall clock that is set back by no more than this shows again what has been; by more, and it had been wrong.
const SET_BACK: Span = Span::from_secs(3 * 60 * 60);

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
            wall: Box::default(),
            runs: VecDeque::new(),
            gone: 0,
            tasks: VecDeque::new(),
            tasks_first: false,
            wall_first: false,
            phase: Phase::Running,
            since: Now { engine: Time::ZERO, wall: Time::ZERO },
            has_past: false,
            seen: Now { engine: Time::ZERO, wall: Time::ZERO },
            until: None,
            running: 0,
            flights: Box::default(),
            idle: 0,
            called: 0,
            alerts: 0,
            is_called: false,
            bell: None,
            wish: Rings::NEVER,
            watchers: BTreeMap::new(),
            watched: 0,
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
        let (hash, wants, is_wall, due) = (job.hash, job.wants(), job.timing.is_wall(), job.due);
        job.is_past = self.is_past(due, is_wall);
        self.has_past |= job.is_past;
        let key = self.jobs.insert(if is_wall { Time::NEVER } else { wants }, job);
        if is_wall {
            self.wall.set(key, wants);
        }
        self.wish = self.wish.or(Rings::at(wants, is_wall));
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
    pub(super) fn resume(&mut self, key: Key, now: Now) -> bool {
        let Some(job) = self.jobs.get_mut(key) else { return false };
        if std::mem::replace(&mut job.is_paused, false) {
            let _rested = job.come_back(if job.timing.is_wall() { now.wall } else { now.engine });
            self.place(key);
        }
        true
    }

    /// Whether a plan that is made now begins before the scheduler was last started.
    fn is_past(&self, due: Time, is_wall: bool) -> bool {
        self.phase == Phase::Running && due < if is_wall { self.since.wall } else { self.since.engine }
    }

    /// When a job is due next, but for what was passed over while the scheduler was stopped.
    pub(super) fn next_due(&self, key: Key, now: Now) -> Option<Due> {
        let job = self.jobs.get(key)?;
        let since = if self.phase == Phase::Stopped { now } else { self.since };
        let is_wall = job.timing.is_wall();
        let since = if is_wall { since.wall } else { since.engine };
        let is_passed_over = job.wants() < since && !(job.is_past && self.phase == Phase::Running);
        let time = if is_passed_over { job.beyond(since).0 } else { job.wants() };
        (!time.is_never()).then_some(Due { time, is_wall })
    }

    fn unplace(&mut self, key: Key) {
        self.wall.remove(key);
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
        self.see(now);
        let admitted = match (self.phase, self.until) {
            (Phase::Running, _) => self.admit(now),
            (_, Some(until)) => self.admit(until),
            _ => Admitted::All,
        };
        if admitted == Admitted::All {
            self.until = None;
        }
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
            (Phase::Over, _) => Next::Over,
            (Phase::Ending(_), Admitted::All) if self.running == 0 => Next::Over,
            (_, Admitted::All) => Next::Wait,
            // What stood in line was of jobs that are gone, so there is room.
            (_, Admitted::Some | Admitted::UpToRoom) => Next::Again,
        }
    }

    /// If the wall clock has been set back by so much that it must have been wrong, works out anew when its jobs are due.
    pub(super) fn see(&mut self, now: Now) {
        let expected = self.seen.wall + (now.engine - self.seen.engine);
        self.seen = now;
        if now.wall == Time::ZERO || expected - now.wall <= SET_BACK {
            return;
        }
        self.since.wall = self.since.wall.min(now.wall);
        let keys: Vec<Key> = self.wall.of_job.keys().copied().collect();
        for key in keys {
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

    /// Puts what is due in line, as far as there is room, and as far as is done in one go.
    fn admit(&mut self, now: Now) -> Admitted {
        let mut left = Self::BATCH;
        while left > 0 {
            if self.is_full() && self.rules.overflow == Overflow::Wait {
                return Admitted::UpToRoom;
            }
            match self.pop(now) {
                Ok((key, due)) => self.fall_due(key, due, now),
                Err(admitted) => return admitted,
            }
            left -= 1;
        }
        Admitted::Some
    }

    /// A job that is due; or whether there may be more. The two clocks take turns, so that one that has always something due
    /// does not keep back the other's.
    fn pop(&mut self, now: Now) -> Result<(Key, Due), Admitted> {
        let has_wall = self.has_wall();
        self.wall_first = has_wall && !self.wall_first;
        let popped = if self.wall_first { self.pop_wall(now.wall) } else { self.pop_engine(now.engine) };
        match popped {
            Err(Admitted::All) if self.wall_first => self.pop_engine(now.engine),
            Err(Admitted::All) if has_wall => self.pop_wall(now.wall),
            found => found,
        }
    }

    fn pop_engine(&mut self, now: Time) -> Result<(Key, Due), Admitted> {
        match self.jobs.pop(now, Self::STEPS) {
            Popped::Due(key, time) => Ok((key, Due { time, is_wall: false })),
            Popped::NotYet => Err(Admitted::Some),
            Popped::Nothing => Err(Admitted::All),
        }
    }

    fn pop_wall(&mut self, now: Time) -> Result<(Key, Due), Admitted> {
        match self.wall.dues.pop(now, Self::STEPS) {
            Popped::Due(due, time) => match self.wall.dues.get(due) {
                Some(key) => Ok((*key, Due { time, is_wall: true })),
                None => Err(Admitted::Some),
            },
            Popped::NotYet => Err(Admitted::Some),
            Popped::Nothing => Err(Admitted::All),
        }
    }

    /// Whether no more runs can stand in line. Beside those in line there is one for each thread that waits, and one for the
    /// thread that asks.
    fn is_full(&self) -> bool {
        self.waiting() > self.rules.queue.saturating_add(self.idle)
    }

    fn fall_due(&mut self, key: Key, due: Due, now: Now) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let (now, since) = if due.is_wall { (now.wall, self.since.wall) } else { (now.engine, self.since.engine) };
        job.due = due.time;
        job.is_past &= due.time < since;
        let away = if job.is_past { 0 } else { job.come_back(since) };
        if away > 0 {
            add(&mut job.troubles().missed, away);
            add(&mut self.stats.missed, away);
            return self.place(key);
        }
        let outcome = job.fall_due(due.time, now);
        if outcome.missed > 0 || outcome.overlapped > 0 {
            let troubles = job.troubles();
            add(&mut troubles.missed, outcome.missed);
            add(&mut troubles.overlapped, outcome.overlapped);
            add(&mut self.stats.missed, outcome.missed);
            add(&mut self.stats.overlapped, outcome.overlapped);
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
            // Nor are those made that were to follow it.
            let count = std::mem::take(&mut job.backlog).count.saturating_add(1);
            add(&mut job.troubles().overflowed, count);
            add(&mut self.stats.overflowed, count);
            return;
        }
        if is_full && self.rules.overflow == Overflow::RunLate {
            self.stats.late += 1;
        }
        job.line_up();
        let plan = job.plans;
        self.runs.push_back(Ready { job: key, due, plan });
    }

    /// Begins the first run in line whose job is still there and not paused.
    fn begin(&mut self) -> Option<Begin<K>> {
        if matches!(self.phase, Phase::Stopped | Phase::Over) {
            return None;
        }
        while let Some(Ready { job: key, due, plan }) = self.runs.pop_front() {
            let Some(job) = self.jobs.get_mut(key) else {
                self.gone -= 1;
                continue;
            };
            if job.is_paused {
                job.step_back(plan);
                continue;
            }
            job.begin_run();
            self.stats.runs += 1;
            self.running += 1;
            return Some(Begin { job: key, work: Arc::clone(&job.work), number: job.runs, due });
        }
        None
    }

    /// A run has ended. Gives what is to be dropped: its job, if that was the last of its times.
    #[must_use]
    pub(super) fn end(&mut self, end: End) -> Option<Gone<K>> {
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
        if let Some(time) = next
            && self.phase != Phase::Ending(Shutdown::Abort)
        {
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
    pub(super) fn shut_down(&mut self, how: Shutdown, now: Now) -> Option<Agenda<Job<K>>> {
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
    pub(super) fn try_end(&mut self) -> Option<Agenda<Job<K>>> {
        let is_busy = self.running > 0 || self.waiting() > 0 || self.until.is_some();
        if is_busy || !matches!(self.phase, Phase::Ending(_)) {
            return None;
        }
        self.phase = Phase::Over;
        // A thread that has found nothing and does not wait yet must not begin to.
        self.alerts += 1;
        Some(self.clear())
    }

    fn clear(&mut self) -> Agenda<Job<K>> {
        self.table = Table::new();
        *self.wall = Wall::default();
        (self.runs, self.gone) = (VecDeque::new(), 0);
        std::mem::take(&mut self.jobs)
    }

    /// How many runs stand in line.
    pub(super) fn waiting(&self) -> usize {
        self.runs.len() - self.gone
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

/// Counts. Of times that went by there can be more than a count can tell: a nanosecond's, for centuries.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// Whether all that is due was put in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    All,
    /// There may be more, and there is room for it.
    Some,
    /// There may be more, and it has to wait.
    UpToRoom,
}

impl Wall {
    /// With `NEVER` the job is not waited for; but it follows the wall clock all the same, and has to hear when that was wrong.
    fn set(&mut self, job: Key, due: Time) {
        match self.of_job.get(&job) {
            Some(key) => self.dues.set_deadline(*key, due),
            None => _ = self.of_job.insert(job, self.dues.insert(due, job)),
        }
    }

    fn remove(&mut self, job: Key) {
        if let Some(key) = self.of_job.remove(&job) {
            self.dues.remove(key);
        }
    }
}

fn has_key<K, Q>(jobs: &Agenda<Job<K>>, index: u32, key: &Q) -> bool
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
{
    let job = jobs.key_at(index).and_then(|job| jobs.get(job));
    job.is_some_and(|job| job.work.key().borrow() == key)
}

impl Rings {
    const NEVER: Rings = Rings { engine: Time::NEVER, wall: Time::NEVER };

    fn at(time: Time, is_wall: bool) -> Rings {
        if is_wall { Rings { wall: time, ..Rings::NEVER } } else { Rings { engine: time, ..Rings::NEVER } }
    }

    /// Whether it is time, on either clock.
    fn is_by(self, now: Now) -> bool {
        self.engine <= now.engine || self.wall <= now.wall
    }

    /// The earlier of both, on each clock.
    fn or(self, other: Rings) -> Rings {
        Rings { engine: self.engine.min(other.engine), wall: self.wall.min(other.wall) }
    }
}
