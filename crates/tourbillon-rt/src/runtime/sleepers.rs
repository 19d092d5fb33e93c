//! Who sleeps, and who of them is called for a task.
//!
//! # No call is missed
//!
//! Who sends a task puts it into a queue and then looks for a sleeper; who goes to sleep enters itself here and then looks at the
//! queues. With a sequentially consistent fence between the two on both sides, one of the two sees the other.

use std::sync::Arc;

use super::seat::Seat;
use crate::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

#[derive(Default)]
pub(crate) struct Sleepers {
    seats: Mutex<Vec<Arc<Seat>>>,
    /// How many they are.
    count: AtomicUsize,
    /// How many were called and have not found a task yet.
    searching: AtomicUsize,
}

/// Why somebody sleeps no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Woken {
    /// For something of its own.
    ByItself,
    /// Somebody has called it to look for a task. When it has looked, it says so: [`Sleepers::has_searched`].
    ToSearch,
}

impl Sleepers {
    /// Wakes one, unless somebody is looking for work already.
    pub(crate) fn call_for_help(&self) {
        if self.count.load(Ordering::SeqCst) > 0 && self.searching.load(Ordering::SeqCst) == 0 {
            self.call_one();
        }
    }

    /// Wakes one. What it is to find is in a queue by now.
    pub(crate) fn call_one(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let sleeper = {
            let mut seats = lock(&self.seats);
            let sleeper = seats.pop();
            self.count.store(seats.len(), Ordering::SeqCst);
            sleeper
        };
        if let Some(seat) = sleeper {
            self.searching.fetch_add(1, Ordering::SeqCst);
            seat.call();
        }
    }

    /// By who is about to sleep, and looks at the queues once more.
    pub(crate) fn add(&self, seat: &Arc<Seat>) {
        let mut seats = lock(&self.seats);
        seats.push(Arc::clone(seat));
        self.count.store(seats.len(), Ordering::SeqCst);
        drop(seats);
        fence(Ordering::SeqCst);
    }

    /// By who has slept.
    pub(crate) fn remove(&self, seat: &Arc<Seat>) -> Woken {
        let mut seats = lock(&self.seats);
        let before = seats.len();
        seats.retain(|sleeper| !Arc::ptr_eq(sleeper, seat));
        self.count.store(seats.len(), Ordering::SeqCst);
        if seats.len() == before { Woken::ToSearch } else { Woken::ByItself }
    }

    /// By who was called: it has found something, or there was nothing.
    pub(crate) fn has_searched(&self) {
        self.searching.fetch_sub(1, Ordering::SeqCst);
    }
}
