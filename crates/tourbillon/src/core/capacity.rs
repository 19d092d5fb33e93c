//! A limit on how many timers an engine holds, and the queue of sleeps that wait for a slot.
//!
//! Engines without a limit pay nothing for it. With one, each arming and each end counts on a shared word.
//!
//! A slot is the right to hold one timer. It is taken from the arming of a timer to its end: the thread that fires, cancels or stops the
//! timer gives the slot back at once, whether or not the timer is polled afterwards. A sleep that finds no slot waits:
//!
//! ```text
//!     Queued --- it is first, and a slot is free ----> Granted --- poll ---> armed, in that slot
//!        |                                               |
//!        +------- the driver reaches its deadline -------+---------------> Ended --- poll ---> fired
//! ```
//!
//! - One slot wakes one sleep, in the order in which sleeps began to wait. The slot is reserved for it from then on, so no newcomer
//!   overtakes it, and each wait costs at most two wake-ups: one for its slot, one for its deadline.
//! - The order is that of the slots. A thread wakes the sleeps of a batch one after another, after it has reserved their slots. A
//!   surface that is woken there and has no use for its slot passes it on at once, so the next sleep in the queue may be woken before
//!   sleeps of that batch, which have their slots already.
//! - A sleep that is dropped, disarmed or past its deadline leaves, and a slot that was reserved for it passes to the next.
//! - The driver takes the deadlines of waiting sleeps into account as it does those of shards ([`Capacity::next_end`]).
//!
//! An entry finds its wait again by a ticket, because an entry may be moved in memory between two polls. An entry has no space for a
//! ticket beside its deadline, so the wait keeps the deadline meanwhile.
//!
//! # No slot is lost
//!
//! A sleep that queues first stores `awaited` and then tries to take a slot. A thread that gives a slot back first counts it as
//! free and then loads `awaited`. All four accesses are sequentially consistent, so at least one of the two sees the other: either
//! the sleep takes the slot, or that thread locks the queue and grants it.

use std::collections::{BTreeSet, HashMap};
use std::task::Waker;

use tourbillon_queue::Time;

use crate::shard::SlackQueue;
use crate::slack::SlackBits;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock};

/// The limit of an engine, and the sleeps that wait for a slot.
pub(crate) struct Capacity {
    pub(crate) most: usize,
    /// Slots that are taken: by armed timers, and by sleeps to which one was granted.
    taken: AtomicUsize,
    /// Whether a sleep is queued.
    awaited: AtomicBool,
    /// The earliest deadline of waiting sleeps, as [`NextWake`](crate::shard::NextWake) has it for a shard: adaptive and on time.
    ends: [AtomicU64; 2],
    waits: Mutex<WaitTable>,
}

/// Whether an entry that is not armed waits for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CapacityWait {
    /// The entry does not wait, and keeps its deadline itself.
    None(Time),
    /// The entry waits, and the wait keeps its deadline.
    Waiting(WaitTicket),
}

/// Names a wait. Tickets are never used again, and an earlier wait has a lower one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WaitTicket(pub(crate) u64);

/// When a waiting sleep ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitEnd {
    /// The deadline that the entry was given, also while the entry is held.
    pub(crate) deadline: Time,
    /// The effective deadline: never while the entry is held.
    pub(crate) due: Time,
    pub(crate) slack: SlackBits,
}

/// The result of asking for a slot.
#[must_use]
pub(crate) enum Claim {
    Slot,
    /// The wait has begun. The caller notifies the driver of its deadline.
    Wait(WaitTicket),
}

/// The result of polling a wait. With the first two the wait is over, and its ticket is used up.
#[must_use]
pub(crate) enum WaitProgress {
    /// The caller has the slot. The deadline of the wait.
    Granted(Time),
    /// The driver has reached this deadline.
    Ended(Time),
    /// The waker that the wait had before, for the caller to drop.
    Waiting(Option<Waker>),
}

/// The result of giving a wait another deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Moved {
    /// The wait has the new deadline. The caller notifies the driver.
    Done,
    /// The driver has reached the former deadline already.
    Ended,
}

/// The remains of a wait that was given up.
#[must_use]
pub(crate) struct AbandonedWait {
    pub(crate) deadline: Time,
    pub(crate) has_ended: bool,
    /// Its waker, if that has not been woken, for the caller to drop.
    pub(crate) waker: Option<Waker>,
    /// The waker of the sleep to which its slot has passed, for the caller to wake.
    pub(crate) next: Vec<Waker>,
}

#[derive(Default)]
struct WaitTable {
    all: HashMap<WaitTicket, WaitRecord>,
    /// The waits in the state `Queued`.
    queued: BTreeSet<WaitTicket>,
    /// The waits that have not ended, by effective deadline: adaptive and on time.
    by_end: [BTreeSet<(Time, WaitTicket)>; 2],
    /// How many waits have begun so far.
    begun: u64,
}

struct WaitRecord {
    state: WaitState,
    deadline: Time,
    /// Where it is in `by_end`; nowhere if the time is never.
    end: (SlackQueue, Time),
    /// `None` if the wait has been woken since its last poll.
    waker: Option<Waker>,
}

/// How far the wait for a slot has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitState {
    /// It waits for a slot.
    Queued,
    /// A slot is reserved for it.
    Granted,
    /// The driver has reached its deadline.
    Ended,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Capacity {
        Capacity {
            most,
            taken: AtomicUsize::new(0),
            awaited: AtomicBool::new(false),
            ends: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            waits: Mutex::new(WaitTable::default()),
        }
    }

    /// Takes a slot, if one is free that no sleep waits for.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        !self.awaited.load(Ordering::SeqCst) && self.take_free()
    }

    #[must_use]
    fn take_free(&self) -> bool {
        let take = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// Gives slots back. The wakers of the sleeps that get them are added to `batch`, for the caller to wake.
    pub(crate) fn give_back(&self, count: usize, batch: &mut Vec<Waker>) {
        let mut free = count;
        if self.awaited.load(Ordering::SeqCst) {
            let mut waits = lock(&self.waits);
            while free > 0 && self.grant_first(&mut waits, batch) {
                free -= 1;
            }
        }
        if free == 0 {
            return;
        }
        self.taken.fetch_sub(free, Ordering::SeqCst);
        // See the module: a sleep may have queued since `awaited` was loaded.
        if self.awaited.load(Ordering::SeqCst) {
            let mut waits = lock(&self.waits);
            while !waits.queued.is_empty() && self.take_free() {
                let _first = self.grant_first(&mut waits, batch);
            }
        }
    }

    /// Passes a slot that the caller has to the first wait of the queue; `false` if no wait is queued.
    #[must_use]
    fn grant_first(&self, waits: &mut WaitTable, batch: &mut Vec<Waker>) -> bool {
        let Some(ticket) = waits.queued.pop_first() else { return false };
        self.awaited.store(!waits.queued.is_empty(), Ordering::SeqCst);
        if let Some(wait) = waits.all.get_mut(&ticket) {
            wait.state = WaitState::Granted;
            batch.extend(wait.waker.take());
        }
        true
    }

    /// Takes a slot, or queues for one: `waker` is woken when a slot is granted or the deadline is reached.
    pub(crate) fn take_or_wait(&self, end: WaitEnd, waker: Waker) -> Claim {
        let mut waits = lock(&self.waits);
        if waits.queued.is_empty() {
            // In this order: see the module.
            self.awaited.store(true, Ordering::SeqCst);
            if self.take_free() {
                self.awaited.store(false, Ordering::SeqCst);
                drop(waits);
                return Claim::Slot;
            }
        }
        let ticket = waits.begin(end, waker);
        self.publish_ends(&waits);
        Claim::Wait(ticket)
    }

    /// Polls a wait. `waker` replaces the waker of the last poll.
    pub(crate) fn poll(&self, ticket: WaitTicket, waker: Waker) -> WaitProgress {
        let mut waits = lock(&self.waits);
        let Some(wait) = waits.all.get_mut(&ticket) else { return WaitProgress::Waiting(Some(waker)) };
        if wait.state == WaitState::Queued {
            return WaitProgress::Waiting(wait.waker.replace(waker));
        }
        let (state, deadline) = (wait.state, wait.deadline);
        // It has been woken, so it has no waker to drop.
        let _none = waits.remove(ticket);
        self.publish_ends(&waits);
        drop(waits);
        match state {
            WaitState::Ended => WaitProgress::Ended(deadline),
            _ => WaitProgress::Granted(deadline),
        }
    }

    /// Ends a wait that is given up. A slot that was reserved for it passes on.
    pub(crate) fn leave(&self, ticket: WaitTicket) -> AbandonedWait {
        let wait = {
            let mut waits = lock(&self.waits);
            let wait = waits.remove(ticket);
            self.awaited.store(!waits.queued.is_empty(), Ordering::SeqCst);
            self.publish_ends(&waits);
            wait
        };
        let (state, deadline, waker) = wait.map_or((WaitState::Queued, Time::NEVER, None), WaitRecord::into_parts);
        let mut next = Vec::new();
        if state == WaitState::Granted {
            self.give_back(1, &mut next);
        }
        AbandonedWait { deadline, has_ended: state == WaitState::Ended, waker, next }
    }

    /// Returns whether the driver has reached the deadline of a wait.
    pub(crate) fn has_ended(&self, ticket: WaitTicket) -> bool {
        lock(&self.waits).all.get(&ticket).is_some_and(|wait| wait.state == WaitState::Ended)
    }

    /// Returns the deadline of a wait.
    pub(crate) fn deadline(&self, ticket: WaitTicket) -> Time {
        lock(&self.waits).all.get(&ticket).map_or(Time::NEVER, |wait| wait.deadline)
    }

    /// Gives a wait another deadline. It keeps its position in the queue, or the slot that is reserved for it.
    pub(crate) fn set_end(&self, ticket: WaitTicket, end: WaitEnd) -> Moved {
        let mut waits = lock(&self.waits);
        let moved = waits.set_end(ticket, end);
        self.publish_ends(&waits);
        moved
    }

    /// Returns when the driver has to [end](Capacity::end_due) the next wait. Adaptive ones do not count before `floor`.
    pub(crate) fn next_end(&self, floor: Time) -> Time {
        let [adaptive, on_time] =
            [SlackQueue::Adaptive, SlackQueue::OnTime].map(|queue| self.ends[queue as usize].load(Ordering::SeqCst));
        Time::from_nanos(adaptive).max(floor).min(Time::from_nanos(on_time))
    }

    /// Ends waits whose deadline is past at `now`, `most` at the most, and returns how many. Their wakers, and those of sleeps that thereby
    /// get a slot, are added to `batch`. For the driver.
    pub(crate) fn end_due(&self, now: Time, most: usize, batch: &mut Vec<Waker>) -> usize {
        if self.next_end(Time::ZERO) > now {
            return 0;
        }
        let mut granted = 0;
        let ended = {
            let mut waits = lock(&self.waits);
            let mut ended = 0;
            while ended < most
                && let Some(state) = waits.end_first(now, batch)
            {
                ended += 1;
                granted += usize::from(state == WaitState::Granted);
            }
            self.awaited.store(!waits.queued.is_empty(), Ordering::SeqCst);
            self.publish_ends(&waits);
            ended
        };
        if granted > 0 {
            self.give_back(granted, batch);
        }
        ended
    }

    /// Returns the wakers of all waits, in the order in which the waits began, for the caller to wake. For shutdown.
    pub(crate) fn take_wakers(&self) -> Vec<Waker> {
        let mut wakers: Vec<_> = {
            let mut waits = lock(&self.waits);
            waits.all.iter_mut().filter_map(|(ticket, wait)| Some((*ticket, wait.waker.take()?))).collect()
        };
        wakers.sort_unstable_by_key(|(ticket, _)| *ticket);
        wakers.into_iter().map(|(_, waker)| waker).collect()
    }

    /// Stores the earliest deadlines where the driver sees them. Only under the lock.
    fn publish_ends(&self, waits: &WaitTable) {
        for (published, ends) in self.ends.iter().zip(&waits.by_end) {
            let first = ends.first().map_or(Time::NEVER, |(end, _)| *end).as_nanos();
            if published.load(Ordering::Relaxed) != first {
                // Before the caller loads the driver's plan: see `driver`.
                published.store(first, Ordering::SeqCst);
            }
        }
    }

    /// Returns whether no sleep waits. For the end of a schedule.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn is_unawaited(&self) -> bool {
        lock(&self.waits).all.is_empty() && !self.awaited.load(Ordering::SeqCst)
    }
}

impl WaitTable {
    fn begin(&mut self, end: WaitEnd, waker: Waker) -> WaitTicket {
        let ticket = WaitTicket(self.begun);
        self.begun += 1;
        let wait = WaitRecord {
            state: WaitState::Queued,
            deadline: end.deadline,
            end: (SlackQueue::Adaptive, Time::NEVER),
            waker: Some(waker),
        };
        self.all.insert(ticket, wait);
        self.queued.insert(ticket);
        let _new = self.set_end(ticket, end);
        ticket
    }

    fn set_end(&mut self, ticket: WaitTicket, end: WaitEnd) -> Moved {
        let Some(wait) = self.all.get_mut(&ticket) else { return Moved::Ended };
        wait.deadline = end.deadline;
        if wait.state == WaitState::Ended {
            return Moved::Ended;
        }
        let before = std::mem::replace(&mut wait.end, end.position());
        self.by_end[before.0 as usize].remove(&(before.1, ticket));
        let (queue, at) = end.position();
        if !at.is_never() {
            self.by_end[queue as usize].insert((at, ticket));
        }
        Moved::Done
    }

    fn remove(&mut self, ticket: WaitTicket) -> Option<WaitRecord> {
        let wait = self.all.remove(&ticket)?;
        self.queued.remove(&ticket);
        let (queue, at) = wait.end;
        self.by_end[queue as usize].remove(&(at, ticket));
        Some(wait)
    }

    /// Ends the first wait whose deadline is past at `now`, and returns the state that it had.
    fn end_first(&mut self, now: Time, batch: &mut Vec<Waker>) -> Option<WaitState> {
        let firsts = self.by_end.iter().enumerate().filter_map(|(queue, ends)| Some((*ends.first()?, queue)));
        let ((at, ticket), queue) = firsts.min()?;
        if at > now {
            return None;
        }
        self.by_end[queue].pop_first();
        self.queued.remove(&ticket);
        let wait = self.all.get_mut(&ticket)?;
        batch.extend(wait.waker.take());
        Some(std::mem::replace(&mut wait.state, WaitState::Ended))
    }
}

impl WaitRecord {
    fn into_parts(self) -> (WaitState, Time, Option<Waker>) {
        (self.state, self.deadline, self.waker)
    }
}

impl WaitEnd {
    /// Returns its position in `WaitTable::by_end`.
    fn position(self) -> (SlackQueue, Time) {
        (self.slack.queue(), self.slack.round_up(self.due))
    }
}
