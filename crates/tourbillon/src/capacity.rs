//! A limit on how many timers an engine holds, and the line of those who wait for room.
//!
//! Engines without one pay nothing for it. With one, each arming and each end counts on a shared word.
//!
//! Who waits has one place in the line (P7), which it finds again by its ticket: an entry may be moved in memory between two
//! polls, and be polled with another waker each time. An entry has no room for a ticket beside its deadline, so the line keeps
//! the deadline meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use tourbillon_queue::Time;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};

pub(crate) struct Capacity {
    pub(crate) most: usize,
    held: AtomicUsize,
    /// Whether there is a waker in the line.
    awaited: AtomicBool,
    line: Mutex<Line>,
}

/// How an entry that is not armed stands to the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It has its deadline.
    Outside(Time),
    /// The line has its deadline.
    InLine(Ticket),
}

/// A place in the line. Tickets are never used again, and who came earlier has a lower one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Ticket(pub(crate) u64);

#[derive(Default)]
struct Line {
    /// Of those who have not been woken since they asked last.
    wakers: BTreeMap<Ticket, Waker>,
    /// Of all who have a ticket.
    deadlines: HashMap<Ticket, Time>,
    /// How many have come so far.
    came: u64,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Capacity {
        Capacity { most, held: AtomicUsize::new(0), awaited: AtomicBool::new(false), line: Mutex::new(Line::default()) }
    }

    /// Room for one more, if there is.
    pub(crate) fn take(&self) -> bool {
        let take = |held| (held < self.most).then_some(held + 1);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// One has gone. Those who wait are to try again.
    #[must_use]
    pub(crate) fn give_back(&self) -> Vec<Waker> {
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) { self.take_waiting() } else { Vec::new() }
    }

    /// Room for one more; or else who asks is in the line now, with this waker, which is woken when there may be room. Who has
    /// got room leaves the line by itself.
    pub(crate) fn take_or_wait(&self, standing: &mut Standing, waker: &Waker) -> bool {
        if self.take() {
            return true;
        }
        let waker = waker.clone();
        let before = {
            let mut line = lock(&self.line);
            self.awaited.store(true, Ordering::SeqCst);
            line.put(standing, waker)
        };
        drop(before);
        // Room that was given back before `awaited` could be seen would be missed.
        self.take()
    }

    /// Gives up a place in the line. Its deadline, and its waker if that has not been woken, to be dropped by the caller.
    #[must_use]
    pub(crate) fn leave(&self, ticket: Ticket) -> (Time, Option<Waker>) {
        let mut line = lock(&self.line);
        let waker = line.wakers.remove(&ticket);
        self.awaited.store(!line.wakers.is_empty(), Ordering::SeqCst);
        (line.deadlines.remove(&ticket).unwrap_or(Time::NEVER), waker)
    }

    /// The deadline of who has that ticket.
    pub(crate) fn deadline(&self, ticket: Ticket) -> Time {
        lock(&self.line).deadlines.get(&ticket).copied().unwrap_or(Time::NEVER)
    }

    /// Gives another deadline to who has that ticket, and keeps its place.
    pub(crate) fn set_deadline(&self, ticket: Ticket, deadline: Time) {
        lock(&self.line).deadlines.insert(ticket, deadline);
    }

    /// All who wait, to be woken so that they try again, in the order in which they came: in virtual time that makes a run
    /// repeatable (B6). Who finds no room waits anew, in its old place.
    #[must_use]
    pub(crate) fn take_waiting(&self) -> Vec<Waker> {
        let wakers = {
            let mut line = lock(&self.line);
            self.awaited.store(false, Ordering::SeqCst);
            std::mem::take(&mut line.wakers)
        };
        wakers.into_values().collect()
    }
}

impl Line {
    /// Gives the waker that was there before, to be dropped outside the lock.
    fn put(&mut self, standing: &mut Standing, waker: Waker) -> Option<Waker> {
        let ticket = match *standing {
            Standing::InLine(ticket) => ticket,
            Standing::Outside(deadline) => {
                let ticket = Ticket(self.came);
                self.came += 1;
                self.deadlines.insert(ticket, deadline);
                ticket
            }
        };
        *standing = Standing::InLine(ticket);
        self.wakers.insert(ticket, waker)
    }
}
