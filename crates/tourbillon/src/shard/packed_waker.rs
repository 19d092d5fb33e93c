//! A waker in eleven bytes instead of sixteen: its data word, and how far its vtable is from a function pointer of this crate.
//!
//! Vtables of wakers are constants of the program. The linker puts such constants next to each other, so the distance has few bits. A
//! vtable that is farther away, for example because a program has built it in memory of its own, or because it is in another dynamic
//! library, is rare: then the waker is put into a box, and its data word is the address of the box. Such a waker costs an allocation whenever
//! its timer is armed or polled.

use std::mem::ManuallyDrop;
use std::task::{RawWakerVTable, Waker};

/// The distance of a vtable from [`ANCHOR`] in the upper 24 bits of a word, of which the lower eight are zero. A distance is a multiple of
/// the alignment of vtables, so the word has the distance, shifted left by [`SHIFT`] bits. A distance of zero stands for a waker in a box.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct VtableDistance(u32);

/// The pointer from which distances are measured. It is a function pointer because the linker puts vtables, which hold function pointers,
/// in the same section.
static ANCHOR: fn() = anchor;

fn anchor() {}

/// By how many bits a distance is shifted, so that its lowest bit that can be set is bit eight.
const SHIFT: u32 = u8::BITS - align_of::<RawWakerVTable>().trailing_zeros();

const _: () = assert!(align_of::<fn()>() == align_of::<RawWakerVTable>());

impl VtableDistance {
    /// Of a waker in a box: no vtable is where the anchor is.
    const BOXED: VtableDistance = VtableDistance(0);

    /// Returns the distance with `low` in the lower eight bits.
    #[inline(always)]
    pub(crate) fn with_low(self, low: u8) -> u32 {
        self.0 | u32::from(low)
    }

    /// Returns the distance in a word, whose lower eight bits are ignored.
    #[inline(always)]
    pub(crate) fn of_word(word: u32) -> VtableDistance {
        VtableDistance(word & !u32::from(u8::MAX))
    }

    /// Returns the distance of a vtable; `None` if it is too far away.
    #[inline(always)]
    pub(crate) fn of(vtable: &'static RawWakerVTable) -> Option<VtableDistance> {
        VtableDistance::of_address(std::ptr::from_ref(vtable).expose_provenance())
    }

    #[inline(always)]
    fn of_address(vtable: usize) -> Option<VtableDistance> {
        let distance = VtableDistance((vtable.wrapping_sub((&raw const ANCHOR).addr()) as u32) << SHIFT);
        (distance.address() == vtable).then_some(distance)
    }

    #[inline(always)]
    fn address(self) -> usize {
        let distance = (self.0 as i32) >> SHIFT;
        (&raw const ANCHOR).addr().wrapping_add_signed(distance as isize)
    }
}

/// Returns the data word of a packed waker, and the distance of its vtable.
#[inline(always)]
pub(crate) fn pack(waker: Waker) -> (*const (), VtableDistance) {
    match VtableDistance::of(waker.vtable()) {
        Some(distance) => (ManuallyDrop::new(waker).data(), distance),
        None => pack_in_box(waker),
    }
}

#[cold]
#[inline(never)]
fn pack_in_box(waker: Waker) -> (*const (), VtableDistance) {
    (Box::into_raw(Box::new(waker)).cast_const().cast(), VtableDistance::BOXED)
}

/// Returns the waker that was packed.
///
/// # Safety
/// [`pack`] has returned the two values, and this is the only call with them.
#[inline(always)]
pub(crate) unsafe fn unpack(data: *const (), distance: VtableDistance) -> Waker {
    if distance == VtableDistance::BOXED {
        // SAFETY: the contract is the same.
        return unsafe { unpack_from_box(data) };
    }
    let vtable = std::ptr::with_exposed_provenance::<RawWakerVTable>(distance.address());
    // SAFETY: `pack` has computed the distance from the address of a vtable that lives for ever, and has exposed its provenance. The words
    // are those of a waker that `pack` has forgotten, and no other call has taken it: the contract.
    unsafe { Waker::new(data, &*vtable) }
}

/// # Safety
/// As [`unpack`], with the distance [`BOXED`](VtableDistance::BOXED).
#[cold]
#[inline(never)]
unsafe fn unpack_from_box(data: *const ()) -> Waker {
    // SAFETY: `pack_in_box` has made the address from a box of a waker, and this is the only call with it.
    *unsafe { Box::from_raw(data.cast_mut().cast::<Waker>()) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_waker_of_the_program_is_packed_without_a_box_and_unpacked_as_it_was() {
        let nothing = Arc::new(Nothing);
        let waker = Waker::from(Arc::clone(&nothing));
        let (data, distance) = pack(waker.clone());
        assert!(distance != VtableDistance::BOXED && data == waker.data());
        assert!(distance == VtableDistance::of_word(distance.with_low(0xff)));
        // SAFETY: the values come from `pack`, and are used once.
        assert!(unsafe { unpack(data, distance) }.will_wake(&waker));
        drop(waker);
        assert_eq!(Arc::strong_count(&nothing), 1);
    }

    #[test]
    fn a_waker_in_a_box_is_unpacked_as_it_was() {
        let nothing = Arc::new(Nothing);
        let waker = Waker::from(Arc::clone(&nothing));
        let (data, distance) = pack_in_box(waker.clone());
        assert!(distance == VtableDistance::BOXED);
        // SAFETY: the values come from `pack_in_box`, and are used once.
        assert!(unsafe { unpack(data, distance) }.will_wake(&waker));
        drop(waker);
        assert_eq!(Arc::strong_count(&nothing), 1);
    }

    #[test]
    fn a_vtable_has_a_distance_if_and_only_if_24_bits_can_hold_it() {
        let anchor = (&raw const ANCHOR).addr();
        let unit = align_of::<RawWakerVTable>();
        let half = unit << 23;
        for (address, is_near) in [
            (anchor.wrapping_add(unit), true),
            (anchor.wrapping_sub(unit), true),
            (anchor.wrapping_add(half - unit), true),
            (anchor.wrapping_sub(half), true),
            (anchor.wrapping_add(half), false),
            (anchor.wrapping_sub(half + unit), false),
            (anchor.wrapping_add(2 * half), false),
            (anchor ^ 1 << (usize::BITS - 1), false),
        ] {
            let distance = VtableDistance::of_address(address);
            assert_eq!(distance.map(VtableDistance::address), is_near.then_some(address));
            assert!(distance.is_none_or(|distance| distance.0 % 256 == 0 && distance != VtableDistance::BOXED));
        }
    }
}
