//! Places in a bounded queue, which are taken several at a time, in the order of the callers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::catch_panic::{catch_panic, wake};

/// A bounded number of places.
#[derive(Debug)]
pub(super) struct Places {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Callers that wait, by their turn. The first gets its places before all others, so that a caller that needs many is not passed for ever.
    waiting: BTreeMap<u64, Waiting>,
    last_turn: u64,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    waker: Waker,
}

/// Places that were taken. They are free again when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Taken {
    places: Arc<Places>,
    count: usize,
}

/// Waits for places. If it is dropped, it gives back what it has got and leaves its turn to others.
struct Taking {
    places: Arc<Places>,
    count: usize,
    /// `None` before the first poll, and when the places were handed over.
    turn: Option<u64>,
}

impl Places {
    pub(super) fn new(capacity: usize) -> Arc<Places> {
        let capacity = capacity.max(1);
        let state = State { free: capacity, waiting: BTreeMap::new(), last_turn: 0 };
        Arc::new(Places { capacity, state: Mutex::new(state) })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns how many places are taken.
    pub(super) fn taken(&self) -> usize {
        self.capacity - self.lock().free
    }

    /// Takes so many places, but at most all that there are.
    pub(super) fn take(self: &Arc<Places>, count: usize) -> impl Future<Output = Taken> + Send + use<> {
        Taking { places: Arc::clone(self), count: count.min(self.capacity), turn: None }
    }

    fn give_back(&self, count: usize) {
        let mut state = self.lock();
        state.free += count;
        let woken = state.serve();
        drop(state);
        woken.into_iter().for_each(wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives free places to those whose turn it is, and returns their wakers.
    fn serve(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some(first) = self.waiting.first_entry()
            && first.get().count <= self.free
        {
            let Waiting { count, waker } = first.remove();
            self.free -= count;
            woken.push(waker);
        }
        woken
    }
}

impl Future for Taking {
    type Output = Taken;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Taken> {
        let taking = &mut *self;
        // Wakers are code of the user: they are cloned and dropped while nothing is locked.
        let waker = context.waker().clone();
        let mut state = taking.places.lock();
        match taking.turn {
            None if state.waiting.is_empty() && taking.count <= state.free => state.free -= taking.count,
            None => {
                state.last_turn += 1;
                let waiting = Waiting { count: taking.count, waker };
                taking.turn = Some(state.last_turn);
                let turn = state.last_turn;
                state.waiting.insert(turn, waiting);
                return Poll::Pending;
            }
            Some(turn) => {
                if let Some(waiting) = state.waiting.get_mut(&turn) {
                    let former = std::mem::replace(&mut waiting.waker, waker);
                    drop(state);
                    drop(former);
                    return Poll::Pending;
                }
            }
        }
        drop(state);
        taking.turn = None;
        Poll::Ready(Taken { places: Arc::clone(&taking.places), count: taking.count })
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(turn) = self.turn else { return };
        let waited = self.places.lock().waiting.remove(&turn);
        // Those behind may have been waiting for the turn of this one only.
        self.places.give_back(if waited.is_some() { 0 } else { self.count });
        catch_panic(|| drop(waited));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.give_back(self.count);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    fn take_now(places: &Arc<Places>, count: usize) -> Option<Taken> {
        block_on(poll_once(places.take(count)))
    }

    #[test]
    fn o2_places_are_bounded_and_given_in_turn_and_more_than_all_are_all() {
        let places = Places::new(3);
        let two = take_now(&places, 2).unwrap();
        let mut many = pin!(places.take(10));
        let mut one = pin!(places.take(1));
        assert!(block_on(poll_once(&mut many)).is_none());
        assert!(block_on(poll_once(&mut one)).is_none(), "one place is free, but another caller was first");
        assert_eq!(places.taken(), 2);
        drop(two);
        assert_eq!(places.taken(), 3, "the first in turn has got all");
        assert!(block_on(poll_once(&mut one)).is_none());
        drop(block_on(many));
        drop(block_on(one));
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn o2_who_stops_waiting_gives_back_its_places_and_its_turn() {
        let places = Places::new(3);
        let two = take_now(&places, 2).unwrap();
        let mut waits = Box::pin(places.take(2));
        let mut behind = pin!(places.take(1));
        assert!(block_on(poll_once(&mut waits)).is_none() && block_on(poll_once(&mut behind)).is_none());
        drop(waits);
        let behind = block_on(behind);
        let mut unseen = Box::pin(places.take(3));
        assert!(block_on(poll_once(&mut unseen)).is_none());
        drop((two, behind));
        assert_eq!(places.taken(), 3, "the places are handed over, and the caller does not know yet");
        drop(unseen);
        assert_eq!(places.taken(), 0);
        assert!(places.lock().waiting.is_empty());
    }

    #[test]
    fn o2_many_threads_that_take_and_give_up_leave_all_places_free() {
        let places = Places::new(8);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let places = &places;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let count = 1 + (round * 7 + thread) % 8;
                        match round % 3 {
                            0 => drop(take_now(places, count)),
                            _ => drop(block_on(places.take(count))),
                        }
                    }
                });
            }
        });
        assert_eq!(places.taken(), 0);
    }
}
