//! Where a thread is at home: its shard of an engine, and its stock of references to that engine's core.
//!
//! A thread has a home in each engine that it has used, found by the address of the engine's core; the *current* one is that of the
//! engine that it uses when none is named: the one [entered](crate::Engine::enter) last, or the global one. All of it goes when the
//! thread ends; and a home in an engine that has been shut down goes when another is made. So nothing of the user's may run while a home
//! is borrowed: no waker is cloned, woken or dropped inside the closures of this module.
//!
//! # References in bulk
//!
//! Each entry keeps the core alive by a reference. A home takes [`STOCK`] at a time from the core and gives them to
//! entries without anything shared; an entry that is dropped at home puts its reference back into the stock. Entries that are
//! dropped elsewhere give it to that thread's stock, or to the core. At every moment the core's count is the number
//! of references that are in stock or in use, so it cannot reach zero while any is. A stock keeps little: what is large in a core is
//! given back when the last handle of its engine is dropped, see [`Core::release`](crate::core::Core::release).

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
use crate::sync::aside::thread_local;
use crate::sync::catch_panic::catch_panic;
use crate::sync::fork;

/// A duration that may start some microseconds late: a four-hundredth of it, or less.
const LONG: Duration = Duration::from_millis(2);

/// A duration that may start so many times as late: a three-thousandth of it, or less.
const VERY_LONG: Duration = Duration::from_millis(256);
const WINDOWS: u64 = 16;

/// So many references are taken from the core at a time.
const STOCK: usize = if cfg!(shuttle) { 2 } else { 1024 };

pub(crate) struct ThreadShard {
    core: CoreRef,
    shard: NonNull<Shard>,
    index: usize,
    access: Access,
    stock: Cell<usize>,
    /// A time that has been, on the engine's clock. Saves reading it.
    seen: Cell<Time>,
    /// For durations that are long, and for those that are very long.
    ahead: [Ahead; 2],
    /// How many guards have entered it.
    entered: Cell<usize>,
    /// Whether the call that has made it will use it.
    awaited: Cell<bool>,
    /// The shard, where that is no engine's: of a [passing](ThreadShard::passing) home in an inherited engine.
    _own_shard: Option<Pin<Box<Shard>>>,
}

thread_local! {
    /// The current home. It points into `HOMES`, or is null: then it is to be looked for.
    static CURRENT: Cell<*const ThreadShard> = const { Cell::new(null()) };
    /// All homes of this thread.
    static HOMES: ThreadShards = const { ThreadShards(RefCell::new(ThreadEngines::new())) };
}

struct ThreadShards(RefCell<ThreadEngines>);

/// What a thread knows of engines.
pub(crate) struct ThreadEngines {
    shards: HashMap<NonNull<Core>, ThreadShardBox, BuildHasherDefault<AddressHasher>>,
    /// The engines that were entered and not left, the latest last.
    entered: Vec<(GuardId, NonNull<Core>)>,
    last_guard: u64,
}

/// Names a guard among those of its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GuardId(u64);

/// For addresses of cores, whose low bits are zero.
#[derive(Default)]
struct AddressHasher(u64);

/// A home, which does not move when this does. (It is what a box is, but to move a box is to say that nobody else points into it.)
pub(crate) struct ThreadShardBox(NonNull<ThreadShard>);

type Gone = Vec<ThreadShardBox>;

impl ThreadShard {
    fn new(core: CoreRef) -> ThreadShard {
        #[cfg(feature = "test-util")]
        core.add_thread();
        let (index, shard, access) = core.adopt();
        let shard = NonNull::from(shard);
        ThreadShard::at(core, shard, index, access)
    }

    /// For one call: on a thread that is ending and has no homes any more, or in an engine that was inherited from the parent process,
    /// whose locks are not to be touched.
    fn passing(core: CoreRef) -> ThreadShard {
        let own_shard = core.is_inherited().then(|| core.closed_shard());
        let shard = NonNull::from(own_shard.as_deref().unwrap_or_else(|| core.any_shard()));
        let mut local = ThreadShard::at(core, shard, 0, Access::Remote);
        local._own_shard = own_shard;
        local
    }

    fn at(core: CoreRef, shard: NonNull<Shard>, index: usize, access: Access) -> ThreadShard {
        let has_driver = !core.driver.is_external();
        let (seen, ahead) = (Cell::new(Time::ZERO), [1, WINDOWS].map(|windows| Ahead::new(windows, has_driver)));
        let (stock, entered, awaited) = (Cell::new(0), Cell::new(0), Cell::new(false));
        ThreadShard { core, shard, index, access, stock, seen, ahead, entered, awaited, _own_shard: None }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &CoreRef {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn shard(&self) -> LocalShard<'_> {
        // SAFETY: the core keeps its shards, and this value the shard of its own. The core has made this thread the owner if it is one
        // (`Core::adopt`), and it is the owner until this value goes (`Core::abandon`), which does not leave the thread.
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

    /// Whether it is current because the thread has made timers where time is virtual, rather than because it was entered.
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    pub(crate) fn is_found(&self) -> bool {
        self.core.is_virtual && self.entered.get() == 0
    }

    /// Whether this thread is the owner of that shard.
    #[inline(always)]
    pub(crate) fn owns(&self, shard: &Shard) -> bool {
        self.shard == NonNull::from(shard) && self.access == Access::Owner
    }

    /// Reads the clock.
    #[inline(always)]
    pub(crate) fn now(&self) -> Time {
        let now = self.core.clock.now();
        if self.core.clock.is_steady() {
            self.seen.set(now);
        }
        now
    }

    /// When a timer of this duration is due that starts now.
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

    /// A time that has been.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Time {
        self.seen.get()
    }

    /// A reference to the core, for an entry.
    #[inline(always)]
    pub(crate) fn take_ref(&self) -> NonNull<Core> {
        if self.stock.get() == 0 {
            self.restock();
        }
        self.stock.set(self.stock.get() - 1);
        self.core.as_ptr()
    }

    /// Takes back a reference from an entry.
    #[inline(always)]
    fn put_ref(&self) {
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
        // SAFETY: they come from the stock, which is ours. Besides, `core` holds one more.
        unsafe { Core::remove_refs(self.core.as_ptr(), count) };
    }
}

impl Drop for ThreadShard {
    fn drop(&mut self) {
        if self.access == Access::Owner && !self.core.is_inherited() {
            self.core.abandon(self.index);
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
        // SAFETY: it is there until `drop`, and nobody has it by `&mut`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ThreadShardBox {
    fn drop(&mut self) {
        // SAFETY: it came from a box, in `new`, and goes once. Nobody points to it any more, or uses what points to it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Drop for ThreadShards {
    fn drop(&mut self) {
        // From here on the thread has no home; entries that go later find none.
        let _ = CURRENT.try_with(|current| current.set(null()));
    }
}

/// The current home, if it has been made and test time is not in play.
#[inline(always)]
pub(crate) fn current<'a>() -> Option<&'a ThreadShard> {
    // What has no destructor stays until the thread has ended; but not with shuttle.
    #[cfg(not(shuttle))]
    let local = CURRENT.with(Cell::get);
    #[cfg(shuttle)]
    let local = CURRENT.try_with(Cell::get).unwrap_or(null());
    // SAFETY: it points to a home in `HOMES` of this thread, and is changed before that goes. The reference does not
    // leave the calls below, which do not end the thread and do not remove the current home.
    unsafe { local.as_ref() }
}

/// With the home in the engine that has this core, to which the caller holds a reference.
#[inline(always)]
pub(crate) fn with<R>(core: NonNull<Core>, f: impl FnOnce(&ThreadShard) -> R) -> R {
    match current() {
        Some(local) if local.core.as_ptr() == core => f(local),
        _ => with_other(core, f),
    }
}

/// With the home that owns this shard, if it is this thread's.
#[inline(always)]
pub(crate) fn with_owner<R>(shard: &Shard, f: impl FnOnce(Option<&ThreadShard>) -> R) -> R {
    match current() {
        Some(local) if local.owns(shard) => f(Some(local)),
        _ => with_other_owner(shard, f),
    }
}

/// Takes back an entry's reference, wherever it is dropped.
///
/// # Safety
/// It is the caller's to give, and it does not use it afterwards.
#[inline(always)]
pub(crate) unsafe fn put_ref(core: NonNull<Core>) {
    match current() {
        Some(local) if local.core.as_ptr() == core => local.put_ref(),
        // SAFETY: the caller's contract.
        _ => unsafe { Core::remove_refs(core, 1) },
    }
}

/// Makes the home in that engine the current one, until the guard [leaves](leave) it. The caller keeps the core until then.
pub(crate) fn enter(core: &CoreRef) -> GuardId {
    let local = find_or_make(core.as_ptr());
    let guard = HOMES.try_with(|shards| {
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
    // A thread that is ending has nothing to leave.
    guard.unwrap_or(GuardId(0))
}

/// Ends what [`enter`] has begun. Guards may leave in any order: the latest of those that are left has the current home.
pub(crate) fn leave(guard: GuardId) {
    let _ = HOMES.try_with(|shards| {
        let mut engines = shards.0.borrow_mut();
        let Some(place) = engines.entered.iter().rposition(|(entered, _)| *entered == guard) else { return };
        let (_, core) = engines.entered.remove(place);
        if let Some(local) = engines.shards.get(&core) {
            // In the child of a fork it may not have been counted: see `enter`.
            local.entered.set(local.entered.get().saturating_sub(1));
        }
        if place == engines.entered.len() {
            let latest = engines.entered.last().and_then(|(_, core)| engines.shards.get(core));
            let latest = latest.filter(|local| !local.core.is_inherited());
            CURRENT.with(|current| current.set(latest.map_or(null(), ThreadShardBox::as_ptr)));
        }
    });
}

/// In the child of a fork: every shard of this thread is to be looked for anew.
pub(crate) fn forget_current() {
    let _ = CURRENT.try_with(|current| current.set(null()));
}

/// Makes one of this thread's shards the current one.
pub(crate) fn set_current(local: &ThreadShard) {
    CURRENT.with(|current| current.set(local));
}

/// The core of the engine that this thread has entered last and not left, if there is one.
pub(crate) fn entered_core() -> Option<NonNull<Core>> {
    HOMES.try_with(|shards| shards.0.borrow().entered.last().map(|(_, core)| *core)).ok().flatten()
}

/// Whether the current shard is that of an engine that was entered.
#[cfg(feature = "test-util")]
pub(crate) fn with_entered<R>(f: impl FnOnce(&CoreRef) -> Option<R>) -> Option<R> {
    current().filter(|local| local.entered.get() > 0).and_then(|local| f(local.core()))
}

/// Exchanges all homes of this thread, and the current one, for those of a simulated thread.
///
/// # Safety
/// `current` is null or points into `homes`, and nothing is inside the closures of this module.
#[cfg(feature = "test-util")]
pub(crate) unsafe fn exchange(shards: &mut ThreadEngines, current: &mut *const ThreadShard) {
    HOMES.with(|engines| std::mem::swap(&mut *engines.0.borrow_mut(), shards));
    *current = CURRENT.replace(*current);
}

/// Whether the current home was entered, rather than being the default.
#[cfg(any(feature = "test-util", feature = "tokio"))]
pub(crate) fn has_entered() -> bool {
    current().is_some_and(|local| local.entered.get() > 0)
}

/// Whether timers are pending that this thread has armed in its default engine. (Those in a shard that it shares are not looked at.)
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
            // SAFETY: the caller holds a reference.
            let core = unsafe { CoreRef::another(core) };
            f(&ThreadShard::passing(core))
        }
    }
}

#[cold]
#[inline(never)]
fn with_other_owner<R>(shard: &Shard, f: impl FnOnce(Option<&ThreadShard>) -> R) -> R {
    let core = Core::of_shard(shard);
    f(find(core).filter(|local| !local.core.is_inherited() && local.owns(shard)))
}

/// This thread's home in that engine, if it has one.
///
/// The reference does not leave the functions of this module and of [`current`](crate::current), which end no thread and run no code of
/// the user while they have it.
pub(crate) fn find<'a>(core: NonNull<Core>) -> Option<&'a ThreadShard> {
    let found =
        HOMES.try_with(|shards| shards.0.borrow().shards.get(&core).map(ThreadShardBox::as_ptr)).ok().flatten()?;
    // SAFETY: it was just found among this thread's shards. It is removed when the thread ends, or when another is made after its engine
    // was shut down: not while the caller has the reference, see above.
    Some(unsafe { &*found })
}

/// This thread's home in that engine, made if need be; `None` if the thread is ending, or the engine is the parent process's.
/// The caller holds a reference to the core. The reference that it gets is used as that of [`find`].
pub(crate) fn find_or_make<'a>(core: NonNull<Core>) -> Option<&'a ThreadShard> {
    if let Some(local) = find(core) {
        return (!local.core.is_inherited()).then_some(local);
    }
    // SAFETY: the caller holds a reference.
    let core = unsafe { CoreRef::another(core) };
    if core.is_inherited() {
        return None;
    }
    make(core)
}

/// Makes this thread's shard in that engine; `None` if the thread is ending.
#[cold]
fn make<'a>(core: CoreRef) -> Option<&'a ThreadShard> {
    let pointer = core.as_ptr();
    HOMES
        .try_with(|shards| {
            fork::forget_in_child(forget_current);
            let local = ThreadShardBox::new(ThreadShard::new(core));
            // While others go it is awaited, by its maker: things of the user's that go with them may make shards as well.
            local.awaited.set(true);
            let gone = shards.add(local);
            let _ignored = catch_panic(|| drop(gone));
        })
        .ok()?;
    let made = find(pointer)?;
    made.awaited.set(false);
    Some(made)
}

impl ThreadShards {
    /// Adds a home, and takes out those in engines that have been shut down and that no guard needs. They are the caller's to
    /// drop: with the last of an engine go things of its user's.
    #[must_use]
    fn add(&self, local: ThreadShardBox) -> Gone {
        let current = CURRENT.with(Cell::get);
        let unused = |_: &NonNull<Core>, local: &mut ThreadShardBox| {
            let kept = local.entered.get() > 0 || local.awaited.get() || local.as_ptr() == current;
            local.core.is_closed() && !kept
        };
        let shards = &mut self.0.borrow_mut().shards;
        // There are as many as a thread uses engines, and few threads use many: those look at all of them only now and then.
        let gone = if shards.len() < shards.capacity() && shards.len() > FEW {
            Gone::new()
        } else {
            shards.extract_if(unused).map(|(_, gone)| gone).collect()
        };
        shards.insert(local.core.as_ptr(), local);
        gone
    }
}

/// A thread that has a home in no more engines than this looks at all of them whenever it makes another. One that has more does so when
/// the table is full, so that a new home costs the same however many there are.
const FEW: usize = 16;

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
        // The table takes its place from the low bits and a tag from the high ones. An odd factor spreads an address over both.
        self.0 = (self.0.rotate_left(5) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Clock, Driver, Engine};

    /// Uses an engine when it goes.
    struct Parting(Engine);

    impl Drop for Parting {
        fn drop(&mut self) {
            drop(self.0.sleep(Duration::ZERO));
        }
    }

    fn manual(driver: Driver) -> Engine {
        Engine::builder().clock(Clock::manual()).driver(driver).build().unwrap()
    }

    #[test]
    fn d11_a_home_that_has_just_been_made_stays_whatever_those_do_that_go_for_it() {
        let parting = Parting(manual(Driver::external()));
        let gone = manual(Driver::external_with(move || _ = &parting));
        drop(gone.sleep(Duration::ZERO));
        // Now this thread's home is all that keeps it.
        drop(gone);
        let closed = manual(Driver::external());
        closed.shutdown();
        let made = find_or_make(closed.core().as_ptr()).unwrap();
        let is_there = HOMES.with(|shards| shards.0.borrow().shards.values().any(|local| local.as_ptr() == made));
        assert!(is_there, "it went with them");
    }
}
