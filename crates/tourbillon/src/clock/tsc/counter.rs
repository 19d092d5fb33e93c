//! The time stamp counter of the processor, where the kernel's clock is derived from it.

#[cfg(not(all(tourbillon_tsc, not(any(miri, shuttle)))))]
mod none;
#[cfg(all(tourbillon_tsc, not(any(miri, shuttle))))]
mod x86_64;

use tourbillon_queue::Time;

#[cfg(not(all(tourbillon_tsc, not(any(miri, shuttle)))))]
use self::none as tsc;
#[cfg(all(tourbillon_tsc, not(any(miri, shuttle))))]
use self::x86_64 as tsc;
use super::CounterSource;

/// The processor's time stamp counter and the monotonic clock.
pub(crate) struct ProcessorCounter;

impl CounterSource for ProcessorCounter {
    #[inline(always)]
    fn counter(&self) -> u64 {
        tsc::read()
    }

    #[inline(always)]
    fn clock(&self) -> Time {
        crate::clock::monotonic()
    }

    #[inline(always)]
    fn is_clock(&self) -> bool {
        tsc::is_clock()
    }

    fn check_again(&self) {
        tsc::check_again();
    }
}
