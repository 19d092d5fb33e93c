//! An entry is the handle of one timer. Every surface is built of entries.
//!
//! ```text
//!     Idle --- poll ---> Armed --- poll finds it fired ----> Fired
//!       ^                  |  \--- poll finds it stopped --> Stopped
//!       +----- reset ------+--------------------------------------+
//! ```
//!
//! An idle entry has no node, and uses nothing that threads share (T5). An armed entry has a node in one shard. The owning thread of that
//! shard arms, moves and cancels under the shard's biased lock. A remote thread does not take the lock, except to drain a remote free list
//! that its push has made 4,096 long:
//!
//! - a later deadline is a compare-and-swap of the state word, as on the owning thread (T4);
//! - a cancel is a swap of the state word, and then the remote thread pushes the node onto the shard's remote free list;
//! - for an earlier deadline or another waker the entry *migrates*: it is cancelled in its shard and armed in the shard of the calling
//!   thread. So a timer follows its task.
//!
//! This file has the entry's fields, its polls and its end; `arm` arms it, `wait_for_slot` waits while the engine is full, `reset` changes
//! its deadline, and `migrate` moves its timer.

mod arm;
mod migrate;
mod reset;
mod wait_for_slot;

use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use tourbillon_queue::Time;

use crate::coop;
use crate::core::thread_shard::{self, ThreadShard};
use crate::core::{Core, CoreRef};
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::shard::node::{Node, NodeHandle, NodeRef};
use crate::shard::slab::{reports_cancels, shard_of};
use crate::shard::state::NodeState;
use crate::shard::{Release, Shard};
use crate::slack::SlackBits;
use crate::sync::fork;

/// The handle of one timer. Dropping it cancels the timer.
///
/// It has two words, so that it is passed in registers.
pub(crate) struct Entry {
    target: Target,
    /// While the entry waits for a slot, the number of its ticket: see [`Entry::capacity_wait`].
    deadline: Time,
}

/// The address of the node while the entry is armed, else that of the core, with the phase and other flags in its low bits. In each phase
/// the entry has one reference to the core.
///
/// ```text
///     core:  ....address....  waiting: 1 bit  slack: 8 bits  held: 1 bit  phase: 2 bits     aligned to 4096
///     node:  ....address...................................  held: 1 bit  phase: 2 bits     aligned to 8; the node has the slack
/// ```
#[derive(Clone, Copy)]
struct Target(*mut ());

/// What the entry knows of its timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryPhase {
    /// It has no node, and may wait for a slot.
    Idle = 0,
    /// It has a node. The timer may have ended since the last poll.
    Armed = 1,
    /// A poll has found that the timer fired.
    Fired = 2,
    /// A poll has found that the engine was shut down.
    Stopped = 3,
}

/// Set in an idle entry that waits for a slot: [`Capacity`](crate::core::capacity::Capacity) then has its waker and its deadline.
const WAITING: usize = 1 << (SLACK_SHIFT + u8::BITS);
const PHASE: usize = 0b11;
const HELD: usize = 0b100;
const SLACK_SHIFT: u32 = 3;
const SLACK: usize = (u8::MAX as usize) << SLACK_SHIFT;

const _: () = assert!(align_of::<Core>() > WAITING | SLACK | HELD | PHASE);
const _: () = assert!(align_of::<Node>() > HELD | PHASE);
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Entry>() == 16);

// SAFETY: an entry has addresses of a node and of a core, which any thread may use: the thread that has the entry by `&mut` is the handle
// of the node (see `shard::state`), and asks `thread_shard` whether it is also the owner of the node's shard.
unsafe impl Send for Entry {}
// SAFETY: with a shared reference a thread reads only the entry's fields, the core, which is `Sync`, and of the node the state word, which
// is atomic, and the slack, which a thread writes only if it has the entry by `&mut`.
unsafe impl Sync for Entry {}

impl Target {
    #[inline(always)]
    fn core(core: NonNull<Core>, slack: SlackBits, held: bool, phase: EntryPhase) -> Target {
        let slack = usize::from(slack.to_bits()) << SLACK_SHIFT;
        let bits = slack | if held { HELD } else { 0 } | phase as usize;
        Target(core.as_ptr().map_addr(|address| address | bits).cast())
    }

    #[inline(always)]
    fn node(handle: NodeHandle, held: bool) -> Target {
        let bits = if held { HELD } else { 0 } | EntryPhase::Armed as usize;
        Target(handle.node().as_ptr().as_ptr().map_addr(|address| address | bits).cast())
    }

    #[inline(always)]
    fn phase(self) -> EntryPhase {
        match self.0.addr() & PHASE {
            0 => EntryPhase::Idle,
            1 => EntryPhase::Armed,
            2 => EntryPhase::Fired,
            _ => EntryPhase::Stopped,
        }
    }

    #[inline(always)]
    fn is_held(self) -> bool {
        self.0.addr() & HELD != 0
    }

    #[inline(always)]
    fn without(self, bits: usize) -> *mut () {
        self.0.map_addr(|address| address & !bits)
    }
}

impl Entry {
    /// Returns an idle entry that is due at `deadline` on the clock of that engine; never means never in virtual time too.
    pub(crate) fn on(core: &CoreRef, deadline: Time) -> Entry {
        let mut entry = thread_shard::with(core.as_ptr(), |local| Entry::idle(local, deadline));
        entry.set_due(deadline);
        entry
    }

    /// Returns an idle entry that is due at `deadline` on the clock of the engine of `local`.
    #[inline(always)]
    pub(crate) fn idle(local: &ThreadShard, deadline: Time) -> Entry {
        let target = Target::core(local.take_ref(), local.core().slack, false, EntryPhase::Idle);
        Entry { target, deadline: local.core().deadline(deadline) }
    }

    /// Returns the deadline, also while the entry is held.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_std(self.core().clock.std_of(self.stored_deadline()))
    }

    /// Returns the deadline on the engine's clock, also while the entry is held.
    pub(crate) fn deadline_on_clock(&self) -> Time {
        self.stored_deadline()
    }

    /// Returns the time on the engine's clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_std(self.core().clock.now_std())
    }

    /// Returns how the timer has ended, as far as this thread can see.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.phase() {
            EntryPhase::Idle if self.is_waiting() => self.has_ended_waiting().then_some(Outcome::Fired),
            EntryPhase::Idle => None,
            EntryPhase::Fired => Some(Outcome::Fired),
            EntryPhase::Stopped => Some(Outcome::Stopped),
            EntryPhase::Armed => match self.node().state().load() {
                NodeState::Fired => Some(Outcome::Fired),
                NodeState::Stopped => Some(Outcome::Stopped),
                _ => None,
            },
        }
    }

    /// Returns whether the entry is armed and its timer has not ended.
    pub(crate) fn is_pending(&self) -> bool {
        self.phase() == EntryPhase::Armed && self.outcome().is_none()
    }

    /// Returns whether the entry has a node, also if its timer has ended.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_armed(&self) -> bool {
        self.phase() == EntryPhase::Armed
    }

    /// Returns whether the entry is [held](Entry::hold).
    pub(crate) fn is_held(&self) -> bool {
        self.target.is_held()
    }

    /// Returns the shard of an armed entry.
    #[inline(always)]
    fn shard(&self) -> &Shard {
        // SAFETY: the header of the node's chunk has the address of the shard that owns the node. The core keeps its shards, and the entry
        // has a reference to the core as long as `self` lives.
        unsafe { shard_of(self.node()).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the entry has a reference to the core as long as `self` lives.
        unsafe { self.core_ptr().as_ref() }
    }

    /// Sets the slack. An armed entry stays armed and keeps its slot within the capacity; one that has ended becomes idle.
    pub(crate) fn set_slack(&mut self, slack: SlackBits) {
        if self.phase() == EntryPhase::Armed {
            return self.arm_with_slack(slack);
        }
        self.set_phase(EntryPhase::Idle);
        self.set_slack_when_idle(slack);
    }

    fn set_slack_when_idle(&mut self, slack: SlackBits) {
        let bits = usize::from(slack.to_bits()) << SLACK_SHIFT;
        self.target = Target(self.target.0.map_addr(|address| address & !SLACK | bits));
    }

    /// Returns the outcome if the timer has ended. Else arms the entry if it is idle, and the waker is woken when the timer ends.
    #[inline(always)]
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        self.poll_then(context.waker(), |outcome, _| Poll::Ready(outcome))
    }

    /// [Polls](Entry::poll) for a future of the user: returns `Pending` for a result that is ready at once if the task has to yield.
    #[inline(always)]
    pub(crate) fn poll_cooperatively(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        // The most frequent poll, written out so that it needs only the waker of the context.
        if self.phase() == EntryPhase::Idle && !self.is_waiting() && self.arm(context.waker()) == Ok(Poll::Pending) {
            return Poll::Pending;
        }
        self.poll_with_budget(context)
    }

    /// [Polls cooperatively](Entry::poll_cooperatively) an entry that has been armed, has ended, or cannot be armed.
    #[inline(never)]
    fn poll_with_budget(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let waker = context.waker();
        // If the task has to yield, the outcome is not lost: the next poll returns it.
        self.poll_then(waker, |outcome, result| coop::poll_result(context, result).map(|()| outcome))
    }

    /// Polls the entry, and passes an outcome to `finish`, together with whether the task has waited for it.
    #[inline(always)]
    fn poll_then(
        &mut self,
        waker: &Waker,
        finish: impl FnOnce(Outcome, coop::Result) -> Poll<Outcome>,
    ) -> Poll<Outcome> {
        let (poll, result) = match self.phase() {
            EntryPhase::Idle if self.is_waiting() => (self.poll_waiting(waker), coop::Result::Awaited),
            EntryPhase::Idle => match self.arm(waker) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(ready) => (ready, coop::Result::AtOnce),
                Err(_) => (self.poll_when_full(waker), coop::Result::AtOnce),
            },
            EntryPhase::Armed => (self.poll_armed(waker), coop::Result::Awaited),
            EntryPhase::Fired => (Poll::Ready(Outcome::Fired), coop::Result::AtOnce),
            EntryPhase::Stopped => (Poll::Ready(Outcome::Stopped), coop::Result::AtOnce),
        };
        match poll {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => finish(outcome, result),
        }
    }

    /// Returns whether an outcome of the next poll is one that the task has waited for.
    pub(crate) fn kind_of_result(&self) -> coop::Result {
        let has_waited = self.phase() == EntryPhase::Armed || self.is_waiting();
        if has_waited { coop::Result::Awaited } else { coop::Result::AtOnce }
    }

    /// Polls an armed entry.
    #[inline]
    fn poll_armed(&mut self, waker: &Waker) -> Poll<Outcome> {
        let node = self.node();
        let same = self.handle().has_waker(waker);
        // In this order: if the node is still armed, the shard had not taken the waker when it was compared, and will wake it.
        match node.state().load() {
            // The engine was inherited by a fork: its driver is in the parent process, and the timer would never fire.
            NodeState::Armed(_) if fork::generation() != 0 && self.core().is_inherited() => {
                self.end_as(Outcome::Stopped)
            }
            NodeState::Armed(_) if same => Poll::Pending,
            NodeState::Armed(_) => self.change_waker(waker),
            ended => self.end_as(ended.outcome()),
        }
    }

    /// Makes the entry idle, and cancels its timer if it is armed.
    fn make_idle(&mut self) {
        if self.phase() == EntryPhase::Armed {
            // The waker's destructor is the user's code and may panic: it runs last.
            let waker = self.cancel_node();
            self.set_phase(EntryPhase::Idle);
            return drop(waker);
        }
        self.set_phase(EntryPhase::Idle);
    }

    /// Gives the node of an armed entry back to its shard, and makes the entry idle. Returns the waker if that cancelled the timer, or how
    /// the timer had ended before.
    #[inline(always)]
    fn release_node(&mut self, release: Release) -> Result<Waker, Outcome> {
        // The release consumes the right to the node, and the target is replaced below.
        let (handle, slack) = (self.handle(), self.slack());
        let shard = self.shard();
        let waker = thread_shard::with_owner(shard, |local| match local {
            Some(local) => local.shard().release_owned(handle, release),
            None => shard.release_remote(handle, release),
        });
        let core = Core::of_shard(shard);
        self.target = Target::core(core, slack, self.target.is_held(), EntryPhase::Idle);
        waker
    }

    /// Releases the node of an ended timer, and ends the entry with `outcome`.
    fn end_as(&mut self, outcome: Outcome) -> Poll<Outcome> {
        let waker = self.cancel_node();
        let ready = self.ended(outcome);
        drop(waker);
        ready
    }

    fn ended(&mut self, outcome: Outcome) -> Poll<Outcome> {
        self.set_phase(if outcome == Outcome::Fired { EntryPhase::Fired } else { EntryPhase::Stopped });
        Poll::Ready(outcome)
    }

    /// Releases the node of an armed entry (see [`release_node`](Entry::release_node)), and frees its slot within the capacity if that
    /// cancelled the timer. (If the timer had ended before, the thread that ended it has freed the slot.)
    #[inline(always)]
    fn cancel_node(&mut self) -> Result<Waker, Outcome> {
        if reports_cancels(self.node()) {
            return self.cancel_and_free_slot();
        }
        self.release_node(Release::Cancelled)
    }

    /// [Cancels](Entry::cancel_node) in an engine with a capacity, or in a virtual engine, which has to make its next wake-up exact.
    #[cold]
    #[inline(never)]
    fn cancel_and_free_slot(&mut self) -> Result<Waker, Outcome> {
        let shard = NonNull::from(self.shard());
        let waker = self.release_node(Release::Cancelled);
        if waker.is_ok() {
            if self.core().is_virtual {
                self.core().refresh_and_replan(shard);
            }
            self.free_slot();
        }
        waker
    }

    /// Frees the slot of the entry, if the engine has a capacity.
    #[cold]
    #[inline(never)]
    fn free_slot(&self) {
        self.core().free_slots(1, &mut Vec::new());
    }

    /// Returns the effective deadline: `NEVER` while the entry is held.
    #[inline(always)]
    fn due(&self) -> Time {
        if self.target.is_held() { Time::NEVER } else { self.stored_deadline() }
    }

    /// Returns the deadline, from the capacity if the entry waits for a slot.
    #[inline(always)]
    fn stored_deadline(&self) -> Time {
        if self.is_waiting() { self.waiting_deadline() } else { self.deadline }
    }

    /// Returns whether the entry waits for a slot.
    #[inline(always)]
    fn is_waiting(&self) -> bool {
        self.target.0.addr() & (WAITING | PHASE) == WAITING | EntryPhase::Idle as usize
    }

    /// Returns whether the effective deadline is past.
    pub(crate) fn is_past(&self) -> bool {
        self.due() <= self.core().clock.now()
    }

    #[inline(always)]
    fn node(&self) -> NodeRef {
        debug_assert!(self.phase() == EntryPhase::Armed);
        // SAFETY: in the phase `Armed` the target is the address of a node with bits that are masked off here, so it is not null. The node is
        // in a chunk of a shard, which the core keeps, and the entry has a reference to the core.
        unsafe { NodeRef::new(NonNull::new_unchecked(self.target.without(HELD | PHASE).cast::<Node>())) }
    }

    /// Returns the right of an armed entry to its node. The caller lends it to a call, or releases the node and replaces the target.
    #[inline(always)]
    fn handle(&self) -> NodeHandle {
        // SAFETY: the shard gave this right to the entry when it was armed, and the entry is in the phase `Armed` until it releases the node.
        // A thread that has the entry by `&mut` is the only one to use the right. Threads that have it by `&` use the right only to read the
        // slack, which a thread writes only if it has the entry by `&mut`.
        unsafe { NodeHandle::new(self.node()) }
    }

    #[inline(always)]
    fn core_ptr(&self) -> NonNull<Core> {
        match self.phase() {
            EntryPhase::Armed => Core::of_shard(self.shard()),
            // SAFETY: in the other phases the target is the address of a core with bits that are masked off here, so it is not null.
            _ => unsafe { NonNull::new_unchecked(self.target.without(WAITING | SLACK | HELD | PHASE).cast()) },
        }
    }

    #[inline(always)]
    fn phase(&self) -> EntryPhase {
        self.target.phase()
    }

    /// Sets the phase, between phases in which the target is the core.
    fn set_phase(&mut self, phase: EntryPhase) {
        debug_assert!(self.phase() != EntryPhase::Armed && phase != EntryPhase::Armed);
        self.target = Target(self.target.0.map_addr(|address| address & !PHASE | phase as usize));
    }

    fn set_held(&mut self, held: bool) {
        let bits = if held { HELD } else { 0 };
        self.target = Target(self.target.0.map_addr(|address| address & !HELD | bits));
    }

    #[inline(always)]
    fn slack(&self) -> SlackBits {
        match self.phase() {
            EntryPhase::Armed => self.handle().slack(),
            _ => SlackBits::from_bits((self.target.0.addr() >> SLACK_SHIFT) as u8),
        }
    }

    /// Ends an entry that is dropped, if its timer is armed in this thread's current shard, and the engine need not know of cancels: cancels
    /// the timer, returns the entry's reference to the core, and returns the waker. Else does nothing.
    #[inline(always)]
    fn end_quickly(&mut self) -> Option<Waker> {
        if self.phase() != EntryPhase::Armed || reports_cancels(self.node()) {
            return None;
        }
        let local = thread_shard::current().filter(|local| local.owns(self.shard()))?;
        let waker = local.shard().cancel_quickly(&self.handle())?;
        // SAFETY: the thread shard has the same core, since it owns the timer's shard. The reference is the entry's, and the caller does
        // not use the entry after this.
        unsafe { local.put_ref() };
        Some(waker)
    }

    /// Ends an entry that is dropped, if its timer is armed in another shard of this thread's current engine, and the engine need not know of
    /// cancels: as [`end_quickly`](Entry::end_quickly), without the lock of that shard.
    #[inline(always)]
    fn end_remotely(&mut self) -> Option<Result<Waker, Outcome>> {
        if self.phase() != EntryPhase::Armed || reports_cancels(self.node()) {
            return None;
        }
        // The owning thread has written it.
        self.node().prefetch_to_write();
        let shard = self.shard();
        let local = thread_shard::current()
            .filter(|local| !local.owns(shard) && local.core().as_ptr() == Core::of_shard(shard))?;
        let waker = shard.release_remote(self.handle(), Release::Cancelled);
        // SAFETY: the thread shard has the same core. The reference is the entry's, and the caller does not use the entry after this.
        unsafe { local.put_ref() };
        Some(waker)
    }

    /// Ends an entry that is dropped.
    #[inline(never)]
    fn end_slowly(&mut self) {
        if let Some(waker) = self.end_remotely() {
            // The waker's destructor is the user's code and may panic: it runs last.
            return drop(waker);
        }
        let mut waker = None;
        if self.phase() == EntryPhase::Armed {
            waker = Some(self.cancel_node());
        } else if self.is_waiting() {
            waker = self.leave_wait_queue().1.map(Ok);
        }
        // SAFETY: the reference is the entry's, and the entry does not use the core after this.
        unsafe { thread_shard::put_ref(self.core_ptr()) };
        // The waker's destructor is the user's code and may panic: it runs last.
        drop(waker);
    }
}

impl Drop for Entry {
    #[inline(always)]
    fn drop(&mut self) {
        match self.end_quickly() {
            // The waker's destructor is the user's code and may panic: it runs last.
            Some(waker) => drop(waker),
            None => self.end_slowly(),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Engine};

    const MILLI: Duration = Duration::from_millis(1);

    fn poll(entry: &mut Entry) -> Poll<Outcome> {
        entry.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn b6_an_entry_is_pending_from_its_arming_to_its_end() {
        let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
        let mut entry = Entry::on(engine.core(), engine.core().clock.now() + MILLI.into());
        assert!(!entry.is_pending());
        assert!(poll(&mut entry).is_pending() && entry.is_pending());
        engine.advance(MILLI);
        assert!(!entry.is_pending(), "it has ended, although no poll has seen that");
        assert_eq!(poll(&mut entry), Poll::Ready(Outcome::Fired));
        assert!(!entry.is_pending());
    }

    #[test]
    fn b6_an_entry_that_is_given_another_time_is_idle_and_then_due_at_that_time_alone() {
        let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
        let mut entry = Entry::on(engine.core(), Time::NEVER);
        for _ in 0..2 {
            let start = engine.core().clock.now();
            entry.set_due(start + MILLI.into());
            assert!(poll(&mut entry).is_pending());
            entry.set_due(start + (2 * MILLI).into());
            assert!(!entry.is_pending());
            assert!(poll(&mut entry).is_pending());
            assert_eq!((engine.advance(MILLI), engine.advance(MILLI)), (0, 1));
        }
    }
}
