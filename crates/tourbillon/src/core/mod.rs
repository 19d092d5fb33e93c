//! The core of an engine: the state that its handles, threads and drivers share.
//!
//! A core is reference-counted. These have a reference each: the owner that the engine's handles share, the driver, each thread that has a
//! shard of the engine, and each entry. To count an entry would be an atomic addition on a cache line that all threads share, so threads
//! take references in bulk and hand them out themselves: see [`ThreadShard`](crate::core::thread_shard::ThreadShard).

pub(crate) mod callbacks;
pub(crate) mod capacity;
pub(crate) mod driver_shared;
pub(crate) mod error;
pub(crate) mod jumps;
pub(crate) mod owner;
pub(crate) mod thread_shard;
pub(crate) mod trace;
#[cfg(feature = "test-util")]
pub(crate) mod watch;
pub(crate) mod work;

use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, fence};
use std::sync::{OnceLock, Weak};
use std::task::Waker;

use tourbillon_queue::{Span, Time};

use crate::clock::Clock;
use crate::clock::{LAST, representable};
use crate::core::callbacks::CallbackQueue;
use crate::core::capacity::Capacity;
use crate::core::driver_shared::DriverShared;
use crate::core::jumps::ClockJumps;
use crate::core::owner::EngineOwner;
use crate::core::work::TimerWork;
use crate::shard::queue::QueueKind;
use crate::shard::slab::EngineTraits;
use crate::shard::{Access, BATCH, Notify, Shard, Visit};
use crate::slack::SlackBits;
use crate::stats::Stats;
use crate::sync::catch_panic::{CallResult, catch_panic};
use crate::sync::fork;
use crate::sync::unmodelled::{self, AtomicU64, AtomicUsize, Mutex};
use crate::sync::{AtomicBool, Ordering};

/// The shared state of one engine.
///
/// It is aligned so that an entry can keep flags in the low bits of its address.
#[repr(align(4096))]
pub(crate) struct Core {
    refs: AtomicUsize,
    /// The pointer to the core itself that it is freed by.
    this: AtomicPtr<Core>,
    pub(crate) clock: Clock,
    /// The slack of timers that have none of their own.
    pub(crate) slack: SlackBits,
    pub(crate) capacity: Option<Capacity>,
    /// Whether time is virtual: it may move by itself to the next wake-up, so a cancel makes the next wake-up exact at once.
    pub(crate) is_virtual: bool,
    pub(crate) driver: DriverShared,
    pub(crate) callbacks: CallbackQueue,
    /// The work under way on other threads, for which virtual time waits.
    pub(crate) work: TimerWork,
    /// The listeners for jumps of the clock.
    pub(crate) jumps: ClockJumps,
    /// The owner that the handles share, for a thread that has only the core.
    pub(crate) owner: OnceLock<Weak<EngineOwner>>,
    kind: QueueKind,
    /// The shards, created in the order of their indices.
    shards: Box<[OnceLock<Pin<Box<Shard>>>]>,
    ownership: Mutex<Ownership>,
    closed: AtomicBool,
    /// The fork generation of the process that created the core: see [`fork`].
    generation: u32,
    waker_panics: AtomicU64,
    lag: trace::Lag,
    /// The threads that have a shard of this engine.
    #[cfg(feature = "test-util")]
    threads: Mutex<Vec<i32>>,
    /// The state of the watcher of virtual time.
    #[cfg(feature = "test-util")]
    pub(crate) watch: watch::WatcherState,
}

/// Which shards have an owner.
struct Ownership {
    owned: Vec<bool>,
    /// How many threads found no shard without an owner.
    remote_threads: usize,
}

/// The parameters of a core.
pub(crate) struct CoreConfig {
    pub(crate) clock: Clock,
    pub(crate) slack: SlackBits,
    pub(crate) capacity: Option<usize>,
    pub(crate) kind: QueueKind,
    pub(crate) shards: usize,
    pub(crate) driver: DriverShared,
    pub(crate) is_virtual: bool,
}

/// A counted reference to a core.
pub(crate) struct CoreRef(NonNull<Core>);

// SAFETY: a reference gives other threads `&Core`, and all fields of a core are `Sync`. Any thread may free the core with the last
// reference: all its fields are `Send`.
unsafe impl Send for CoreRef {}
// SAFETY: a shared `CoreRef` gives `&Core` and new references: as above.
unsafe impl Sync for CoreRef {}

/// The result of one round over all shards.
#[derive(Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) fired: usize,
    pub(crate) more: bool,
}

impl CoreRef {
    pub(crate) fn new(config: CoreConfig) -> CoreRef {
        fork::watch();
        let core = Core {
            refs: AtomicUsize::new(1),
            this: AtomicPtr::new(std::ptr::null_mut()),
            clock: config.clock,
            slack: config.slack,
            is_virtual: config.is_virtual,
            capacity: config.capacity.map(Capacity::new),
            driver: config.driver,
            callbacks: CallbackQueue::new(),
            work: TimerWork::default(),
            jumps: ClockJumps::default(),
            owner: OnceLock::new(),
            kind: config.kind,
            shards: (0..config.shards).map(|_| OnceLock::new()).collect(),
            ownership: Mutex::new(Ownership { owned: vec![false; config.shards], remote_threads: 0 }),
            closed: AtomicBool::new(false),
            generation: fork::generation(),
            waker_panics: AtomicU64::new(0),
            lag: trace::Lag::default(),
            #[cfg(feature = "test-util")]
            threads: Mutex::new(Vec::new()),
            #[cfg(feature = "test-util")]
            watch: watch::WatcherState::default(),
        };
        let core = NonNull::from(Box::leak(Box::new(core)));
        // SAFETY: the box was leaked just now, so the core is allocated, and no other thread has its address yet.
        unsafe { core.as_ref() }.this.store(core.as_ptr(), Ordering::Relaxed);
        CoreRef(core)
    }

    /// Returns one more reference.
    ///
    /// # Safety
    /// The caller holds a reference to the core.
    pub(crate) unsafe fn another(core: NonNull<Core>) -> CoreRef {
        // SAFETY: the caller holds a reference, so the core is not freed during this call.
        unsafe { core.as_ref() }.to_ref()
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Core> {
        self.0
    }
}

impl Clone for CoreRef {
    fn clone(&self) -> CoreRef {
        self.to_ref()
    }
}

impl Drop for CoreRef {
    fn drop(&mut self) {
        // SAFETY: each `CoreRef` has one reference, and this one is not used after its drop.
        unsafe { Core::remove_refs(self.0, 1) };
    }
}

impl Deref for CoreRef {
    type Target = Core;

    fn deref(&self) -> &Core {
        // SAFETY: `self` has a reference, so the core is not freed while `self` is borrowed.
        unsafe { self.0.as_ref() }
    }
}

impl Core {
    pub(crate) fn add_refs(&self, count: usize) {
        self.refs.fetch_add(count, Ordering::Relaxed);
    }

    /// Removes `count` references, and frees the core with the last one.
    ///
    /// # Safety
    /// The caller has these references, and does not use them afterwards.
    pub(crate) unsafe fn remove_refs(core: NonNull<Core>, count: usize) {
        // SAFETY: until the subtraction the caller's references keep the core. After it this function uses `refs` only if they were the last
        // ones, and then no other thread frees the core.
        let refs = unsafe { &core.as_ref().refs };
        if refs.fetch_sub(count, Ordering::Release) == count {
            // Acquires the writes of the threads that removed the other references. (A load: ThreadSanitizer does not know fences.)
            let _none = refs.load(Ordering::Acquire);
            // SAFETY: `CoreRef::new` got the pointer from a box. These were the last references, so no other thread uses or frees the core.
            drop(unsafe { Box::from_raw(core.as_ptr()) });
        }
    }

    /// Returns the kernel's ids of the threads that have a shard of this engine.
    #[cfg(feature = "test-util")]
    pub(crate) fn threads(&self) -> Vec<i32> {
        unmodelled::lock(&self.threads).clone()
    }

    /// Records that the calling thread has a shard of this engine.
    #[cfg(feature = "test-util")]
    pub(crate) fn add_thread(&self) {
        unmodelled::lock(&self.threads).extend(crate::sys::current_thread());
    }

    /// Returns the deadline of a timer that is given `deadline`.
    ///
    /// A deadline that cannot be represented is never. In a virtual engine time would never move to it, and a test that waits for it would
    /// hang; there it is two and a half centuries from now. (With Tokio it is thirty years, everywhere.)
    #[inline(always)]
    pub(crate) fn deadline(&self, deadline: Time) -> Time {
        let deadline = representable(deadline);
        if deadline.is_never() && self.is_virtual { self.far_future() } else { deadline }
    }

    #[cold]
    fn far_future(&self) -> Time {
        (self.clock.now() + Span::from_secs(250 * 365 * 24 * 60 * 60)).min(LAST)
    }

    /// Makes the next wake-up of a shard exact, and the driver plan again. For a virtual engine, after a timer of the shard was cancelled or
    /// moved to a later deadline.
    #[cold]
    pub(crate) fn refresh_and_replan(&self, shard: NonNull<Shard>) {
        if let Some(shard) = self.shards().find(|known| NonNull::from(*known) == shard) {
            shard.refresh();
        }
        self.driver.plan_anew(self);
    }

    /// Returns the shard with this index, which a thread has adopted.
    pub(crate) fn shard_at(&self, index: usize) -> &Shard {
        self.shards[index].get().expect("a thread has adopted the shard")
    }

    /// Returns the shards that were created.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().map_while(OnceLock::get).map(|shard| &**shard)
    }

    /// Returns the shards that the engine's driver visits.
    fn driven(&self) -> impl Iterator<Item = &Shard> {
        self.shards().filter(|shard| !shard.has_worker())
    }

    /// Returns a shard for the calling thread: one that the thread now owns, or a shared one if all have an owner.
    pub(crate) fn adopt(&self) -> (usize, &Shard, Access) {
        let mut ownership = unmodelled::lock(&self.ownership);
        if let Some(index) = ownership.owned.iter().position(|owned| !owned) {
            ownership.owned[index] = true;
            return (index, self.shard(index), Access::Owner);
        }
        ownership.remote_threads += 1;
        let index = ownership.remote_threads % self.shards.len();
        (index, self.shard(index), Access::Remote)
    }

    /// Ends the ownership of a shard. If a worker drove it, the driver does from now on.
    pub(crate) fn end_ownership(&self, index: usize) {
        // In this order: otherwise the next owner could already have a worker, and this would end that one.
        if let Some(shard) = self.shards[index].get() {
            self.take_from_worker(shard, None);
        }
        unmodelled::lock(&self.ownership).owned[index] = false;
    }

    /// Gives a shard back to the driver, from the worker `worker` or from any.
    pub(crate) fn take_from_worker(&self, shard: &Shard, worker: Option<&Notify>) {
        if !self.is_inherited() && shard.end_worker(worker) {
            self.notify_driver(shard, Access::Remote);
        }
    }

    /// Returns a shard for a thread that cannot have one of its own.
    pub(crate) fn any_shard(&self) -> &Shard {
        let _ownership = unmodelled::lock(&self.ownership);
        self.shard(0)
    }

    /// Returns the shard with this index, created if necessary. The caller holds the lock of `ownership`, so that shutdown misses no shard.
    fn shard(&self, index: usize) -> &Shard {
        let shard = self.shards[index].get_or_init(|| {
            let shard = self.new_shard();
            if self.is_closed() {
                shard.close();
            }
            shard
        });
        // Between the creation of the shard and a load of the driver's plan: a driver that has planned without the shard is then notified.
        fence(Ordering::SeqCst);
        shard
    }

    /// Returns the address of the core that a shard belongs to.
    #[inline(always)]
    pub(crate) fn of_shard(shard: &Shard) -> NonNull<Core> {
        shard.core().cast()
    }

    /// Returns one more reference.
    pub(crate) fn to_ref(&self) -> CoreRef {
        self.add_refs(1);
        CoreRef(self.as_ptr())
    }

    fn as_ptr(&self) -> NonNull<Core> {
        NonNull::new(self.this.load(Ordering::Relaxed)).expect("stored when the core was made")
    }

    /// Returns whether arming is refused: the engine was shut down, or is one of the parent process.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_inherited()
    }

    /// Returns whether this is an engine of the parent process. A thread must not take the locks of such an engine: see [`fork`].
    #[inline(always)]
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Returns the capacity, if the engine has one and is of this process.
    pub(crate) fn capacity_of_process(&self) -> Option<&Capacity> {
        self.capacity.as_ref().filter(|_| !self.is_inherited())
    }

    /// Returns a new shard that refuses all arming, for a thread that must not use the shards of the engine.
    pub(crate) fn closed_shard(&self) -> Pin<Box<Shard>> {
        let shard = self.new_shard();
        shard.close();
        shard
    }

    fn new_shard(&self) -> Pin<Box<Shard>> {
        let engine = EngineTraits {
            origin: if self.is_virtual { None } else { self.clock.origin() },
            reports_cancels: self.is_virtual || self.capacity.is_some(),
        };
        let shard = Shard::new(self.as_ptr().cast(), self.kind, self.clock.now(), engine);
        shard.expect("the queue kind was tried when the engine was built")
    }

    /// Frees the large memory of the engine, after its last handle is gone and its timers are stopped. The nodes of a shard are freed with
    /// the last entry that has one, and the core itself with the last reference.
    pub(crate) fn release(&self) {
        if !self.is_inherited() {
            self.shards().for_each(Shard::free_memory);
            self.driver.close();
        }
    }

    /// Notifies the driver, or the worker that drives the shard, that the shard has an earlier next wake-up. `by` is the access of the
    /// calling thread.
    #[cold]
    #[inline(never)]
    pub(crate) fn notify_driver(&self, shard: &Shard, by: Access) {
        match (shard.has_worker(), by) {
            (false, _) => {
                self.driver.set_earlier(|floor| shard.next_wake().next(floor));
                #[cfg(tourbillon_driver_task)]
                self.driver.offer_to_executor(self);
            }
            (true, Access::Remote) => shard.notify_worker(),
            // The calling thread is the worker: it reads the next wake-up before it sleeps.
            (true, Access::Owner) => {}
        }
    }

    /// Visits each shard that is due at `now`, once, and wakes the wakers of its timers.
    pub(crate) fn round(&self, now: Time, batch: &mut Vec<Waker>) -> Round {
        self.round_by(now, batch, |shard, batch| shard.visit_remote(now, batch))
    }

    /// Does a [round](Core::round) in which `visit` visits a shard.
    pub(crate) fn round_by(
        &self,
        now: Time,
        batch: &mut Vec<Waker>,
        visit: impl Fn(&Shard, &mut Vec<Waker>) -> Visit,
    ) -> Round {
        self.check_for_clock_jump(now);
        let mut round = self.end_waits(now, batch);
        let mut wanted = now;
        for shard in self.driven() {
            let next_wake = shard.next_wake().next(Time::ZERO);
            if next_wake > now {
                continue;
            }
            let visit = visit(shard, batch);
            round.fired += visit.fired;
            round.more |= visit.more;
            if visit.fired > 0 {
                wanted = wanted.min(next_wake);
            }
            self.free_slots(visit.fired, batch);
        }
        self.lag.turned(self, now, now - wanted, round.fired);
        round
    }

    /// Ends the sleeps that wait for a slot and are due at `now`, up to a batch.
    fn end_waits(&self, now: Time, batch: &mut Vec<Waker>) -> Round {
        let Some(capacity) = &self.capacity else { return Round::default() };
        let ended = capacity.end_due(now, BATCH, batch);
        self.wake(batch);
        Round { fired: 0, more: ended == BATCH }
    }

    /// Frees the slots of `ended` timers, and wakes `batch` together with the sleeps that get the slots.
    pub(crate) fn free_slots(&self, ended: usize, batch: &mut Vec<Waker>) {
        if let Some(capacity) = self.capacity_of_process().filter(|_| ended > 0) {
            capacity.give_back(ended, batch);
        }
        self.wake(batch);
    }

    /// Notifies the driver that the earliest deadline of the sleeps that wait for a slot may be earlier than it planned.
    pub(crate) fn tell_of_waits(&self) {
        if let Some(capacity) = &self.capacity {
            self.driver.set_earlier(|floor| capacity.next_end(floor));
        }
    }

    /// Returns when the next round is due, where adaptive timers cause no round before `floor`.
    pub(crate) fn next_round(&self, floor: Time) -> Time {
        let waits = self.capacity.as_ref().map_or(Time::NEVER, |capacity| capacity.next_end(floor));
        self.driven().map(|shard| shard.next_wake().next(floor)).min().map_or(waits, |next| next.min(waits))
    }

    /// Returns whether a precise timer that the driver waits for is due within [`PRECISE_LEAD`](crate::slack::PRECISE_LEAD).
    pub(crate) fn is_lead_in(&self) -> bool {
        self.driven().any(|shard| shard.next_wake().is_lead_in())
    }

    /// Wakes all wakers of `batch`. The caller holds no lock. A panic of a waker is caught and counted.
    pub(crate) fn wake(&self, batch: &mut Vec<Waker>) {
        batch.drain(..).for_each(|waker| self.wake_one(waker));
    }

    /// Wakes one waker. The caller holds no lock. A panic of the waker is caught and counted.
    pub(crate) fn wake_one(&self, waker: Waker) {
        if catch_panic(|| waker.wake()) == CallResult::Panicked {
            self.waker_panics.fetch_add(1, Ordering::Relaxed);
            trace::waker_panicked(self);
        }
    }

    /// Refuses all further arming, and stops every armed entry.
    pub(crate) fn shut_down(&self) {
        let was_closed = self.closed.swap(true, Ordering::AcqRel);
        if self.is_inherited() {
            return;
        }
        // A thread that creates a shard after this sees that the engine is closed.
        drop(unmodelled::lock(&self.ownership));
        let mut batch = Vec::with_capacity(BATCH);
        for shard in self.shards() {
            shard.close();
            let mut cursor = 0;
            while shard.stop_some(&mut cursor, &mut batch) {
                self.free_slots(batch.len(), &mut batch);
            }
            self.free_slots(batch.len(), &mut batch);
        }
        if let Some(capacity) = &self.capacity {
            self.wake(&mut capacity.take_wakers());
        }
        self.driver.wake();
        self.work.close();
        self.close_callbacks();
        if !was_closed {
            trace::engine_shut_down(self);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        if self.is_inherited() {
            return Stats::default();
        }
        let (waker_panics, callback_panics) = (self.waker_panics.load(Ordering::Relaxed), self.callback_panics());
        let callbacks_waiting = self.callbacks_waiting();
        let mut stats = Stats { waker_panics, callback_panics, callbacks_waiting, ..Stats::default() };
        self.shards().for_each(|shard| stats.add(&shard.counts()));
        // A timer that migrates meanwhile may be counted in both shards or in none.
        stats.pending = stats.armed.saturating_sub(stats.fired + stats.cancelled + stats.stopped);
        stats
    }
}
