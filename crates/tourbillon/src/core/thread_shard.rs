//! A thread shard is a thread's access to one engine: its shard, and its stock of references to the engine's core.
//!
//! ```text
//!     CURRENT ------------------------+
//!                                     v
//!     THREAD_SHARDS { core A: [ ThreadShard ], core B: [ ThreadShard ], ... }      one table for each thread
//!                                     |
//!                                     +--> core B (a reference), a shard of B, the stock
//! ```
//!
//! A thread has a thread shard for each engine that it has used, found by the address of the engine's core. The *current* one is that of
//! the engine that the thread uses when none is named: the one [entered](crate::Engine::enter) last, or the global one. The thread drops its
//! thread shards when it ends; that of an engine that was shut down it drops when it makes another. The destructors may run code of the
//! user, and code of the user may make thread shards. So no code of the user runs while a thread shard is borrowed: no waker is cloned,
//! woken or dropped inside the closures of this module.
//!
//! # References in bulk
//!
//! Each entry keeps the core alive by a reference. A thread shard takes [`STOCK`] references at a time from the core and gives them to
//! entries, without an atomic operation. An entry that is dropped on a thread where its engine is current puts its reference into that
//! thread's stock; elsewhere it returns it to the core. The core's count is always the number of references in stock or in use, so it
//! cannot reach zero while there is one. A stock keeps little memory: the engine frees its large memory when its last handle is dropped,
//! see [`Core::release`](crate::core::Core::release).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::{NonNull, null};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::clock::Ahead;
use crate::core::{Core, CoreRef};
use crate::shard::{Access, LocalShard, Shard};
use crate::sync::catch_panic::catch_panic;
use crate::sync::fork;
use crate::sync::unmodelled::thread_local;

/// The shortest duration that may start some microseconds late: a four-hundredth of it, or less.
const LONG: Duration = Duration::from_millis(2);

/// The shortest duration that may start [`WINDOWS`] times as late: a three-thousandth of it, or less.
const VERY_LONG: Duration = Duration::from_millis(256);
const WINDOWS: u64 = 16;

/// How many references a thread shard takes from the core at a time.
const STOCK: usize = if cfg!(shuttle) { 2 } else { 1024 };

/// A thread's shard of one engine.
pub(crate) struct ThreadShard {
    core: CoreRef,
    shard: NonNull<Shard>,
    /// The index of the shard in the engine.
    index: usize,
    access: Access,
    /// How many references to the core it has for entries.
    stock: Cell<usize>,
    /// A past time on the engine's clock, which saves readings of the clock.
    seen: Cell<Time>,
    /// Cheap readings of the clock, for long and for very long durations.
    ahead: [Ahead; 2],
    /// How many guards have entered the engine on this thread.
    entered: Cell<usize>,
    /// Whether the thread has found the engine because it made a timer where time is virtual.
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    found: Cell<bool>,
    /// Whether [`make`] is under way for it, which must find it again at the end.
    is_being_made: Cell<bool>,
    /// A closed shard that is in no engine: that of a [temporary](ThreadShard::temporary) thread shard of an inherited engine.
    _own_shard: Option<Pin<Box<Shard>>>,
}

thread_local! {
    /// The current thread shard, in `THREAD_SHARDS`; null if the thread has to look for it.
    static CURRENT: Cell<*const ThreadShard> = const { Cell::new(null()) };
    /// All thread shards of this thread.
    static THREAD_SHARDS: ThreadShards = const { ThreadShards(RefCell::new(ThreadEngines::new())) };
}

/// Clears `CURRENT` before the thread shards are dropped at the end of the thread.
struct ThreadShards(RefCell<ThreadEngines>);

/// The engines that a thread has used and entered.
pub(crate) struct ThreadEngines {
    shards: HashMap<NonNull<Core>, ThreadShardBox, BuildHasherDefault<AddressHasher>>,
    /// The engines that the thread has entered and not left, the latest last.
    entered: Vec<(GuardId, NonNull<Core>)>,
    last_guard: u64,
}

/// Identifies a guard among those of its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GuardId(u64);

/// A hasher for addresses of cores, which have low bits of zero.
#[derive(Default)]
struct AddressHasher(u64);

/// A thread shard at an address that does not change. (A `Box` would do, but moving a box asserts that no other pointer to its content is
/// used.)
pub(crate) struct ThreadShardBox(NonNull<ThreadShard>);

impl ThreadShard {
    fn new(core: CoreRef) -> ThreadShard {
        #[cfg(feature = "test-util")]
        core.add_thread();
        let (index, shard, access) = core.adopt();
        let shard = NonNull::from(shard);
        ThreadShard::at(core, shard, index, access)
    }

    /// Creates a thread shard for one call: on a thread that is ending and has dropped its thread shards, or for an engine that was
    /// inherited from the parent process, of which no lock may be taken.
    fn temporary(core: CoreRef) -> ThreadShard {
        let own_shard = core.is_inherited().then(|| core.closed_shard());
        let shard = NonNull::from(own_shard.as_deref().unwrap_or_else(|| core.any_shard()));
        let mut local = ThreadShard::at(core, shard, 0, Access::Remote);
        local._own_shard = own_shard;
        local
    }

    fn at(core: CoreRef, shard: NonNull<Shard>, index: usize, access: Access) -> ThreadShard {
        let has_driver = !core.driver.is_external();
        let (seen, ahead) = (Cell::new(Time::ZERO), [1, WINDOWS].map(|windows| Ahead::new(windows, has_driver)));
        ThreadShard {
            core,
            shard,
            index,
            access,
            stock: Cell::new(0),
            seen,
            ahead,
            entered: Cell::new(0),
            #[cfg(any(feature = "test-util", feature = "tokio"))]
            found: Cell::new(false),
            is_being_made: Cell::new(false),
            _own_shard: None,
        }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &CoreRef {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn shard(&self) -> LocalShard<'_> {
        // SAFETY: (1) The shard lives as long as `self`: it is one of the core, to which `self` has a reference, or `_own_shard`. (2) With
        // `Access::Owner` this thread is the owner: `Core::adopt` has made it so, under a mutex, and it stays so until the drop of `self`
        // calls `Core::end_ownership`, under the same mutex. `self` never leaves the thread: it is not `Send`.
        unsafe { LocalShard::new(self.shard.as_ref(), self.access) }
    }

    /// Returns the index of its shard in the engine.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline(always)]
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// Returns whether this is the thread shard of a virtual engine that the thread has found by itself, rather than entered.
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    pub(crate) fn is_found(&self) -> bool {
        self.found.get() && self.entered.get() == 0
    }

    /// Returns whether this thread is the owner of `shard`.
    #[inline(always)]
    pub(crate) fn owns(&self, shard: &Shard) -> bool {
        self.shard == NonNull::from(shard) && self.access == Access::Owner
    }

    /// Returns the time on the engine's clock.
    #[inline(always)]
    pub(crate) fn now(&self) -> Time {
        let now = self.core.clock.now();
        if self.core.clock.is_steady() {
            self.seen.set(now);
        }
        now
    }

    /// Returns when a timer is due that starts now and has this duration.
    #[inline(always)]
    pub(crate) fn deadline(&self, duration: Duration) -> Time {
        let now = if duration >= LONG && self.core.clock.is_steady() {
            let [long, very_long] = &self.ahead;
            if duration >= VERY_LONG { very_long.now() } else { long.now() }
        } else {
            self.now()
        };
        now + Span::from(duration)
    }

    /// Returns a past time on the engine's clock.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Time {
        self.seen.get()
    }

    /// Takes a reference to the core from the stock, for an entry.
    #[inline(always)]
    pub(crate) fn take_ref(&self) -> NonNull<Core> {
        if self.stock.get() == 0 {
            self.restock();
        }
        self.stock.set(self.stock.get() - 1);
        self.core.as_ptr()
    }

    /// Puts the reference of an entry into the stock.
    ///
    /// # Safety
    /// The caller has a reference to the same core, and does not use it afterwards.
    #[inline(always)]
    pub(crate) unsafe fn put_ref(&self) {
        self.stock.set(self.stock.get() + 1);
        if self.stock.get() > 2 * STOCK {
            self.unload(STOCK);
        }
    }

    #[cold]
    fn restock(&self) {
        self.core.add_refs(STOCK);
        self.stock.set(STOCK);
    }

    #[cold]
    fn unload(&self, count: usize) {
        self.stock.set(self.stock.get() - count);
        // SAFETY: the references were in the stock, so no entry has them, and the stock is reduced by them. (`self.core` has one more, so
        // the core is not freed here.)
        unsafe { Core::remove_refs(self.core.as_ptr(), count) };
    }
}

impl Drop for ThreadShard {
    fn drop(&mut self) {
        if self.access == Access::Owner && !self.core.is_inherited() {
            self.core.end_ownership(self.index);
        }
        self.unload(self.stock.get());
    }
}

impl ThreadShardBox {
    fn new(local: ThreadShard) -> ThreadShardBox {
        ThreadShardBox(NonNull::from(Box::leak(Box::new(local))))
    }

    fn as_ptr(&self) -> *const ThreadShard {
        self.0.as_ptr()
    }
}

impl Deref for ThreadShardBox {
    type Target = ThreadShard;

    fn deref(&self) -> &ThreadShard {
        // SAFETY: `new` allocated the value, `drop` frees it, and no code has it by `&mut`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ThreadShardBox {
    fn drop(&mut self) {
        // SAFETY: `new` got the pointer from a box, and only this destructor frees it. No pointer to the value is used after this: `CURRENT`
        // does not point to it (`ThreadShards::add` keeps the current one, and the end of the thread clears `CURRENT` first), and references
        // from `current` and `find` are used only in calls during which the thread makes no thread shard and does not end.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Drop for ThreadShards {
    fn drop(&mut self) {
        // From here on the thread has no thread shards: entries that are dropped later return their references to the core.
        let _ = CURRENT.try_with(|current| current.set(null()));
    }
}

/// Returns the current thread shard; `None` if the thread has to look for it first.
#[inline(always)]
pub(crate) fn current<'a>() -> Option<&'a ThreadShard> {
    // A thread-local without a destructor exists until the thread has ended; but not with shuttle.
    #[cfg(not(shuttle))]
    let local = CURRENT.with(Cell::get);
    #[cfg(shuttle)]
    let local = CURRENT.try_with(Cell::get).unwrap_or(null());
    // SAFETY: `CURRENT` is null or points to a value in `THREAD_SHARDS` of this thread. Such a value is dropped by `ThreadShards::add`, which
    // keeps the current one, and at the end of the thread, which first clears `CURRENT`. The callers use the reference for one call of a
    // closure, during which neither can happen: no code of the user runs, and no thread shard is made.
    unsafe { local.as_ref() }
}

/// Calls `f` with the thread shard of the engine that has this core, made if necessary. The caller holds a reference to the core.
#[inline(always)]
pub(crate) fn with<R>(core: NonNull<Core>, f: impl FnOnce(&ThreadShard) -> R) -> R {
    match current() {
        Some(local) if local.core.as_ptr() == core => f(local),
        _ => with_other(core, f),
    }
}

/// Calls `f` with the thread shard that has this shard, if the calling thread is the owner of the shard.
#[inline(always)]
pub(crate) fn with_owner<R>(shard: &Shard, f: impl FnOnce(Option<&ThreadShard>) -> R) -> R {
    match current() {
        Some(local) if local.owns(shard) => f(Some(local)),
        // A thread has one thread shard for each engine: if that one has another shard, this thread is not the owner.
        Some(local) if local.core.as_ptr() == Core::of_shard(shard) => f(None),
        _ => with_other_owner(shard, f),
    }
}

/// Returns the reference of an entry, to the stock of this thread or to the core.
///
/// # Safety
/// The caller has the reference, and does not use it afterwards.
#[inline(always)]
pub(crate) unsafe fn put_ref(core: NonNull<Core>) {
    match current() {
        // SAFETY: the reference is one to this core, and the caller does not use it afterwards: the contract of this function.
        Some(local) if local.core.as_ptr() == core => unsafe { local.put_ref() },
        // SAFETY: the caller has the reference, and does not use it afterwards: the contract of this function.
        _ => unsafe { Core::remove_refs(core, 1) },
    }
}

/// Makes the thread shard of that engine the current one, until the guard [leaves](leave) it. The caller keeps the core until then.
pub(crate) fn enter(core: &CoreRef) -> GuardId {
    let local = find_or_make(core.as_ptr());
    let guard = THREAD_SHARDS.try_with(|shards| {
        let mut engines = shards.0.borrow_mut();
        engines.last_guard += 1;
        let guard = GuardId(engines.last_guard);
        engines.entered.push((guard, core.as_ptr()));
        guard
    });
    if let Some(local) = local {
        local.entered.set(local.entered.get() + 1);
    }
    CURRENT.with(|current| current.set(local.map_or(null(), std::ptr::from_ref)));
    // The thread is ending, and has no table to record the guard in.
    guard.unwrap_or(GuardId(0))
}

/// Leaves an engine that was [entered](enter). Guards may leave in any order: the current engine is the last one entered and not left.
pub(crate) fn leave(guard: GuardId) {
    let _ = THREAD_SHARDS.try_with(|shards| {
        let mut engines = shards.0.borrow_mut();
        let Some(place) = engines.entered.iter().rposition(|(entered, _)| *entered == guard) else { return };
        let (_, core) = engines.entered.remove(place);
        if let Some(local) = engines.shards.get(&core) {
            // In the child of a fork, `enter` may have found no thread shard to count the guard in.
            local.entered.set(local.entered.get().saturating_sub(1));
        }
        if place == engines.entered.len() {
            let latest = engines.entered.last().and_then(|(_, core)| engines.shards.get(core));
            let latest = latest.filter(|local| !local.core.is_inherited());
            CURRENT.with(|current| current.set(latest.map_or(null(), ThreadShardBox::as_ptr)));
        }
    });
}

/// Forgets the current thread shard. In the child of a fork the thread has to look for it again.
pub(crate) fn forget_current() {
    let _ = CURRENT.try_with(|current| current.set(null()));
}

/// Makes one of this thread's thread shards the current one.
pub(crate) fn set_current(local: &ThreadShard) {
    CURRENT.with(|current| current.set(local));
}

/// Makes one of this thread's shards the current one because the thread makes a timer where time is virtual.
#[cfg(any(feature = "test-util", feature = "tokio"))]
pub(crate) fn set_found(local: &ThreadShard) {
    local.found.set(true);
    set_current(local);
}

/// Returns the core of the engine that this thread has entered last and not left, if there is one.
pub(crate) fn entered_core() -> Option<NonNull<Core>> {
    THREAD_SHARDS.try_with(|shards| shards.0.borrow().entered.last().map(|(_, core)| *core)).ok().flatten()
}

/// Calls `f` with the core of the current engine, if the thread has entered it.
#[cfg(feature = "test-util")]
pub(crate) fn with_entered<R>(f: impl FnOnce(&CoreRef) -> Option<R>) -> Option<R> {
    current().filter(|local| local.entered.get() > 0).and_then(|local| f(local.core()))
}

/// Exchanges all thread shards of this thread, and the current one, for those of a simulated thread.
///
/// # Safety
/// `current` is null or points to a value in `shards`, and no closure of this module is under way on this thread.
#[cfg(feature = "test-util")]
pub(crate) unsafe fn exchange(shards: &mut ThreadEngines, current: &mut *const ThreadShard) {
    THREAD_SHARDS.with(|engines| std::mem::swap(&mut *engines.0.borrow_mut(), shards));
    *current = CURRENT.replace(*current);
}

/// Returns whether the current engine was entered, rather than being the default.
#[cfg(any(feature = "test-util", feature = "tokio"))]
pub(crate) fn has_entered() -> bool {
    current().is_some_and(|local| local.entered.get() > 0)
}

/// Returns whether timers are pending that this thread has armed in its current engine, unless that is a virtual one that was not entered.
/// (A shard that the thread does not own is not looked at.)
#[cfg(any(feature = "test-util", feature = "tokio"))]
pub(crate) fn has_pending() -> bool {
    current().is_some_and(|local| !local.is_found() && local.access == Access::Owner && local.shard().has_pending())
}

#[cold]
#[inline(never)]
pub(crate) fn with_other<R>(core: NonNull<Core>, f: impl FnOnce(&ThreadShard) -> R) -> R {
    match find_or_make(core) {
        Some(local) => f(local),
        None => {
            // SAFETY: the caller of `with` holds a reference to the core.
            let core = unsafe { CoreRef::another(core) };
            f(&ThreadShard::temporary(core))
        }
    }
}

#[cold]
#[inline(never)]
fn with_other_owner<R>(shard: &Shard, f: impl FnOnce(Option<&ThreadShard>) -> R) -> R {
    let core = Core::of_shard(shard);
    f(find(core).filter(|local| !local.core.is_inherited() && local.owns(shard)))
}

/// Returns this thread's thread shard of that engine, if it has one.
///
/// Only functions of this module and of [`current`](crate::current) use the reference, and while they have it they end no thread, make no
/// other thread shard, and run no code of the user.
pub(crate) fn find<'a>(core: NonNull<Core>) -> Option<&'a ThreadShard> {
    let found = THREAD_SHARDS
        .try_with(|shards| shards.0.borrow().shards.get(&core).map(ThreadShardBox::as_ptr))
        .ok()
        .flatten()?;
    // SAFETY: the value was found in `THREAD_SHARDS` just now. It is dropped when the thread ends, or when the thread makes another after the
    // engine was shut down: neither happens while the caller has the reference, see above.
    Some(unsafe { &*found })
}

/// Returns this thread's thread shard of that engine, made if necessary; `None` if the thread is ending, or the engine is one of the parent
/// process. The caller holds a reference to the core, and uses the result as that of [`find`].
pub(crate) fn find_or_make<'a>(core: NonNull<Core>) -> Option<&'a ThreadShard> {
    if let Some(local) = find(core) {
        return (!local.core.is_inherited()).then_some(local);
    }
    // SAFETY: the caller holds a reference to the core.
    let core = unsafe { CoreRef::another(core) };
    if core.is_inherited() {
        return None;
    }
    make(core)
}

/// Makes this thread's thread shard of that engine; `None` if the thread is ending.
#[cold]
fn make<'a>(core: CoreRef) -> Option<&'a ThreadShard> {
    let pointer = core.as_ptr();
    THREAD_SHARDS
        .try_with(|shards| {
            fork::forget_in_child(forget_current);
            let local = ThreadShardBox::new(ThreadShard::new(core));
            // Dropping the removed ones may run code of the user, which may make thread shards too: those must not remove this one.
            local.is_being_made.set(true);
            let removed = shards.add(local);
            let _ignored = catch_panic(|| drop(removed));
        })
        .ok()?;
    let made = find(pointer)?;
    made.is_being_made.set(false);
    Some(made)
}

impl ThreadShards {
    /// Adds a thread shard, and removes those of engines that were shut down and that are not in use. The caller drops the removed ones,
    /// outside of the borrow: with the last reference to an engine, values of the user are dropped.
    #[must_use]
    fn add(&self, local: ThreadShardBox) -> Vec<ThreadShardBox> {
        let current = CURRENT.with(Cell::get);
        let unused = |_: &NonNull<Core>, local: &mut ThreadShardBox| {
            let in_use = local.entered.get() > 0 || local.is_being_made.get() || local.as_ptr() == current;
            local.core.is_closed() && !in_use
        };
        let shards = &mut self.0.borrow_mut().shards;
        let removed = if shards.len() < shards.capacity() && shards.len() > SWEEP_LIMIT {
            Vec::new()
        } else {
            shards.extract_if(unused).map(|(_, removed)| removed).collect()
        };
        shards.insert(local.core.as_ptr(), local);
        removed
    }
}

/// A thread that has used no more engines than this looks for closed ones whenever it makes a thread shard. A thread that has used more does
/// so only when its table is full, so that a new thread shard costs the same however many there are.
const SWEEP_LIMIT: usize = 16;

impl ThreadEngines {
    pub(crate) const fn new() -> ThreadEngines {
        ThreadEngines { shards: HashMap::with_hasher(BuildHasherDefault::new()), entered: Vec::new(), last_guard: 0 }
    }
}

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, word: usize) {
        // The hash table takes the place from the low bits and a tag from the high ones. An odd factor spreads an address over both.
        self.0 = (self.0.rotate_left(5) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Clock, Driver, Engine};

    /// Uses an engine when it is dropped.
    struct UsesEngineOnDrop(Engine);

    impl Drop for UsesEngineOnDrop {
        fn drop(&mut self) {
            drop(self.0.sleep(Duration::ZERO));
        }
    }

    fn manual(driver: Driver) -> Engine {
        Engine::builder().clock(Clock::manual()).driver(driver).build().unwrap()
    }

    #[test]
    fn d11_a_thread_shard_that_was_just_made_stays_while_code_of_the_user_drops_closed_ones() {
        let user = UsesEngineOnDrop(manual(Driver::external()));
        let dropped = manual(Driver::external_with(move || _ = &user));
        drop(dropped.sleep(Duration::ZERO));
        // Now this thread's thread shard has the only reference to the engine.
        drop(dropped);
        let closed = manual(Driver::external());
        closed.shutdown();
        let made = find_or_make(closed.core().as_ptr()).unwrap();
        let is_there =
            THREAD_SHARDS.with(|shards| shards.0.borrow().shards.values().any(|local| local.as_ptr() == made));
        assert!(is_there, "it was removed together with the closed ones");
    }
}
