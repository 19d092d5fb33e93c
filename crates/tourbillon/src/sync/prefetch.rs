//! Hints to the processor about memory that the program uses soon. A hint with a wrong address costs time and does no harm.

/// Asks for a copy of the cache line of `address`.
#[inline(always)]
pub(crate) fn to_read(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor writes memory in the sense of the language, and no address makes it fail.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the only copy of the cache line of `address`. A read and then a write of a line that another processor has written take two
/// messages to that processor; with this hint before them they take one.
#[inline(always)]
pub(crate) fn to_write(address: usize) {
    // The compiler has no intrinsic for it without a target feature, but every processor of this architecture takes the instruction.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `to_read`.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
