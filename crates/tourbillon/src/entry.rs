//! The handle of one timer: what every surface is made of.
//!
//! ```text
//!     Idle --- poll ---> Armed --- poll finds it fired ---> Fired
//!       ^                  |  \--- poll finds it stopped -> Stopped
//!       +----- reset ------+-------------------------------------+
//! ```
//!
//! An idle entry touches nothing shared (T5). An armed one has a node in some shard. What is done from the thread that has that
//! shard as its home is done under the shard's lock, of which that thread is the owner. From another thread:
//!
//! - pushing the deadline later is a compare-and-swap of the state word, as at home (T4);
//! - cancelling is a compare-and-swap, and the node is sent home;
//! - an earlier deadline or another waker *moves house*: the entry is cancelled where it was and armed at the home of the
//!   calling thread. So a timer follows its task.

use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon_queue::Time;

use crate::clock::representable;
use crate::coop;
use crate::core::capacity::{CapacityWait, Claim, Moved, WaitEnd, WaitProgress, WaitTicket};
use crate::core::error::ArmError;
use crate::core::thread_shard::{self, ThreadShard};
use crate::core::{Core, CoreRef};
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::shard::node::{Node, NodeHandle, NodeRef};
use crate::shard::slab::shard_of;
use crate::shard::state::{Later, Seen};
use crate::shard::{Access, ArmKind, NotifyDriver, Release, Shard};
use crate::slack::SlackBits;
use crate::sync::fork;

/// One timer. Dropping it cancels it.
///
/// Two words, and no more: those travel in registers.
pub(crate) struct Entry {
    target: Target,
    /// While it waits for room, the number of its ticket: see [`Entry::capacity_wait`].
    deadline: Time,
}

/// The node while the entry is armed, else the core; and in the low bits of the address the phase and what else the entry has
/// to remember. Either way the core is kept by one reference that is the entry's.
///
/// ```text
///     core:  ....address....  waiting: 1 bit  mode: 8 bits  held: 1 bit      phase: 2 bits       aligned to 4096
///     node:  ....address..................................  held: 1 bit      phase: 2 bits       aligned to 8; it knows its mode
/// ```
#[derive(Clone, Copy)]
struct Target(*mut ());

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle = 0,
    Armed = 1,
    Fired = 2,
    Stopped = 3,
}

/// The outcome of [`Entry::arm_on`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Arming {
    Armed(NotifyDriver),
    /// The deadline is past: nothing was armed.
    Past,
    /// The engine has been shut down, or the shard is full.
    Refused,
}

/// An idle entry that waits for room: its [`Capacity`](crate::core::capacity::Capacity) has its waker and its deadline.
const WAITING: usize = 1 << (MODE_SHIFT + u8::BITS);
const PHASE: usize = 0b11;
const HELD: usize = 0b100;
const MODE_SHIFT: u32 = 3;
const MODE: usize = (u8::MAX as usize) << MODE_SHIFT;

const _: () = assert!(align_of::<Core>() > WAITING | MODE | HELD | PHASE);
const _: () = assert!(align_of::<Node>() > HELD | PHASE);
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Entry>() == 16);

// SAFETY: whichever thread has the entry is the handle's party; see the module.
unsafe impl Send for Entry {}
// SAFETY: by a shared reference only the state word, which is atomic, and the entry's own fields are read.
unsafe impl Sync for Entry {}

impl Target {
    #[inline(always)]
    fn core(core: NonNull<Core>, slack: SlackBits, held: bool, phase: Phase) -> Target {
        let slack = usize::from(slack.to_bits()) << MODE_SHIFT;
        let bits = slack | if held { HELD } else { 0 } | phase as usize;
        Target(core.as_ptr().map_addr(|address| address | bits).cast())
    }

    #[inline(always)]
    fn node(handle: NodeHandle, held: bool) -> Target {
        let bits = if held { HELD } else { 0 } | Phase::Armed as usize;
        Target(handle.node().as_ptr().as_ptr().map_addr(|address| address | bits).cast())
    }

    #[inline(always)]
    fn phase(self) -> Phase {
        match self.0.addr() & PHASE {
            0 => Phase::Idle,
            1 => Phase::Armed,
            2 => Phase::Fired,
            _ => Phase::Stopped,
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
    /// Due at `deadline` on the clock of that engine; never means never in virtual time too.
    pub(crate) fn on(core: &CoreRef, deadline: Time) -> Entry {
        let mut entry = thread_shard::with(core.as_ptr(), |local| Entry::idle(local, deadline));
        entry.set_due(deadline);
        entry
    }

    /// Due at `deadline` on the clock of that engine.
    #[inline(always)]
    pub(crate) fn idle(local: &ThreadShard, deadline: Time) -> Entry {
        let target = Target::core(local.take_ref(), local.core().slack, false, Phase::Idle);
        Entry { target, deadline: local.core().deadline(deadline) }
    }

    /// Its deadline, also while it is held.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_std(self.core().clock.std_of(self.kept_deadline()))
    }

    /// The same on its engine's clock.
    pub(crate) fn deadline_on_clock(&self) -> Time {
        self.kept_deadline()
    }

    /// What its engine's clock shows.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_std(self.core().clock.now_std())
    }

    /// How it has ended, as far as can be seen.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.phase() {
            Phase::Idle if self.is_waiting() => self.has_ended_waiting().then_some(Outcome::Fired),
            Phase::Idle => None,
            Phase::Fired => Some(Outcome::Fired),
            Phase::Stopped => Some(Outcome::Stopped),
            Phase::Armed => match self.node().state().see() {
                Seen::Fired => Some(Outcome::Fired),
                Seen::Stopped => Some(Outcome::Stopped),
                _ => None,
            },
        }
    }

    /// Whether it is armed and has not ended.
    pub(crate) fn is_pending(&self) -> bool {
        self.phase() == Phase::Armed && self.outcome().is_none()
    }

    /// Whether it has a node, be it that it has ended.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_armed(&self) -> bool {
        self.phase() == Phase::Armed
    }

    /// The shard of an armed entry.
    #[inline(always)]
    fn shard(&self) -> &Shard {
        // SAFETY: the entry holds a reference to the core, which keeps its shards.
        unsafe { shard_of(self.node()).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the entry holds a reference to the core, which keeps its shards.
        unsafe { self.core_ptr().as_ref() }
    }

    /// Changes how late it may be. An armed one is armed anew when it is polled.
    pub(crate) fn set_slack(&mut self, slack: SlackBits) {
        self.make_idle();
        let bits = usize::from(slack.to_bits()) << MODE_SHIFT;
        self.target = Target(self.target.0.map_addr(|address| address & !MODE | bits));
    }

    /// `Fired` or `Stopped` when it has ended; else the waker is woken when it does. Arms it if it is not.
    #[inline(always)]
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        self.poll_and_tell(context.waker(), |outcome, _| Poll::Ready(outcome))
    }

    /// [Polls](Entry::poll) it for a future of the user's: a result that is ready at once may have to wait, so that the task yields.
    #[inline(always)]
    pub(crate) fn poll_cooperatively(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        // What nearly every poll is, written out so that it needs nothing of the context but its waker.
        if self.phase() == Phase::Idle && !self.is_waiting() && self.arm(context.waker()) == Ok(Poll::Pending) {
            return Poll::Pending;
        }
        self.poll_with_budget(context)
    }

    /// The same for one that has been armed, has ended, or cannot be armed.
    #[inline(never)]
    fn poll_with_budget(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let waker = context.waker();
        // It has ended, and will say so again.
        self.poll_and_tell(waker, |outcome, result| coop::poll_result(context, result).map(|()| outcome))
    }

    /// Polls it, and gives an outcome to `tell`, together with whether the task has waited for it.
    #[inline(always)]
    fn poll_and_tell(
        &mut self,
        waker: &Waker,
        tell: impl FnOnce(Outcome, coop::Result) -> Poll<Outcome>,
    ) -> Poll<Outcome> {
        let (poll, result) = match self.phase() {
            Phase::Idle if self.is_waiting() => (self.poll_waiting(waker), coop::Result::Awaited),
            Phase::Idle => match self.arm(waker) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(ready) => (ready, coop::Result::AtOnce),
                Err(_) => (self.poll_when_full(waker), coop::Result::AtOnce),
            },
            Phase::Armed => (self.poll_armed(waker), coop::Result::Awaited),
            Phase::Fired => (Poll::Ready(Outcome::Fired), coop::Result::AtOnce),
            Phase::Stopped => (Poll::Ready(Outcome::Stopped), coop::Result::AtOnce),
        };
        match poll {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => tell(outcome, result),
        }
    }

    /// Whether a result of the next poll is one for which the task has waited.
    pub(crate) fn kind_of_result(&self) -> coop::Result {
        let has_waited = self.phase() == Phase::Armed || self.is_waiting();
        if has_waited { coop::Result::Awaited } else { coop::Result::AtOnce }
    }

    /// Arms an idle one, or finds that it has ended.
    ///
    /// # Errors
    /// The engine holds as many timers as it may.
    #[inline(always)]
    pub(crate) fn arm(&mut self, waker: &Waker) -> Result<Poll<Outcome>, ArmError> {
        debug_assert!(self.phase() == Phase::Idle && !self.is_waiting());
        if self.core().capacity.is_some() {
            return self.arm_within_capacity(waker);
        }
        let mut waker = Some(waker.clone());
        let arming = thread_shard::with(self.core_ptr(), |local| self.arm_on(local, &mut waker));
        self.finish_arming(arming, waker)
    }

    /// Arms an idle entry with the waker in `waker`, in an engine without a capacity, for a caller that has found the thread's shard of that
    /// engine. The caller then calls [`finish_arming`](Entry::finish_arming), outside of the closure that has `local`.
    #[inline(always)]
    fn arm_on(&mut self, local: &ThreadShard, waker: &mut Option<Waker>) -> Arming {
        let (due, slack) = (self.due(), self.slack());
        if is_past_at_first_sight(local, due, slack) {
            return Arming::Past;
        }
        let Some(taken) = waker.take() else { return Arming::Past };
        let armed = local.shard().arm(ArmKind::New, due, slack, taken, waker);
        let Some(handle) = armed.handle else { return Arming::Refused };
        self.target = Target::node(handle, self.target.is_held());
        Arming::Armed(armed.notify_driver)
    }

    /// Returns an armed entry that is due in `duration` from now, with the waker in `waker`, in the engine of `local`. `None`: the waker is
    /// still there, and the entry has to be created and polled, because it may be due already, or there may be no room for it. The
    /// caller tells the driver, if it has to be told, outside of the closure that has `local`.
    #[inline(always)]
    pub(crate) fn armed_on(
        local: &ThreadShard,
        duration: Duration,
        waker: &mut Option<Waker>,
    ) -> Option<(Entry, NotifyDriver)> {
        let core = local.core();
        if core.capacity.is_some() || duration.is_zero() {
            return None;
        }
        let deadline = core.deadline(local.deadline(duration));
        let mut refused = None;
        let armed = local.shard().arm(ArmKind::New, deadline, core.slack, waker.take()?, &mut refused);
        *waker = refused;
        let target = Target::node(armed.handle?, false);
        // From here on the entry keeps the core.
        let _kept = local.take_ref();
        Some((Entry { target, deadline }, armed.notify_driver))
    }

    /// Does what is left of arming outside of the thread's shard: tells the driver, or drops the waker that was not used.
    #[inline(always)]
    fn finish_arming(&mut self, arming: Arming, waker: Option<Waker>) -> Result<Poll<Outcome>, ArmError> {
        if let Arming::Armed(notify_driver) = arming {
            if notify_driver == NotifyDriver::Yes {
                self.tell();
            }
            return Ok(Poll::Pending);
        }
        let ended = if arming == Arming::Past { Ok(self.ended_when_idle()) } else { self.refused() };
        // The waker's destructor is the user's and may panic: it comes last.
        drop(waker);
        ended
    }

    /// Arms an idle entry in an engine that has a capacity.
    #[cold]
    #[inline(never)]
    fn arm_within_capacity(&mut self, waker: &Waker) -> Result<Poll<Outcome>, ArmError> {
        let (due, slack) = (self.due(), self.slack());
        if thread_shard::with(self.core_ptr(), |local| is_past_at_first_sight(local, due, slack)) {
            return Ok(self.ended_when_idle());
        }
        // Before a slot is reserved, which would be lost if this panics.
        let waker = waker.clone();
        if let Some(capacity) = &self.core().capacity
            && !capacity.take()
        {
            return Err(ArmError::Full { capacity: capacity.most });
        }
        self.arm_with_room(waker)
    }

    /// Arms it before it is polled, so that whoever makes it learns if that cannot be.
    ///
    /// # Errors
    /// The engine holds as many timers as it may, or has been shut down.
    pub(crate) fn armed(mut self) -> Result<Entry, ArmError> {
        match self.arm(Waker::noop()) {
            Ok(Poll::Ready(Outcome::Stopped)) => Err(ArmError::Stopped),
            Ok(_) => Ok(self),
            // There will be no room any more.
            Err(_) if self.core().is_closed() => Err(ArmError::Stopped),
            Err(full) => Err(full),
        }
    }

    /// Polls an idle entry that waits for room.
    #[cold]
    fn poll_waiting(&mut self, waker: &Waker) -> Poll<Outcome> {
        // Cloned before a place is taken, which would be lost if a clone panics.
        let (mine, kept) = (waker.clone(), waker.clone());
        if self.core().is_closed() || self.is_past() {
            return self.end_waiting();
        }
        let Some(capacity) = &self.core().capacity else { return Poll::Pending };
        match capacity.poll(self.ticket(), kept) {
            WaitProgress::Granted(deadline) => {
                self.set_capacity_wait(CapacityWait::None(deadline));
                self.arm_in_place(mine, waker)
            }
            WaitProgress::Ended(deadline) => {
                self.set_capacity_wait(CapacityWait::None(deadline));
                self.ended(Outcome::Fired)
            }
            // A shutdown may have looked for wakers before this one was there.
            WaitProgress::Waiting(_) if self.core().is_closed() => self.end_waiting(),
            WaitProgress::Waiting(before) => {
                drop(before);
                Poll::Pending
            }
        }
    }

    /// Polls an idle entry for which there was no room: takes a place, or begins to wait for one.
    #[cold]
    fn poll_when_full(&mut self, waker: &Waker) -> Poll<Outcome> {
        // Cloned before a place is taken, which would be lost if a clone panics.
        let (mine, kept) = (waker.clone(), waker.clone());
        if self.core().is_closed() {
            return self.ended(Outcome::Stopped);
        }
        let end = self.wait_end(self.deadline);
        let claim = self.core().capacity.as_ref().map_or(Claim::Place, |capacity| capacity.take_or_wait(end, kept));
        let Claim::Wait(ticket) = claim else { return self.arm_in_place(mine, waker) };
        self.set_capacity_wait(CapacityWait::Waiting(ticket));
        // A shutdown may have looked for wakers before this one was there.
        if self.core().is_closed() {
            return self.end_waiting();
        }
        self.core().tell_of_waits();
        Poll::Pending
    }

    /// Arms it in the place that it has taken.
    fn arm_in_place(&mut self, mine: Waker, waker: &Waker) -> Poll<Outcome> {
        self.arm_with_room(mine).unwrap_or_else(|_| {
            // A shard that has a billion timers. There is nobody who would tell when it has fewer.
            waker.wake_by_ref();
            Poll::Pending
        })
    }

    /// Ends a wait for room, because the deadline is past or the engine is closed.
    fn end_waiting(&mut self) -> Poll<Outcome> {
        let (has_ended, waker) = self.leave_line();
        let ready = if has_ended { self.ended(Outcome::Fired) } else { self.ended_when_idle() };
        drop(waker);
        ready
    }

    /// Arms it, its place within the capacity taken.
    fn arm_with_room(&mut self, waker: Waker) -> Result<Poll<Outcome>, ArmError> {
        let mut refused = None;
        if self.try_arm(ArmKind::New, waker, &mut refused) {
            return Ok(Poll::Pending);
        }
        let ended = self.refused();
        // The waker's destructor is the user's and may panic: it comes last.
        drop(refused);
        ended
    }

    /// Gives it a node at the home of the calling thread; or else the waker back.
    fn try_arm(&mut self, kind: ArmKind, waker: Waker, refused: &mut Option<Waker>) -> bool {
        let (deadline, slack) = (self.due(), self.slack());
        let armed =
            thread_shard::with(self.core_ptr(), |local| local.shard().arm(kind, deadline, slack, waker, refused));
        let Some(handle) = armed.handle else { return false };
        self.target = Target::node(handle, self.target.is_held());
        if armed.notify_driver == NotifyDriver::Yes {
            self.tell();
        }
        true
    }

    /// Tells the driver of the shard of an armed entry that it is due before all others there.
    #[cold]
    pub(crate) fn tell(&self) {
        let shard = self.shard();
        let by = thread_shard::with_owner(shard, |local| if local.is_some() { Access::Owner } else { Access::Remote });
        self.core().tell(shard, by);
    }

    #[cold]
    fn refused(&mut self) -> Result<Poll<Outcome>, ArmError> {
        self.give_room_back();
        match self.core().is_closed() {
            true => Ok(self.ended(Outcome::Stopped)),
            false => Err(ArmError::Full { capacity: crate::shard::slab::MOST as usize }),
        }
    }

    /// Its deadline is past, so it need not be armed.
    fn ended_when_idle(&mut self) -> Poll<Outcome> {
        self.ended(if self.core().is_closed() { Outcome::Stopped } else { Outcome::Fired })
    }

    #[inline]
    fn poll_armed(&mut self, waker: &Waker) -> Poll<Outcome> {
        let node = self.node();
        let same = self.handle().has_waker(waker);
        // In this order: if it is armed still, the waker that was compared had not been taken.
        match node.state().see() {
            // Its driver is in the parent process.
            Seen::Armed(_) if fork::generation() != 0 && self.core().is_inherited() => self.end_as(Outcome::Stopped),
            Seen::Armed(_) if same => Poll::Pending,
            Seen::Armed(_) => self.change_waker(waker),
            ended => self.end_as(ended.outcome()),
        }
    }

    #[cold]
    fn change_waker(&mut self, waker: &Waker) -> Poll<Outcome> {
        let mut new = Some(waker.clone());
        let changed = thread_shard::with_owner(self.shard(), |local| {
            local.map(|local| local.shard().change_waker(&self.handle(), &mut new))
        });
        match changed {
            Some(Some(old)) => {
                drop(old);
                Poll::Pending
            }
            Some(None) => self.poll_armed(waker),
            None => self.migrate(new),
        }
    }

    /// Takes it away from where it is and arms it here, with another waker or the one that it had.
    ///
    /// It keeps its place within the capacity. While it is between two shards nothing of the user's runs: were that to panic, the
    /// timer would be lost.
    fn migrate(&mut self, new: Option<Waker>) -> Poll<Outcome> {
        let old = match self.end(Release::Migrating) {
            Ok(old) => old,
            Err(outcome) => return self.ended(outcome),
        };
        let (waker, left) = match new {
            Some(new) => (new, Some(old)),
            None => (old, None),
        };
        let poll = if self.is_past() { self.fire(waker) } else { self.arm_again(waker) };
        drop(left);
        poll
    }

    /// Arms one that is between two shards.
    fn arm_again(&mut self, waker: Waker) -> Poll<Outcome> {
        let mut refused = None;
        if self.try_arm(ArmKind::Migrated, waker, &mut refused) {
            return Poll::Pending;
        }
        let poll = self.refused().unwrap_or(Poll::Pending);
        // It cannot be armed here. Whoever waits for it is to look.
        refused.into_iter().for_each(|waker| self.core().wake_one(waker));
        poll
    }

    /// Ends one whose deadline is past and that is between two shards.
    fn fire(&mut self, waker: Waker) -> Poll<Outcome> {
        let due = self.due();
        thread_shard::with(self.core_ptr(), |local| {
            local.shard().count_fired(local.now() - due);
        });
        self.give_room_back();
        let ready = self.ended(Outcome::Fired);
        self.core().wake_one(waker);
        ready
    }

    /// Sets another deadline, in any state. An armed one keeps its waker, which is woken at the new deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.reset_on_clock(self.core().clock.time_of(deadline.into_std()));
    }

    /// The same, for a deadline on its engine's clock.
    pub(crate) fn reset_on_clock(&mut self, deadline: Time) {
        let (before, deadline) = (self.due(), self.core().deadline(deadline));
        self.set_held(false);
        if self.is_waiting() {
            return self.deadline_changed_in_line(deadline);
        }
        self.deadline = deadline;
        self.deadline_changed(before);
    }

    /// Makes it idle, with another deadline on its engine's clock; the next poll arms it. Unlike [`reset`](Entry::reset) it
    /// wakes nobody, and never means never in virtual time too.
    pub(crate) fn set_due(&mut self, deadline: Time) {
        self.make_idle();
        let deadline = representable(deadline);
        if !self.is_waiting() {
            self.deadline = deadline;
        } else if self.move_wait(deadline) == Moved::Ended {
            drop(self.leave_line());
            self.deadline = deadline;
        }
    }

    /// Takes it out of the queue, or ends its wait for room, and drops its waker. Its deadline is kept; the next poll arms it again.
    pub(crate) fn disarm(&mut self) {
        self.make_idle();
        drop(self.leave_line());
    }

    /// Waits for ever from now on, until it is let go or reset. Its deadline is kept, and so is its waker.
    pub(crate) fn hold(&mut self) {
        let before = self.due();
        self.set_held(true);
        self.deadline_changed(before);
    }

    /// Ends being held.
    pub(crate) fn let_go(&mut self) {
        let before = self.due();
        self.set_held(false);
        if self.due() != before {
            self.deadline_changed(before);
        }
    }

    fn deadline_changed(&mut self, before: Time) {
        let due = self.due();
        if self.is_waiting() {
            self.deadline_changed_in_line(self.kept_deadline());
        } else if self.phase() != Phase::Armed {
            self.set_phase(Phase::Idle);
        } else if due < before {
            self.set_earlier(due);
        } else if self.core().is_virtual {
            self.put_off(due);
        } else if self.node().state().later(before, due) == Later::Lost {
            self.make_idle();
        }
    }

    /// Sets the deadline of one that waits for room. One that is past needs no room, and ends.
    #[cold]
    fn deadline_changed_in_line(&mut self, deadline: Time) {
        if self.move_wait(deadline) == Moved::Ended {
            // It had ended, so from the next poll on it waits again.
            drop(self.leave_line());
            self.deadline = deadline;
        } else if self.is_past() {
            let (_, waker) = self.leave_line();
            let _ready = self.ended_when_idle();
            waker.into_iter().for_each(|waker| self.core().wake_one(waker));
        }
    }

    /// Sets the deadline of its wait for room, and tells the driver.
    fn move_wait(&mut self, deadline: Time) -> Moved {
        let (ticket, end) = (self.ticket(), self.wait_end(deadline));
        let moved = self.core().capacity_of_process().map_or(Moved::Ended, |capacity| capacity.set_end(ticket, end));
        if moved == Moved::Done {
            self.core().tell_of_waits();
        }
        moved
    }

    /// When its wait for room ends, with this deadline.
    fn wait_end(&self, deadline: Time) -> WaitEnd {
        let due = if self.target.is_held() { Time::NEVER } else { deadline };
        WaitEnd { deadline, due, slack: self.slack() }
    }

    /// Sets a later deadline in an exact engine: the shard hears of it at once.
    #[cold]
    fn put_off(&mut self, due: Time) {
        let core = self.core().to_ref();
        let shard = NonNull::from(self.shard());
        self.set_earlier(due);
        core.cancelled_in(shard);
    }

    /// Moves it to another place in its queue, or to another shard.
    fn set_earlier(&mut self, due: Time) {
        let is_past = self.is_past();
        let moved = thread_shard::with_owner(self.shard(), |local| {
            let local = local.filter(|_| !is_past)?;
            Some(local.shard().move_timer(&self.handle(), due))
        });
        match moved {
            Some(Some(NotifyDriver::Yes)) => self.tell(),
            Some(Some(NotifyDriver::No)) => {}
            Some(None) => self.make_idle(),
            None if self.outcome().is_some() => self.make_idle(),
            None => _ = self.migrate(None),
        }
    }

    /// Cancels it, if it is armed. It can be armed again.
    fn make_idle(&mut self) {
        if self.phase() == Phase::Armed {
            // The waker's destructor is the user's and may panic: it comes last.
            let waker = self.end_and_give_room_back();
            self.set_phase(Phase::Idle);
            return drop(waker);
        }
        self.set_phase(Phase::Idle);
    }

    /// Gives up the node of an armed entry, which is idle afterwards. If that cancelled it, gives the
    /// waker; else how it had ended before.
    #[inline(always)]
    fn end(&mut self, release: Release) -> Result<Waker, Outcome> {
        // The target is replaced below, so the right to the node is used up here.
        let (handle, slack) = (self.handle(), self.slack());
        let shard = self.shard();
        let waker = thread_shard::with_owner(shard, |local| match local {
            Some(local) => local.shard().release_owned(handle, release),
            None => shard.release_remote(handle, release),
        });
        let core = Core::of_shard(shard);
        self.target = Target::core(core, slack, self.target.is_held(), Phase::Idle);
        waker
    }

    /// Gives up the node of an entry that has ended.
    fn end_as(&mut self, outcome: Outcome) -> Poll<Outcome> {
        let waker = self.end_and_give_room_back();
        let ready = self.ended(outcome);
        drop(waker);
        ready
    }

    fn ended(&mut self, outcome: Outcome) -> Poll<Outcome> {
        self.set_phase(if outcome == Outcome::Fired { Phase::Fired } else { Phase::Stopped });
        Poll::Ready(outcome)
    }

    /// Gives up the node of an armed entry, as [`end`](Entry::end) does, and its place within the capacity if that cancelled it. (The
    /// place of one that had ended before was given back by the thread that ended it.)
    #[inline(always)]
    fn end_and_give_room_back(&mut self) -> Result<Waker, Outcome> {
        if self.core().minds_cancels {
            return self.end_and_tell();
        }
        self.end(Release::Cancelled)
    }

    /// The same where something depends on it: the capacity, or the time of an exact engine.
    #[cold]
    #[inline(never)]
    fn end_and_tell(&mut self) -> Result<Waker, Outcome> {
        let shard = NonNull::from(self.shard());
        let waker = self.end(Release::Cancelled);
        if waker.is_ok() {
            if self.core().is_virtual {
                self.core().cancelled_in(shard);
            }
            self.give_room_back();
        }
        waker
    }

    /// Gives its place back, if the engine has a capacity.
    #[cold]
    #[inline(never)]
    fn give_room_back(&self) {
        self.core().give_room_back(1, &mut Vec::new());
    }

    /// When it is due indeed.
    #[inline(always)]
    fn due(&self) -> Time {
        if self.target.is_held() { Time::NEVER } else { self.kept_deadline() }
    }

    /// Its deadline, wherever that is kept.
    #[inline(always)]
    fn kept_deadline(&self) -> Time {
        if self.is_waiting() { self.deadline_in_line() } else { self.deadline }
    }

    #[cold]
    fn deadline_in_line(&self) -> Time {
        self.core().capacity_of_process().map_or(Time::NEVER, |capacity| capacity.deadline(self.ticket()))
    }

    #[cold]
    fn has_ended_waiting(&self) -> bool {
        self.core().capacity_of_process().is_some_and(|capacity| capacity.has_ended(self.ticket()))
    }

    /// Ends its wait for room, if it waits; a place that was reserved for it passes to the next. Says whether the driver had reached its
    /// deadline, and gives the waker that it had there.
    fn leave_line(&mut self) -> (bool, Option<Waker>) {
        let CapacityWait::Waiting(ticket) = self.capacity_wait() else { return (false, None) };
        let Some(capacity) = self.core().capacity_of_process() else {
            self.set_capacity_wait(CapacityWait::None(Time::NEVER));
            return (false, None);
        };
        let mut left = capacity.leave(ticket);
        self.set_capacity_wait(CapacityWait::None(left.deadline));
        self.core().wake(&mut left.next);
        (left.has_ended, left.waker)
    }

    fn capacity_wait(&self) -> CapacityWait {
        if self.is_waiting() { CapacityWait::Waiting(self.ticket()) } else { CapacityWait::None(self.deadline) }
    }

    /// Of one that is idle.
    fn set_capacity_wait(&mut self, wait: CapacityWait) {
        let (deadline, bits) = match wait {
            CapacityWait::None(deadline) => (deadline, 0),
            CapacityWait::Waiting(WaitTicket(number)) => (Time::from_nanos(number), WAITING),
        };
        self.deadline = deadline;
        self.target = Target(self.target.0.map_addr(|address| address & !WAITING | bits));
    }

    /// Whether it waits for room.
    #[inline(always)]
    fn is_waiting(&self) -> bool {
        self.target.0.addr() & (WAITING | PHASE) == WAITING | Phase::Idle as usize
    }

    fn ticket(&self) -> WaitTicket {
        debug_assert!(self.is_waiting());
        WaitTicket(self.deadline.as_nanos())
    }

    /// Whether it is due now.
    pub(crate) fn is_past(&self) -> bool {
        self.due() <= self.core().clock.now()
    }

    #[inline(always)]
    fn node(&self) -> NodeRef {
        debug_assert!(self.phase() == Phase::Armed);
        // SAFETY: in this phase the target is a node, of a shard that the core keeps.
        unsafe { NodeRef::new(NonNull::new_unchecked(self.target.without(HELD | PHASE).cast::<Node>())) }
    }

    /// Returns the right of an armed entry to its node. The caller lends it, or uses it up and replaces the target.
    #[inline(always)]
    fn handle(&self) -> NodeHandle {
        // SAFETY: the entry has had this right since it was armed, and whichever thread has the entry has it. By a shared reference other
        // threads read only the state word and the slack, which no thread writes while the entry is armed.
        unsafe { NodeHandle::new(self.node()) }
    }

    #[inline(always)]
    fn core_ptr(&self) -> NonNull<Core> {
        match self.phase() {
            Phase::Armed => Core::of_shard(self.shard()),
            // SAFETY: a core's address is not null.
            _ => unsafe { NonNull::new_unchecked(self.target.without(WAITING | MODE | HELD | PHASE).cast()) },
        }
    }

    #[inline(always)]
    fn phase(&self) -> Phase {
        self.target.phase()
    }

    /// Between phases in which the target is the core.
    fn set_phase(&mut self, phase: Phase) {
        debug_assert!(self.phase() != Phase::Armed && phase != Phase::Armed);
        self.target = Target(self.target.0.map_addr(|address| address & !PHASE | phase as usize));
    }

    fn set_held(&mut self, held: bool) {
        let bits = if held { HELD } else { 0 };
        self.target = Target(self.target.0.map_addr(|address| address & !HELD | bits));
    }

    #[inline(always)]
    fn slack(&self) -> SlackBits {
        match self.phase() {
            Phase::Armed => self.handle().slack(),
            _ => SlackBits::from_bits((self.target.0.addr() >> MODE_SHIFT) as u8),
        }
    }
}

impl Drop for Entry {
    #[inline(always)]
    fn drop(&mut self) {
        let mut waker = None;
        if self.phase() == Phase::Armed {
            waker = Some(self.end_and_give_room_back());
        } else if self.is_waiting() {
            waker = self.leave_line().1.map(Ok);
        }
        // SAFETY: the entry's own reference, which it does not use again.
        unsafe { thread_shard::put_ref(self.core_ptr()) };
        // The waker's destructor is the user's and may panic: it comes last.
        drop(waker);
    }
}

/// Whether a deadline is past. Reads the clock only if it may be: not if the shard will be visited before it anyway. (Should
/// that visit be overdue, a deadline that is past can be taken for one that is not; the visit then finds it.)
#[inline(always)]
fn is_past_at_first_sight(local: &ThreadShard, deadline: Time, slack: SlackBits) -> bool {
    let may_be = deadline < local.shard().next_wake().get(slack.queue()) || local.core().clock.may_go_back();
    deadline <= local.seen() || (may_be && deadline <= local.now())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
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
        assert!(!entry.is_pending(), "whoever has it need not have seen that");
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
