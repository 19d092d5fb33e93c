//! The counter of x86-64 processors, where Linux derives its clock from it.

use core::arch::x86_64::{__cpuid, _rdtsc};
use std::fs::read_to_string;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the kernel's clock is derived from the counter, as far as the process knows. A "no" is final.
static IS_CLOCK: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

#[inline(always)]
pub(super) fn read() -> u64 {
    // SAFETY: the instruction touches no memory, and every x86-64 processor has it.
    unsafe { _rdtsc() }
}

#[inline(always)]
pub(super) fn is_clock() -> bool {
    match IS_CLOCK.load(Ordering::Relaxed) {
        UNKNOWN => check_again(),
        known => known == YES,
    }
}

/// Asks the processor and the kernel whether the kernel's clock is derived from the counter.
#[cold]
pub(super) fn check_again() -> bool {
    let now = if is_invariant() && is_kernels_source() { YES } else { NO };
    IS_CLOCK.fetch_max(now, Ordering::Relaxed).max(now) == YES
}

/// Returns whether the processor says that the counter neither changes its rate nor stops while a core idles.
#[allow(unused_unsafe, reason = "`__cpuid` is a safe function in newer compilers only")]
fn is_invariant() -> bool {
    const HIGHEST_LEAF: u32 = 0x8000_0000;
    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    // SAFETY: every x86-64 processor has the instruction, and the second leaf is read only if the first says that it is there.
    unsafe { __cpuid(HIGHEST_LEAF).eax >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT != 0 }
}

/// Returns whether the kernel derives its clock from the counter. It does so only if the counter is steady and the same on all cores.
fn is_kernels_source() -> bool {
    let source = read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.is_ok_and(|name| name.trim() == "tsc")
}
