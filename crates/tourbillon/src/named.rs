//! Timers by name: many under one name, cancelled together.
//!
//! See [`NamedTimers`].

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::agenda::{self, Agenda, Key, Popped};
use crate::bell::Bell;
use crate::core::CoreRef;
use crate::engine::{ArmError, Engine};
use crate::home;
use crate::outcome::Outcome;
use crate::state::representable;
use crate::sync::{Mutex, lock};
use crate::time::Instant;
use crate::waiter::{self, Answer, Waiter};

/// Timers that have a name, which many can share, and that are cancelled by it.
///
/// A timer is [created](NamedTimers::create) under a name and then started, or both in [one call](NamedTimers::start). Each that
/// is started ends once, and its callback or future is told how: as [fired](Outcome::Fired), as [cancelled](Outcome::Cancelled),
/// or as [stopped](Outcome::Stopped). [`cancel`](NamedTimers::cancel) says how many it cancelled, exactly. However many there are,
/// starting, cancelling and firing one takes the same time.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::{NamedTimers, Outcome};
///
/// let timers = NamedTimers::new();
/// let (send, receive) = channel();
/// for _ in 0..3 {
///     let send = send.clone();
///     timers.start("session 7", Duration::from_secs(60), move |outcome| send.send(outcome).unwrap())?;
/// }
/// assert_eq!(timers.cancel_up_to("session 7", 1), 1);
/// assert_eq!(timers.cancel("session 7"), 2);
/// assert_eq!(receive.iter().take(3).collect::<Vec<_>>(), [Outcome::Cancelled; 3]);
/// # Ok::<(), tourbillon::ArmError>(())
/// ```
///
/// # Handles
/// It is cheap to clone, and all clones are the same timers. When the last is dropped, what is pending is cancelled.
///
/// # Where callbacks run
/// As those of a [`Timer`](crate::Timer#where-callbacks-run): never inside a call of this type, nor under a lock. They are called
/// in the order of the deadlines; equal ones in the order in which they were started. A callback may use the timers that it
/// is of in any way: also cancel them all, or start as many again.
///
/// # Names
/// Any text is a name, also an empty or a long one. A name takes memory as long as there is a timer under it.
#[derive(Clone)]
pub struct NamedTimers {
    owner: Arc<Owner>,
}

/// A timer that has a name and was not started yet: [`NamedTimers::create`].
///
/// It counts as one of its name, and can be cancelled: starting it then completes as [cancelled](Outcome::Cancelled). Dropping it
/// frees its place.
#[must_use = "the timer is gone when this is dropped: start it"]
pub struct NamedTimer {
    shared: Arc<Shared>,
    /// Or why there is none.
    place: Result<Key, ArmError>,
}

/// The future of [`NamedTimer::wait`]: how the timer ended. Dropping it cancels the timer without a word.
///
/// Once ready, it stays ready.
#[must_use = "the timer is cancelled when this is dropped"]
pub struct NamedWait {
    shared: Arc<Shared>,
    key: Key,
    answer: Arc<Answer>,
}

/// What the clones of a handle share. Its end is that of the timers.
struct Owner {
    shared: Arc<Shared>,
}

/// What is shared with timers and with the bell.
struct Shared {
    core: CoreRef,
    /// Rings at the earliest deadline, and when the engine is shut down.
    bell: Bell,
    state: Mutex<State>,
}

/// Whoever takes a timer out of it, under the lock, decides how that timer ended, and tells it so outside.
struct State {
    agenda: Agenda<Item>,
    names: HashMap<Arc<str>, u32>,
    /// By the numbers in `names`; some are free.
    lines: Vec<Line>,
    free: Vec<u32>,
    /// How many timers have been created.
    created: u64,
    /// How many are started and pending.
    pending: usize,
    /// No more are taken.
    is_closed: bool,
    ringing: Ringing,
}

/// One timer.
struct Item {
    line: u32,
    /// Who waits; `None` before it is started.
    waiter: Option<Waiter>,
    /// Timers of a name are cancelled by age.
    number: u64,
    /// In its line.
    before: Option<Key>,
    after: Option<Key>,
}

/// The timers of one name, from the oldest to the youngest: a list that is linked through them.
struct Line {
    /// `None`: it is free.
    name: Option<Arc<str>>,
    first: Option<Key>,
    last: Option<Key>,
    len: usize,
}

/// Whether some thread fires what is due. Only one does at a time, so that they are told in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ringing {
    No,
    Yes,
    /// And the bell has rung meanwhile.
    Again,
}

type Batch = Vec<(Waiter, Outcome)>;

/// So many are taken out before the lock is let go (D26).
const BATCH: usize = 256;

/// So much of the wheel's upkeep is done, and so many places are looked at, before the lock is let go.
const STEPS: usize = 1024;

/// So many batches are fired before the driver, on whose thread that is, may see to other timers.
const IN_A_ROW: usize = 32;
/// And for so long, at least.
const PAUSE: Span = Span::from_nanos(20_000);

impl NamedTimers {
    /// Without any timers yet, on the current engine.
    #[must_use]
    pub fn new() -> NamedTimers {
        NamedTimers::on_core(home::with_current(|home| home.core().clone()))
    }

    /// Without any timers yet, on this engine. It does not keep the engine from being shut down when its last handle goes.
    #[must_use]
    pub fn on(engine: &Engine) -> NamedTimers {
        NamedTimers::on_core(engine.core().clone())
    }

    pub(crate) fn on_core(core: CoreRef) -> NamedTimers {
        let shared = Arc::new_cyclic(|shared| Shared {
            bell: Bell::of(shared, &core, Shared::ring),
            core,
            state: Mutex::new(State::new()),
        });
        NamedTimers { owner: Arc::new(Owner { shared }) }
    }

    /// A timer under this name, to be started later. Until then it can be cancelled, and it counts.
    ///
    /// When the timers were stopped, or there are as many as there can be (a billion), starting it says so.
    pub fn create(&self, name: &str) -> NamedTimer {
        let shared = self.owner.shared.clone();
        let place = shared.add(name, None, Time::NEVER).map_err(|(error, _)| error);
        NamedTimer { shared, place }
    }

    /// Creates a timer and starts it: see [`NamedTimer::start`].
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`stop`](NamedTimers::stop) or the engine's shutdown, [`ArmError::Full`] when there are as many
    /// as there can be. The callback is not called then.
    pub fn start(
        &self,
        name: &str,
        after: Duration,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<(), ArmError> {
        let shared = &self.owner.shared;
        let due = shared.due_after(after);
        // A callback that comes back is dropped here, outside the lock.
        shared.add(name, Some(Waiter::Call(Box::new(callback))), due).map_err(|(error, _)| error)?;
        shared.bell.set(due);
        Ok(())
    }

    /// Cancels all timers of a name, and says how many: those that it was too late for do not count. Timers that are not
    /// started yet do; they are told when they are.
    ///
    /// Timers that are created under the name after this has begun, for instance by the callbacks, are not cancelled.
    pub fn cancel(&self, name: &str) -> usize {
        self.cancel_up_to(name, usize::MAX)
    }

    /// The same for no more than `max` of them, the oldest first.
    pub fn cancel_up_to(&self, name: &str, max: usize) -> usize {
        self.owner.shared.cancel(name, max)
    }

    /// Ends every pending timer as [stopped](Outcome::Stopped), and says how many: each with its one callback, in no particular
    /// order. From now on starting a timer gives [`ArmError::Stopped`], unless it was cancelled before. It can be called
    /// again.
    ///
    /// The engine goes on. Its [shutdown](Engine::shutdown) does the same to all timers on it.
    pub fn stop(&self) -> usize {
        self.owner.shared.close(Outcome::Stopped)
    }

    /// Whether they were stopped, or their engine was shut down.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let shared = &self.owner.shared;
        shared.core.is_closed() || lock(&shared.state).is_closed
    }

    /// How many there are, started or not.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.owner.shared.state).agenda.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are of this name, started or not.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        let state = lock(&self.owner.shared.state);
        state.names.get(name).map_or(0, |line| state.lines[*line as usize].len)
    }

    /// The names that have timers, in no particular order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        lock(&self.owner.shared.state).names.keys().cloned().collect()
    }
}

impl NamedTimer {
    /// Starts it: `after` so long `callback` is called with [`Outcome::Fired`]; or before that with how else it ended. It is called
    /// once, and never inside this call. With [`Duration::MAX`] it never fires and can only be cancelled.
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`NamedTimers::stop`] or the engine's shutdown, or if all handles are gone;
    /// [`ArmError::Full`] if there were as many as there can be. The callback is not called then.
    pub fn start(self, after: Duration, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_after(after);
        self.start_due(due, Waiter::Call(Box::new(callback))).map(drop)
    }

    /// The same, to fire at `deadline`.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    pub fn start_at(self, deadline: Instant, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_at(deadline);
        self.start_due(due, Waiter::Call(Box::new(callback))).map(drop)
    }

    /// Starts it, and gives a future that says how it ended. The timer runs from now on, polled or not.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the timer: it counts for no cancel that comes later.
    pub fn wait(self, after: Duration) -> Result<NamedWait, ArmError> {
        let due = self.shared.due_after(after);
        self.wait_due(due)
    }

    /// The same, until `deadline`.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    pub fn wait_until(self, deadline: Instant) -> Result<NamedWait, ArmError> {
        let due = self.shared.due_at(deadline);
        self.wait_due(due)
    }

    pub(crate) fn wait_due(self, due: Time) -> Result<NamedWait, ArmError> {
        let (shared, answer) = (self.shared.clone(), Answer::new());
        let key = self.start_due(due, Waiter::Task(answer.clone()))?;
        Ok(NamedWait { shared, key, answer })
    }

    pub(crate) fn start_due(mut self, due: Time, waiter: Waiter) -> Result<Key, ArmError> {
        // From here on there is nothing left to drop.
        let key = std::mem::replace(&mut self.place, Err(ArmError::Stopped))?;
        let started = lock(&self.shared.state).start(key, due, waiter, self.shared.core.is_closed());
        match started {
            Start::Done => self.shared.bell.set(due),
            Start::WasCancelled(waiter) => {
                waiter::tell(&self.shared.core, [(waiter, Outcome::Cancelled)].into_iter());
            }
            // Its waiter is dropped here, outside the lock.
            Start::Stopped(_) => return Err(ArmError::Stopped),
        }
        Ok(key)
    }
}

/// If it was not started.
impl Drop for NamedTimer {
    fn drop(&mut self) {
        if let Ok(key) = self.place {
            lock(&self.shared.state).remove_unstarted(key);
        }
    }
}

impl Future for NamedWait {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.answer.poll(context)
    }
}

impl Drop for NamedWait {
    fn drop(&mut self) {
        let withdrawn = lock(&self.shared.state).remove(self.key);
        // Here, outside the lock: the waker in it is the user's.
        drop(withdrawn);
    }
}

impl Default for NamedTimers {
    fn default() -> NamedTimers {
        NamedTimers::new()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(Outcome::Cancelled);
    }
}

impl Shared {
    fn due_after(&self, after: Duration) -> Time {
        representable(home::with(self.core.as_ptr(), |home| home.deadline(after)))
    }

    fn due_at(&self, deadline: Instant) -> Time {
        representable(self.core.clock.time_of(deadline.into_std()))
    }

    /// The waiter comes back if it cannot be added.
    fn add(&self, name: &str, waiter: Option<Waiter>, due: Time) -> Result<Key, (ArmError, Option<Waiter>)> {
        let mut state = lock(&self.state);
        if state.is_closed || self.core.is_closed() {
            return Err((ArmError::Stopped, waiter));
        }
        state.add(name, waiter, due)
    }

    fn cancel(&self, name: &str, max: usize) -> usize {
        let (mut count, mut batch) = (0, Batch::new());
        let youngest = lock(&self.state).created;
        loop {
            let taken = lock(&self.state).take_oldest(name, youngest, BATCH.min(max - count), &mut batch);
            count += taken;
            waiter::tell(&self.core, batch.drain(..));
            if taken < BATCH {
                return count;
            }
        }
    }

    /// Ends all that are started, and takes no more.
    fn close(&self, outcome: Outcome) -> usize {
        let (mut count, mut batch) = (0, Batch::new());
        let mut cursor = 0;
        loop {
            let is_over = {
                let mut state = lock(&self.state);
                state.is_closed = true;
                state.take_started(&mut cursor, outcome, &mut batch)
            };
            count += batch.len();
            waiter::tell(&self.core, batch.drain(..));
            if is_over {
                return count;
            }
        }
    }

    /// Fires what is due, and sets the bell for what is not; unless another thread is at it, which then looks again.
    fn ring(&self) {
        if !lock(&self.state).begin_ringing() {
            return;
        }
        loop {
            if self.bell.rang() == Some(Outcome::Stopped) {
                self.close(Outcome::Stopped);
            }
            let is_done = self.fire();
            let next = {
                let state = lock(&self.state);
                (state.pending > 0).then(|| state.agenda.next_wakeup())
            };
            if let Some(next) = next {
                // This may ring it at once: then we go round again.
                self.bell.set(if is_done { next } else { self.core.clock.now() + PAUSE });
            }
            if lock(&self.state).end_ringing() {
                return;
            }
        }
    }

    /// Fires what is due now. Not all, if that takes so long that other timers of the engine would be late; time that is moved by
    /// hand can wait.
    fn fire(&self) -> bool {
        let now = self.core.clock.now();
        let mut batch = Batch::new();
        for batches in 1.. {
            let more = lock(&self.state).take_due(now, &mut batch);
            waiter::tell(&self.core, batch.drain(..));
            if !more {
                break;
            }
            if batches == IN_A_ROW && !self.core.clock.is_manual() {
                return false;
            }
        }
        true
    }
}

/// What came of starting a timer.
enum Start {
    Done,
    WasCancelled(Waiter),
    Stopped(#[expect(dead_code, reason = "it is dropped outside the lock")] Waiter),
}

impl State {
    fn new() -> State {
        State {
            agenda: Agenda::new(),
            names: HashMap::new(),
            lines: Vec::new(),
            free: Vec::new(),
            created: 0,
            pending: 0,
            is_closed: false,
            ringing: Ringing::No,
        }
    }

    fn add(&mut self, name: &str, waiter: Option<Waiter>, due: Time) -> Result<Key, (ArmError, Option<Waiter>)> {
        if self.agenda.is_full() {
            return Err((ArmError::Full { capacity: agenda::MOST }, waiter));
        }
        self.pending += usize::from(waiter.is_some());
        let line = self.line(name);
        let before = self.lines[line as usize].last;
        let key = self.agenda.insert(due, Item { line, waiter, number: self.created, before, after: None });
        self.created += 1;
        self.link(before, line, Side::After, Some(key));
        let line = &mut self.lines[line as usize];
        (line.last, line.len) = (Some(key), line.len + 1);
        Ok(key)
    }

    fn start(&mut self, key: Key, due: Time, waiter: Waiter, engine_is_closed: bool) -> Start {
        let Some(item) = self.agenda.get_mut(key) else { return Start::WasCancelled(waiter) };
        if self.is_closed || engine_is_closed {
            self.remove(key);
            return Start::Stopped(waiter);
        }
        item.waiter = Some(waiter);
        self.pending += 1;
        self.agenda.set_deadline(key, due);
        Start::Done
    }

    fn remove_unstarted(&mut self, key: Key) {
        if self.agenda.get(key).is_some_and(|item| item.waiter.is_none()) {
            self.remove(key);
        }
    }

    /// Takes a timer out of everything. `None` if it has ended.
    fn remove(&mut self, key: Key) -> Option<Item> {
        let item = self.agenda.remove(key)?;
        self.link(item.before, item.line, Side::After, item.after);
        self.link(item.after, item.line, Side::Before, item.before);
        self.lines[item.line as usize].len -= 1;
        self.free_if_empty(item.line);
        self.pending -= usize::from(item.waiter.is_some());
        Some(item)
    }

    /// Up to `most` of a name, the oldest first, of those that were created before the one with this number. Gives how many;
    /// those that are started go into the batch.
    fn take_oldest(&mut self, name: &str, youngest: u64, most: usize, batch: &mut Batch) -> usize {
        let Some(line) = self.names.get(name).copied() else { return 0 };
        let mut taken = 0;
        // With its last timer the line goes, and with the last line all of them may.
        while taken < most
            && let Some(first) = self.lines.get(line as usize).and_then(|line| line.first)
            && self.agenda.get(first).is_some_and(|item| item.number < youngest)
        {
            let item = self.remove(first);
            batch.extend(item.and_then(|item| item.waiter).map(|waiter| (waiter, Outcome::Cancelled)));
            taken += 1;
        }
        taken
    }

    /// A batch of those that are started, by their places from `cursor` on; whether that was the last.
    fn take_started(&mut self, cursor: &mut u32, outcome: Outcome, batch: &mut Batch) -> bool {
        for _ in 0..STEPS {
            let Some(key) = self.agenda.key_at(*cursor) else { return true };
            *cursor += 1;
            if self.agenda.get(key).is_some_and(|item| item.waiter.is_some()) {
                let item = self.remove(key);
                batch.extend(item.and_then(|item| item.waiter).map(|waiter| (waiter, outcome)));
            }
        }
        false
    }

    /// A batch of what is due, in order. Says whether there may be more.
    fn take_due(&mut self, now: Time, batch: &mut Batch) -> bool {
        while batch.len() < BATCH {
            let item = match self.agenda.pop(now, STEPS) {
                Popped::Due(key, _) => self.remove(key),
                Popped::NotYet => return true,
                Popped::Nothing => return false,
            };
            batch.extend(item.and_then(|item| item.waiter).map(|waiter| (waiter, Outcome::Fired)));
        }
        true
    }

    /// The line of a name, made if need be.
    fn line(&mut self, name: &str) -> u32 {
        if let Some(line) = self.names.get(name) {
            return *line;
        }
        let name: Arc<str> = name.into();
        let line = Line { name: Some(name.clone()), first: None, last: None, len: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.lines[index as usize] = line;
                index
            }
            None => {
                self.lines.push(line);
                self.lines.len() as u32 - 1
            }
        };
        self.names.insert(name, index);
        index
    }

    fn free_if_empty(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        if line.len == 0
            && let Some(name) = line.name.take()
        {
            self.names.remove(&name);
            self.free.push(index);
            self.give_memory_back();
        }
    }

    /// When there is no name left.
    fn give_memory_back(&mut self) {
        if self.names.is_empty() && self.names.capacity() > KEPT {
            self.names = HashMap::new();
            (self.lines, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Makes `neighbour` what comes after or before `of` in a line; at its end, the line's first or last.
    fn link(&mut self, of: Option<Key>, line: u32, side: Side, neighbour: Option<Key>) {
        let item = of.and_then(|of| self.agenda.get_mut(of));
        let line = &mut self.lines[line as usize];
        match (item, side) {
            (Some(item), Side::After) => item.after = neighbour,
            (Some(item), Side::Before) => item.before = neighbour,
            (None, Side::After) => line.first = neighbour,
            (None, Side::Before) => line.last = neighbour,
        }
    }

    fn begin_ringing(&mut self) -> bool {
        let before = self.ringing;
        self.ringing = if before == Ringing::No { Ringing::Yes } else { Ringing::Again };
        before == Ringing::No
    }

    /// Whether it was all.
    fn end_ringing(&mut self) -> bool {
        let was_all = self.ringing == Ringing::Yes;
        self.ringing = if was_all { Ringing::No } else { Ringing::Yes };
        was_all
    }
}

enum Side {
    Before,
    After,
}

/// The memory for so many names is kept when there is none.
const KEPT: usize = 1024;

impl fmt::Debug for NamedTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.owner.shared.state);
        let (names, timers) = (state.names.len(), state.agenda.len());
        f.debug_struct("NamedTimers").field("names", &names).field("timers", &timers).finish_non_exhaustive()
    }
}

impl fmt::Debug for NamedTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedTimer").finish_non_exhaustive()
    }
}

impl fmt::Debug for NamedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedWait").finish_non_exhaustive()
    }
}
