//! What an engine is made of, and how long that lives.
//!
//! A core is kept by references: one for each engine handle's owner, one for its driver, one for each thread that is at home
//! in it, and one for each entry. An entry's would be an atomic addition on a line that all threads share, so threads
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
use crate::shard::{Access, BATCH, Notify, Shard, Visit};
use crate::slack::SlackBits;
use crate::stats::Stats;
use crate::sync::aside::{self, AtomicU64, AtomicUsize, Mutex};
use crate::sync::catch_panic::{CallResult, catch_panic};
use crate::sync::fork;
use crate::sync::{AtomicBool, Ordering};

/// Aligned so that an entry can keep some bits in its address.
#[repr(align(4096))]
pub(crate) struct Core {
    refs: AtomicUsize,
    /// Itself, by the pointer that it is freed by in the end.
    this: AtomicPtr<Core>,
    pub(crate) clock: Clock,
    /// The slack of timers that have none of their own.
    pub(crate) slack: SlackBits,
    pub(crate) capacity: Option<Capacity>,
    /// Whether its time may move by itself to the next deadline. Then a cancelled timer makes the next wake-up exact at once.
    pub(crate) is_virtual: bool,
    /// Whether a cancelled timer has to be told of: the engine has a capacity, or is exact.
    pub(crate) minds_cancels: bool,
    pub(crate) driver: DriverShared,
    pub(crate) callbacks: CallbackQueue,
    /// What goes on on other threads, for which the time of an exact engine waits.
    pub(crate) work: TimerWork,
    /// Who wants to hear that the clock was set.
    pub(crate) jumps: ClockJumps,
    /// What the handles share, for a thread that knows the core alone.
    pub(crate) owner: OnceLock<Weak<EngineOwner>>,
    kind: QueueKind,
    /// Filled from the front.
    shards: Box<[OnceLock<Pin<Box<Shard>>>]>,
    ownership: Mutex<Ownership>,
    closed: AtomicBool,
    /// Of the process that has made it.
    generation: u32,
    waker_panics: AtomicU64,
    lag: trace::Lag,
    /// The threads that have a home in it.
    #[cfg(feature = "test-util")]
    threads: Mutex<Vec<i32>>,
    /// What the watcher of its virtual time does.
    #[cfg(feature = "test-util")]
    pub(crate) watch: watch::WatcherState,
}

/// Which shards are some thread's own.
struct Ownership {
    owned: Vec<bool>,
    /// Counts those who found none free.
    guests: usize,
}

/// What a core is built from.
pub(crate) struct CoreConfig {
    pub(crate) clock: Clock,
    pub(crate) slack: SlackBits,
    pub(crate) capacity: Option<usize>,
    pub(crate) kind: QueueKind,
    pub(crate) shards: usize,
    pub(crate) driver: DriverShared,
    pub(crate) is_virtual: bool,
}

/// A counted reference.
pub(crate) struct CoreRef(NonNull<Core>);

// SAFETY: a core is shared between threads (all its fields are `Sync`), and freed by whichever lets go last.
unsafe impl Send for CoreRef {}
// SAFETY: as above.
unsafe impl Sync for CoreRef {}

/// What a round over all shards did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) fired: usize,
    pub(crate) more: bool,
}

impl CoreRef {
    pub(crate) fn new(plan: CoreConfig) -> CoreRef {
        fork::watch();
        let core = Core {
            refs: AtomicUsize::new(1),
            this: AtomicPtr::new(std::ptr::null_mut()),
            clock: plan.clock,
            slack: plan.slack,
            is_virtual: plan.is_virtual,
            minds_cancels: plan.is_virtual || plan.capacity.is_some(),
            capacity: plan.capacity.map(Capacity::new),
            driver: plan.driver,
            callbacks: CallbackQueue::new(),
            work: TimerWork::default(),
            jumps: ClockJumps::default(),
            owner: OnceLock::new(),
            kind: plan.kind,
            shards: (0..plan.shards).map(|_| OnceLock::new()).collect(),
            ownership: Mutex::new(Ownership { owned: vec![false; plan.shards], guests: 0 }),
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
        // SAFETY: it is there, and nobody else knows of it.
        unsafe { core.as_ref() }.this.store(core.as_ptr(), Ordering::Relaxed);
        CoreRef(core)
    }

    /// Returns one more reference.
    ///
    /// # Safety
    /// The caller holds a reference to the core.
    pub(crate) unsafe fn another(core: NonNull<Core>) -> CoreRef {
        // SAFETY: the caller holds a reference, so the core is there.
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
        // SAFETY: the reference is this one's to give.
        unsafe { Core::remove_refs(self.0, 1) };
    }
}

impl Deref for CoreRef {
    type Target = Core;

    fn deref(&self) -> &Core {
        // SAFETY: a reference is held.
        unsafe { self.0.as_ref() }
    }
}

impl Core {
    pub(crate) fn add_refs(&self, count: usize) {
        self.refs.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives up references; with the last one the core goes.
    ///
    /// # Safety
    /// They are the caller's to give, and it does not use them afterwards.
    pub(crate) unsafe fn remove_refs(core: NonNull<Core>, count: usize) {
        // SAFETY: the core is there until the caller's references are given up. After that it is there if these were the last: then no
        // other thread frees it.
        let refs = unsafe { &core.as_ref().refs };
        if refs.fetch_sub(count, Ordering::Release) == count {
            // Acquires what other threads did with their references. (A load, because ThreadSanitizer does not know fences.)
            let _none = refs.load(Ordering::Acquire);
            // SAFETY: these were the last references, and the core came from a box, in `CoreRef::new`.
            drop(unsafe { Box::from_raw(core.as_ptr()) });
        }
    }

    /// The threads that have a home in it, by the kernel's numbers.
    #[cfg(feature = "test-util")]
    pub(crate) fn threads(&self) -> Vec<i32> {
        aside::lock(&self.threads).clone()
    }

    /// Notes that the calling thread has made its home in it.
    #[cfg(feature = "test-util")]
    pub(crate) fn add_thread(&self) {
        #[cfg(target_os = "linux")]
        aside::lock(&self.threads).push(rustix::thread::gettid().as_raw_nonzero().get());
    }

    /// What becomes of a deadline that a timer is given.
    ///
    /// One that cannot be represented is never. But where time moves by itself, nobody would ever move it there, and a test that
    /// waits for it would hang; there it is two and a half centuries from now. (With Tokio it is thirty years, everywhere.)
    #[inline(always)]
    pub(crate) fn deadline(&self, deadline: Time) -> Time {
        let deadline = representable(deadline);
        if deadline.is_never() && self.is_virtual { self.far_future() } else { deadline }
    }

    #[cold]
    fn far_future(&self) -> Time {
        (self.clock.now() + Span::from_secs(250 * 365 * 24 * 60 * 60)).min(LAST)
    }

    /// In an exact engine, after a timer of that shard was cancelled or put off: the driver waits for what is left.
    #[cold]
    pub(crate) fn cancelled_in(&self, shard: NonNull<Shard>) {
        if let Some(shard) = self.shards().find(|known| NonNull::from(*known) == shard) {
            shard.refresh();
        }
        self.driver.plan_anew(self);
    }

    /// Returns the shard with this index, which a thread has adopted.
    pub(crate) fn shard_at(&self, index: usize) -> &Shard {
        self.shards[index].get().expect("a thread has adopted the shard")
    }

    /// The shards there are.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().map_while(OnceLock::get).map(|shard| &**shard)
    }

    /// Those that the engine's driver turns.
    fn driven(&self) -> impl Iterator<Item = &Shard> {
        self.shards().filter(|shard| !shard.has_worker())
    }

    /// A shard for a thread: one of its own, if there is one left, or one to share.
    pub(crate) fn adopt(&self) -> (usize, &Shard, Access) {
        let mut ownership = aside::lock(&self.ownership);
        if let Some(index) = ownership.owned.iter().position(|owned| !owned) {
            ownership.owned[index] = true;
            return (index, self.shard(index), Access::Owner);
        }
        ownership.guests += 1;
        let index = ownership.guests % self.shards.len();
        (index, self.shard(index), Access::Remote)
    }

    /// Ends the ownership of a shard. If its thread has turned it, the driver does from now on.
    pub(crate) fn abandon(&self, index: usize) {
        // In this order: the next thread that has the shard may have a worker too, and that one is to stay.
        if let Some(shard) = self.shards[index].get() {
            self.take_from_worker(shard, None);
        }
        aside::lock(&self.ownership).owned[index] = false;
    }

    /// Gives a shard back to the driver, from this worker or from any.
    pub(crate) fn take_from_worker(&self, shard: &Shard, worker: Option<&Notify>) {
        if !self.is_inherited() && shard.end_worker(worker) {
            self.tell(shard, Access::Remote);
        }
    }

    /// The shard for those who have no home: any.
    pub(crate) fn any_shard(&self) -> &Shard {
        let _ownership = aside::lock(&self.ownership);
        self.shard(0)
    }

    /// With the ownership locked, so that shutdown does not miss one.
    fn shard(&self, index: usize) -> &Shard {
        let shard = self.shards[index].get_or_init(|| {
            let shard = Shard::new(self.as_ptr().cast(), self.kind, self.clock.now());
            let shard = shard.expect("the queue kind was tried when the engine was built");
            if self.is_closed() {
                shard.close();
            }
            shard
        });
        // Between making the shard and looking at the driver's plan: a driver that has planned without it is then told.
        fence(Ordering::SeqCst);
        shard
    }

    /// Returns the address of the core that a shard belongs to.
    #[inline(always)]
    pub(crate) fn of_shard(shard: &Shard) -> NonNull<Core> {
        shard.core().cast()
    }

    /// One more reference.
    pub(crate) fn to_ref(&self) -> CoreRef {
        self.add_refs(1);
        CoreRef(self.as_ptr())
    }

    fn as_ptr(&self) -> NonNull<Core> {
        NonNull::new(self.this.load(Ordering::Relaxed)).expect("stored when the core was made")
    }

    /// Whether arming is refused. An engine of the parent process is closed, too.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_inherited()
    }

    /// Whether it is an engine of the parent process. Then its locks are not to be taken: see [`fork`].
    #[inline(always)]
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Its capacity, if it has one and is an engine of this process.
    pub(crate) fn capacity_of_process(&self) -> Option<&Capacity> {
        self.capacity.as_ref().filter(|_| !self.is_inherited())
    }

    /// A shard in which nothing can be armed, for a thread that is not to touch those that there are.
    pub(crate) fn closed_shard(&self) -> Pin<Box<Shard>> {
        let shard = Shard::new(self.as_ptr().cast(), self.kind, self.clock.now());
        let shard = shard.expect("the queue kind was tried when the engine was built");
        shard.close();
        shard
    }

    /// When the last handle is gone: gives back what is large. The timers have been stopped; the memory of those that somebody still has
    /// is freed with the last of them. What is left is the core itself, for threads and timers that refer to it.
    pub(crate) fn release(&self) {
        if !self.is_inherited() {
            self.shards().for_each(Shard::release);
            self.driver.close();
        }
    }

    /// Tells whoever turns a shard that it wants a visit of which they may not know.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, shard: &Shard, by: Access) {
        match (shard.has_worker(), by) {
            (false, _) => self.driver.set_earlier(|floor| shard.next_wake().next(floor)),
            (true, Access::Remote) => shard.notify_worker(),
            // It looks before it waits.
            (true, Access::Owner) => {}
        }
    }

    /// Visits each shard that has something due at `now`, once, and wakes its wakers.
    pub(crate) fn round(&self, now: Time, batch: &mut Vec<Waker>) -> Round {
        self.round_by(now, batch, |shard, batch| shard.visit_remote(now, batch))
    }

    /// The same for a driver that says how it visits a shard.
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
            self.give_room_back(visit.fired, batch);
        }
        self.lag.turned(self, now, now - wanted, round.fired);
        round
    }

    /// Ends the sleeps that wait for room and whose deadline is past at `now`, up to a batch.
    fn end_waits(&self, now: Time, batch: &mut Vec<Waker>) -> Round {
        let Some(capacity) = &self.capacity else { return Round::default() };
        let ended = capacity.end_due(now, BATCH, batch);
        self.wake(batch);
        Round { fired: 0, more: ended == BATCH }
    }

    /// Gives places within the capacity back, those of timers that have ended, and wakes `batch` together with the sleeps that get the
    /// places.
    pub(crate) fn give_room_back(&self, ended: usize, batch: &mut Vec<Waker>) {
        if let Some(capacity) = self.capacity_of_process().filter(|_| ended > 0) {
            capacity.give_back(ended, batch);
        }
        self.wake(batch);
    }

    /// Tells the driver that the earliest deadline of sleeps that wait for room may be earlier than it planned.
    pub(crate) fn tell_of_waits(&self) {
        if let Some(capacity) = &self.capacity {
            self.driver.set_earlier(|floor| capacity.next_end(floor));
        }
    }

    /// When the next round is due: no relaxed timer moves it before `floor`.
    pub(crate) fn next_round(&self, floor: Time) -> Time {
        let waits = self.capacity.as_ref().map_or(Time::NEVER, |capacity| capacity.next_end(floor));
        self.driven().map(|shard| shard.next_wake().next(floor)).min().map_or(waits, |next| next.min(waits))
    }

    /// RemoteFreeList whether a precise timer that the driver waits for is due within [`LEAD`](crate::slack::LEAD).
    pub(crate) fn is_lead_in(&self) -> bool {
        self.driven().any(|shard| shard.next_wake().is_lead_in())
    }

    /// Wakes all of them, outside every lock. What a waker throws is counted and goes no further.
    pub(crate) fn wake(&self, batch: &mut Vec<Waker>) {
        batch.drain(..).for_each(|waker| self.wake_one(waker));
    }

    /// The same for one.
    pub(crate) fn wake_one(&self, waker: Waker) {
        if catch_panic(|| waker.wake()) == CallResult::Panicked {
            self.waker_panics.fetch_add(1, Ordering::Relaxed);
            trace::waker_panicked(self);
        }
    }

    /// Gives every armed entry the outcome `Stopped`. Arming is refused from now on.
    pub(crate) fn shut_down(&self) {
        let was_closed = self.closed.swap(true, Ordering::AcqRel);
        if self.is_inherited() {
            return;
        }
        // Whoever makes a shard after this finds the engine closed.
        drop(aside::lock(&self.ownership));
        let mut batch = Vec::with_capacity(BATCH);
        for shard in self.shards() {
            shard.close();
            let mut cursor = 0;
            while shard.stop_some(&mut cursor, &mut batch) {
                self.give_room_back(batch.len(), &mut batch);
            }
            self.give_room_back(batch.len(), &mut batch);
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
        // While timers move from shard to shard, some may be seen in both or in none.
        stats.pending = stats.armed.saturating_sub(stats.fired + stats.cancelled + stats.stopped);
        stats
    }
}
