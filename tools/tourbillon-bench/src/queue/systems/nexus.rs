//! `nexus-timer`: a wheel with ticks of a millisecond, in its default configuration; the order within a tick is unspecified.

use std::time::{Duration, Instant};

use nexus_timer::{TimerHandle, Wheel};

use super::QueueSystem;

pub(super) struct Nexus {
    wheel: Wheel<u64>,
    start: Instant,
    expired: Vec<u64>,
}

/// Least number of entries in a chunk of its slab, as in its examples.
const CHUNK: usize = 4096;

impl QueueSystem for Nexus {
    const NAME: &'static str = "nexus-timer";
    type SystemDeadline = Instant;
    type SystemHandle = TimerHandle<u64>;

    fn new(timers: usize) -> Nexus {
        let start = Instant::now();
        // Its slab searches its chunks to free a timer, so one chunk holds all.
        let chunk = (timers + 1).next_power_of_two().max(CHUNK);
        Nexus { wheel: Wheel::unbounded(chunk, start), start, expired: Vec::new() }
    }

    fn deadline(&self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }

    #[inline(always)]
    fn insert(&mut self, deadline: Instant, value: u64) -> TimerHandle<u64> {
        self.wheel.schedule(deadline, value)
    }

    #[inline(always)]
    fn remove(&mut self, handle: TimerHandle<u64>) -> Option<u64> {
        self.wheel.cancel(handle)
    }

    #[inline(always)]
    fn reschedule(&mut self, handle: TimerHandle<u64>, deadline: Instant) -> TimerHandle<u64> {
        self.wheel.reschedule(handle, deadline)
    }

    #[inline(always)]
    fn expire(&mut self, now: u64, sink: impl FnMut(u64)) {
        // Its documentation recommends this poll for a steady rhythm.
        self.wheel.poll_and_rebalance(self.start + Duration::from_nanos(now), &mut self.expired);
        self.expired.drain(..).for_each(sink);
    }

    fn dispose(&mut self, handle: TimerHandle<u64>) {
        self.wheel.free(handle);
    }
}
