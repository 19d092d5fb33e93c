//! The systems of the scenario `queue`, one file each.

mod btree_map;
mod delay_queue;
mod hash_wheel;
mod nexus;
mod tourbillon;

use std::marker::PhantomData;

use super::cases::{Contestant, ContestantOf};

/// The common interface of the timer queues. Times are nanoseconds since the queue was created.
pub(super) trait QueueSystem: Sized {
    /// Name in tables and in JSON.
    const NAME: &'static str;

    /// A time in the system's own type. The conversion is not measured.
    type SystemDeadline: Copy;

    /// Identifies a timer to cancel.
    type SystemHandle;

    /// Returns an empty queue that will hold about `timers` timers.
    fn new(timers: usize) -> Self;

    fn deadline(&self, nanos: u64) -> Self::SystemDeadline;

    /// Arms a timer.
    fn insert(&mut self, deadline: Self::SystemDeadline, value: u64) -> Self::SystemHandle;

    /// Cancels a timer and returns its value.
    fn remove(&mut self, handle: Self::SystemHandle) -> Option<u64>;

    /// Gives a timer another deadline.
    fn reschedule(&mut self, handle: Self::SystemHandle, deadline: Self::SystemDeadline) -> Self::SystemHandle;

    /// Advances time to `now`, a whole number of milliseconds, and removes what is due.
    fn expire(&mut self, now: u64, sink: impl FnMut(u64));

    /// Releases a handle whose timer may have expired. Not measured.
    fn dispose(&mut self, handle: Self::SystemHandle) {
        drop(handle);
    }
}

/// Returns all systems, Tourbillon's first.
pub(super) fn all() -> Vec<Box<dyn Contestant>> {
    vec![
        of::<tourbillon_queue::Wheel<u64>>(),
        of::<tourbillon_queue::Heap<u64>>(),
        of::<tourbillon_queue::ListTree<u64>>(),
        of::<tourbillon_queue::Rounds<u64>>(),
        of::<nexus::Nexus>(),
        of::<hash_wheel::HashWheel>(),
        of::<delay_queue::Delay>(),
        of::<btree_map::Tree>(),
    ]
}

fn of<S: QueueSystem + 'static>() -> Box<dyn Contestant> {
    Box::new(ContestantOf::<S>(PhantomData))
}

/// Returns the bytes per timer with a `u64` that each of Tourbillon's queues declares.
pub(super) fn bytes_per_timer() -> [(&'static str, usize); 4] {
    use tourbillon_queue::{Heap, ListTree, Rounds, Wheel};
    [
        (Wheel::<u64>::NAME, Wheel::<u64>::BYTES_PER_TIMER),
        (Heap::<u64>::NAME, Heap::<u64>::BYTES_PER_TIMER),
        (ListTree::<u64>::NAME, ListTree::<u64>::BYTES_PER_TIMER),
        (Rounds::<u64>::NAME, Rounds::<u64>::BYTES_PER_TIMER),
    ]
}
