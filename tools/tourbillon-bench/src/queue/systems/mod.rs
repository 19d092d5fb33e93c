//! The systems of the scenario `queue`, one file each.

mod btree_map;
mod delay_queue;
mod hash_wheel;
mod nexus;
mod tourbillon;

use std::marker::PhantomData;

use super::cases::{Contestant, ContestantOf};

/// A timer queue, as all systems can be used. Times are nanoseconds since the queue was made.
pub(super) trait QueueSystem: Sized {
    /// As in the tables and in JSON.
    const NAME: &'static str;

    /// A time in the system's own terms. Converting to it is not measured.
    type Deadline: Copy;

    /// What a timer is cancelled by.
    type Handle;

    /// An empty queue that will hold about so many timers.
    fn new(timers: usize) -> Self;

    fn deadline(&self, nanos: u64) -> Self::Deadline;

    /// Arms a timer.
    fn insert(&mut self, deadline: Self::Deadline, value: u64) -> Self::Handle;

    /// Cancels a timer and returns its value.
    fn remove(&mut self, handle: Self::Handle) -> Option<u64>;

    /// Gives a timer another deadline.
    fn reschedule(&mut self, handle: Self::Handle, deadline: Self::Deadline) -> Self::Handle;

    /// Moves time on to `now`, a whole number of milliseconds, and takes out what is due.
    fn expire(&mut self, now: u64, sink: impl FnMut(u64));

    /// Lets go of a handle whose timer may have expired. Not measured.
    fn dispose(&mut self, handle: Self::Handle) {
        drop(handle);
    }
}

/// All systems, ours first.
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

/// Bytes that a timer with a `u64` takes in each of our queues, by their own account.
pub(super) fn bytes_per_timer() -> [(&'static str, usize); 4] {
    use tourbillon_queue::{Heap, ListTree, Rounds, Wheel};
    [
        (Wheel::<u64>::NAME, Wheel::<u64>::BYTES_PER_TIMER),
        (Heap::<u64>::NAME, Heap::<u64>::BYTES_PER_TIMER),
        (ListTree::<u64>::NAME, ListTree::<u64>::BYTES_PER_TIMER),
        (Rounds::<u64>::NAME, Rounds::<u64>::BYTES_PER_TIMER),
    ]
}
