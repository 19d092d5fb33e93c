//! `hierarchical_hash_wheel_timer`: four wheels of 256 slots and ticks of a millisecond, in its cancellable form; the order
//! within a tick is unspecified. A cancelled timer leaves an entry in its slot until the slot is due.

use std::rc::Rc;
use std::time::Duration;

use hierarchical_hash_wheel_timer::IdOnlyTimerEntry;
use hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow;

use super::super::cases::STEP;
use super::QueueSystem;

type BenchEntry = IdOnlyTimerEntry<u64>;

pub(super) struct HashWheel {
    wheel: QuadWheelWithOverflow<BenchEntry>,
    now: u64,
    /// The wheel needs unique ids; the values of the cases are not unique.
    next_id: u64,
}

impl QueueSystem for HashWheel {
    const NAME: &'static str = "hash-wheel";
    type SystemDeadline = u64;
    type SystemHandle = u64;

    fn new(_: usize) -> HashWheel {
        HashWheel { wheel: QuadWheelWithOverflow::new(), now: 0, next_id: 0 }
    }

    fn deadline(&self, nanos: u64) -> u64 {
        nanos
    }

    #[inline(always)]
    fn insert(&mut self, deadline: u64, _: u64) -> u64 {
        // It takes delays of at least a tick. Rounding up keeps timers from being early.
        let delay = Duration::from_millis(deadline.saturating_sub(self.now).div_ceil(STEP).max(1));
        let id = self.next_id;
        self.next_id += 1;
        let inserted = self.wheel.insert_ref_with_delay(Rc::new(BenchEntry::new(id, delay)), delay);
        debug_assert!(inserted.is_ok());
        id
    }

    #[inline(always)]
    fn remove(&mut self, id: u64) -> Option<u64> {
        self.wheel.cancel(&id).ok().map(|()| id)
    }

    #[inline(always)]
    fn reschedule(&mut self, id: u64, deadline: u64) -> u64 {
        self.remove(id);
        self.insert(deadline, id)
    }

    #[inline(always)]
    fn expire(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while self.now < now {
            self.now += STEP;
            for entry in self.wheel.tick() {
                use hierarchical_hash_wheel_timer::wheels::cancellable::CancellableTimerEntry;
                sink(*entry.id());
            }
        }
    }
}
