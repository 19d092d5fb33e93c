//! Where a thread is at home: its shard of an engine, and its stock of references to that engine's core.
//!
//! A thread has a home in each engine that it has used; the *current* one is that of the engine that it uses when none is
//! named: the one [entered](crate::Engine::enter) last, or the global one. All of it goes when the thread ends; and a home in an
//! engine that has been shut down goes when another is made. So nothing of the user's may run while a home is borrowed: no
//! waker is cloned, woken or dropped inside the closures of this module.
//!
//! # References in bulk
//!
//! Each entry keeps the core alive by a reference. A home takes [`STOCK`] at a time from the core and gives them to
//! entries without anything shared; an entry that is dropped at home puts its reference back into the stock. Entries that are
//! dropped elsewhere give it to that thread's stock, or to the core. At every moment the core's count is the number
//! of references that are in stock or in use, so it cannot reach zero while any is.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::{NonNull, null};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::clock::Ahead;
use crate::core::{Core, CoreRef, contain};
use crate::shard::{Access, Shard};
use crate::sync::aside::thread_local;

/// A duration that may start some microseconds late: a four-hundredth of it, or less.
const LONG: Duration = Duration::from_millis(2);

/// A duration that may start so many times as late: a three-thousandth of it, or less.
const VERY_LONG: Duration = Duration::from_millis(256);
const WINDOWS: u64 = 16;

/// So many references are taken from the core at a time.
const STOCK: usize = if cfg!(shuttle) { 2 } else { 1024 };

pub(crate) struct Home {
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
    /// How many will use it again: guards that make it the current one, and its maker.
    awaited: Cell<usize>,
}

thread_local! {
    /// The current home. It points into `HOMES`, or is null.
    static CURRENT: Cell<*const Home> = const { Cell::new(null()) };
    /// All homes of this thread.
    static HOMES: Homes = const { Homes(RefCell::new(Vec::new())) };
}

struct Homes(RefCell<Vec<Kept>>);

/// A home, which does not move when this does. (It is what a box is, but to move a box is to say that nobody else points into it.)
pub(crate) struct Kept(NonNull<Home>);

type Gone = Vec<Kept>;

impl Home {
    fn new(core: CoreRef) -> Home {
        #[cfg(feature = "test-util")]
        core.add_thread();
        let (index, shard, access) = core.adopt();
        let shard = NonNull::from(shard);
        Home::at(core, shard, index, access)
    }

    /// For a thread that is ending and has no homes any more.
    fn passing(core: CoreRef) -> Home {
        let shard = NonNull::from(core.any_shard());
        Home::at(core, shard, 0, Access::Guest)
    }

    fn at(core: CoreRef, shard: NonNull<Shard>, index: usize, access: Access) -> Home {
        let (seen, ahead) = (Cell::new(Time::ZERO), [Ahead::new(1), Ahead::new(WINDOWS)]);
        let (stock, entered, awaited) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Home { core, shard, index, access, stock, seen, ahead, entered, awaited }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &CoreRef {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn shard(&self) -> &Shard {
        // SAFETY: the core keeps its shards.
        unsafe { self.shard.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// Whether this thread is the owner of that shard.
    #[inline(always)]
    pub(crate) fn owns(&self, shard: NonNull<Shard>) -> bool {
        self.shard == shard && self.access == Access::Owner
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

impl Drop for Home {
    fn drop(&mut self) {
        if self.access == Access::Owner {
            self.core.abandon(self.index);
        }
        self.unload(self.stock.get());
    }
}

impl Kept {
    fn new(home: Home) -> Kept {
        Kept(NonNull::from(Box::leak(Box::new(home))))
    }

    fn as_ptr(&self) -> *const Home {
        self.0.as_ptr()
    }
}

impl Deref for Kept {
    type Target = Home;

    fn deref(&self) -> &Home {
        // SAFETY: it is there until `drop`, and nobody has it by `&mut`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: it came from a box, in `new`, and goes once. Nobody points to it any more, or uses what points to it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        // From here on the thread has no home; entries that go later find none.
        let _ = CURRENT.try_with(|current| current.set(null()));
    }
}

/// The current home, if it has been made and test time is not in play.
#[inline(always)]
fn current<'a>() -> Option<&'a Home> {
    // What has no destructor stays until the thread has ended; but not with shuttle.
    #[cfg(not(shuttle))]
    let home = CURRENT.with(Cell::get);
    #[cfg(shuttle)]
    let home = CURRENT.try_with(Cell::get).unwrap_or(null());
    // SAFETY: it points to a home in `HOMES` of this thread, and is changed before that goes. The reference does not
    // leave the calls below, which do not end the thread and do not remove the current home.
    unsafe { home.as_ref() }
}

/// With the current home.
#[inline(always)]
pub(crate) fn with_current<R>(f: impl FnOnce(&Home) -> R) -> R {
    #[cfg(feature = "test-util")]
    if let Some(core) = crate::time::test_util::current_core() {
        return with(core.as_ptr(), f);
    }
    match current() {
        Some(home) => f(home),
        None => with_new_current(f),
    }
}

/// With the current home, if there is one already.
pub(crate) fn with_known<R>(f: impl FnOnce(Option<&Home>) -> R) -> R {
    #[cfg(feature = "test-util")]
    if let Some(core) = crate::time::test_util::current_core() {
        return with(core.as_ptr(), |home| f(Some(home)));
    }
    f(current())
}

/// With the home in the engine that has this core, to which the caller holds a reference.
#[inline(always)]
pub(crate) fn with<R>(core: NonNull<Core>, f: impl FnOnce(&Home) -> R) -> R {
    match current() {
        Some(home) if home.core.as_ptr() == core => f(home),
        _ => with_other(core, f),
    }
}

/// With the home that owns this shard, if it is this thread's.
#[inline(always)]
pub(crate) fn with_owner<R>(shard: NonNull<Shard>, f: impl FnOnce(Option<&Home>) -> R) -> R {
    match current() {
        Some(home) if home.owns(shard) => f(Some(home)),
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
        Some(home) if home.core.as_ptr() == core => home.put_ref(),
        // SAFETY: the caller's contract.
        _ => unsafe { Core::remove_refs(core, 1) },
    }
}

/// Makes the home in that engine the current one. Returns the one that was; for [`leave`], which must follow.
pub(crate) fn enter(core: &CoreRef) -> *const Home {
    let home = find_or_make(core.as_ptr());
    let before = CURRENT.with(Cell::get);
    if let Some(home) = home {
        // SAFETY: both are among this thread's homes, one just found, the other current.
        let (home, before) = unsafe { (&*home, before.as_ref()) };
        home.entered.set(home.entered.get() + 1);
        // So that it stays, whatever becomes of its engine.
        before.inspect(|before| before.awaited.set(before.awaited.get() + 1));
        CURRENT.with(|current| current.set(home));
    }
    before
}

/// Makes `before` the current home again.
pub(crate) fn leave(core: &CoreRef, before: *const Home) {
    let _ = HOMES.try_with(|homes| {
        if let Some(home) = homes.0.borrow().iter().find(|home| home.core.as_ptr() == core.as_ptr()) {
            home.entered.set(home.entered.get() - 1);
        }
        // SAFETY: it is null, or a home that is kept because it was awaited.
        if let Some(before) = unsafe { before.as_ref() } {
            before.awaited.set(before.awaited.get() - 1);
        }
        CURRENT.with(|current| current.set(before));
    });
}

/// Exchanges all homes of this thread, and the current one, for those of a simulated thread.
///
/// # Safety
/// `current` is null or points into `homes`, and nothing is inside the closures of this module.
#[cfg(feature = "test-util")]
pub(crate) unsafe fn exchange(homes: &mut Vec<Kept>, current: &mut *const Home) {
    HOMES.with(|of_thread| std::mem::swap(&mut *of_thread.0.borrow_mut(), homes));
    *current = CURRENT.replace(*current);
}

/// Whether the current home was entered, rather than being the default.
#[cfg(feature = "test-util")]
pub(crate) fn has_entered() -> bool {
    current().is_some_and(|home| home.entered.get() > 0)
}

#[cold]
#[inline(never)]
fn with_new_current<R>(f: impl FnOnce(&Home) -> R) -> R {
    let core = crate::engine::global_core();
    match find_or_make(core.as_ptr()) {
        Some(home) => {
            CURRENT.with(|current| current.set(home));
            // SAFETY: just found among this thread's homes.
            f(unsafe { &*home })
        }
        None => f(&Home::passing(core.clone())),
    }
}

#[cold]
#[inline(never)]
fn with_other<R>(core: NonNull<Core>, f: impl FnOnce(&Home) -> R) -> R {
    match find_or_make(core) {
        // SAFETY: just found among this thread's homes. `f` runs nothing of the user's, so none is removed meanwhile.
        Some(home) => f(unsafe { &*home }),
        None => {
            // SAFETY: the caller holds a reference.
            let core = unsafe { CoreRef::another(core) };
            f(&Home::passing(core))
        }
    }
}

#[cold]
#[inline(never)]
fn with_other_owner<R>(shard: NonNull<Shard>, f: impl FnOnce(Option<&Home>) -> R) -> R {
    let find = |homes: &Homes| homes.0.borrow().iter().find(|home| home.owns(shard)).map(Kept::as_ptr);
    let found = HOMES.try_with(find).ok().flatten();
    // SAFETY: as in `with_other`.
    f(found.map(|home| unsafe { &*home }))
}

/// This thread's home in that engine, made if need be; `None` if the thread is ending.
fn find_or_make(core: NonNull<Core>) -> Option<*const Home> {
    HOMES
        .try_with(|homes| {
            if let Some(home) = homes.0.borrow().iter().find(|home| home.core.as_ptr() == core) {
                return home.as_ptr();
            }
            // SAFETY: the caller holds a reference.
            let core = unsafe { CoreRef::another(core) };
            let home = Kept::new(Home::new(core));
            let pointer = home.as_ptr();
            // While others go it is awaited, by its maker: things of the user's that go with them may make homes as well.
            home.awaited.set(1);
            let gone = homes.add(home);
            let _its_own_affair = contain(|| drop(gone));
            // SAFETY: it was awaited, and so was kept.
            let awaited = unsafe { &(*pointer).awaited };
            awaited.set(awaited.get() - 1);
            pointer
        })
        .ok()
}

impl Homes {
    /// Adds a home, and takes out those in engines that have been shut down and that no guard needs. They are the caller's to
    /// drop: with the last of an engine go things of its user's.
    #[must_use]
    fn add(&self, home: Kept) -> Gone {
        let current = CURRENT.with(Cell::get);
        let unused = |home: &mut Kept| {
            let kept = home.entered.get() + home.awaited.get() > 0 || home.as_ptr() == current;
            home.core.is_closed() && !kept
        };
        let mut homes = self.0.borrow_mut();
        let gone = homes.extract_if(.., unused).collect();
        homes.push(home);
        gone
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
        let is_there = HOMES.with(|homes| homes.0.borrow().iter().any(|home| home.as_ptr() == made));
        assert!(is_there, "it went with them");
    }
}
