//! An allocator that counts: what one thread asks for, and the bytes that are in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has asked for, less those that it has given back. It can be below zero.
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: every call is passed on to the system's allocator as it came; what is counted beside it is plain cells of the thread,
// which neither allocate nor have a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        IN_USE.set(IN_USE.get() + layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get() - layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often this thread asked for memory so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// The bytes that this thread has taken and not given back.
pub(crate) fn in_use() -> i64 {
    IN_USE.get()
}
