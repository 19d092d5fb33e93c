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

use crate::core::{Core, CoreRef};
use crate::engine::ArmError;
use crate::home::{self, Home};
use crate::node::{Node, NodeRef};
use crate::outcome::Outcome;
use crate::shard::{Access, Change, Coming, Leaving, Wish};
use crate::slab::shard_of;
use crate::slack::Mode;
use crate::state::{Later, Seen, representable};
use crate::time::Instant;

/// One timer. Dropping it cancels it.
///
/// Two words, and no more: those travel in registers.
pub(crate) struct Entry {
    target: Target,
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

/// An idle entry that may have left its waker with the engine's capacity.
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
    fn core(core: NonNull<Core>, mode: Mode, held: bool, phase: Phase) -> Target {
        let mode = usize::from(mode.to_bits()) << MODE_SHIFT;
        let bits = mode | if held { HELD } else { 0 } | phase as usize;
        Target(core.as_ptr().map_addr(|address| address | bits).cast())
    }

    #[inline(always)]
    fn node(node: NodeRef, held: bool) -> Target {
        let bits = if held { HELD } else { 0 } | Phase::Armed as usize;
        Target(node.as_ptr().as_ptr().map_addr(|address| address | bits).cast())
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
    /// Due in `duration` from now, on the current engine.
    #[inline(always)]
    pub(crate) fn after(duration: Duration) -> Entry {
        home::with_current(|home| Entry::at_home(home, home.deadline(duration)))
    }

    /// Due at `deadline`, on the current engine.
    pub(crate) fn until(deadline: Instant) -> Entry {
        home::with_current(|home| Entry::at_home(home, home.core().clock.time_of(deadline.into_std())))
    }

    /// Due at `deadline` on the clock of that engine; never means never in virtual time too.
    pub(crate) fn on(core: &CoreRef, deadline: Time) -> Entry {
        let mut entry = home::with(core.as_ptr(), |home| Entry::at_home(home, deadline));
        entry.set_due(deadline);
        entry
    }

    /// Due at `deadline` on the clock of that engine.
    #[inline(always)]
    pub(crate) fn at_home(home: &Home, deadline: Time) -> Entry {
        let target = Target::core(home.take_ref(), home.core().mode, false, Phase::Idle);
        Entry { target, deadline: home.core().deadline(deadline) }
    }

    /// Its deadline, also while it is held.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_std(self.core().clock.std_of(self.deadline))
    }

    /// What its engine's clock shows.
    pub(crate) fn now(&self) -> Instant {
        let clock = &self.core().clock;
        Instant::from_std(clock.std_of(clock.now()))
    }

    /// How it has ended, as far as can be seen.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.phase() {
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

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the entry holds a reference to the core, which keeps its shards.
        unsafe { self.core_ptr().as_ref() }
    }

    /// Changes how late it may be. An armed one is armed anew when it is polled.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.make_idle();
        if self.target.0.addr() & WAITING != 0 {
            self.stop_waiting();
        }
        self.target = Target::core(self.core_ptr(), mode, self.target.is_held(), Phase::Idle);
    }

    /// `Fired` or `Stopped` when it has ended; else the waker is woken when it does. Arms it if it is not.
    #[inline(always)]
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let waker = context.waker();
        match self.phase() {
            Phase::Idle => match self.arm(waker) {
                Ok(poll) => poll,
                Err(_) => self.poll_when_full(waker),
            },
            Phase::Armed => self.poll_armed(waker),
            Phase::Fired => Poll::Ready(Outcome::Fired),
            Phase::Stopped => Poll::Ready(Outcome::Stopped),
        }
    }

    /// Arms an idle one, or finds that it has ended.
    ///
    /// # Errors
    /// The engine holds as many timers as it may.
    #[inline(always)]
    pub(crate) fn arm(&mut self, waker: &Waker) -> Result<Poll<Outcome>, ArmError> {
        debug_assert!(self.phase() == Phase::Idle);
        let (due, mode) = (self.due(), self.mode());
        if home::with(self.core_ptr(), |home| is_past_at_first_sight(home, due, mode)) {
            return Ok(self.ended_when_idle());
        }
        if let Some(capacity) = &self.core().capacity
            && !capacity.take()
        {
            return Err(ArmError::Full { capacity: capacity.most });
        }
        self.arm_with_room(Coming::New, waker.clone())
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

    /// Pending, and woken when there may be room.
    #[cold]
    fn poll_when_full(&mut self, waker: &Waker) -> Poll<Outcome> {
        // Nobody would come to let go of a waker that is left there now.
        if self.core().is_closed() {
            return self.ended(Outcome::Stopped);
        }
        let has_room = self.core().capacity.as_ref().is_none_or(|capacity| capacity.take_or_wait(waker));
        let is_closed = self.core().is_closed();
        if !has_room || is_closed {
            self.target = Target(self.target.0.map_addr(|address| address | WAITING));
        }
        if is_closed {
            if has_room {
                self.give_room_back();
            }
            return self.ended(Outcome::Stopped);
        }
        if !has_room {
            return Poll::Pending;
        }
        match self.arm_with_room(Coming::New, waker.clone()) {
            Ok(poll) => poll,
            Err(_) => {
                // A shard that has a billion timers. There is nobody who would tell when it has fewer.
                waker.wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Arms it, its place within the capacity taken.
    #[inline(always)]
    fn arm_with_room(&mut self, coming: Coming, waker: Waker) -> Result<Poll<Outcome>, ArmError> {
        let (deadline, mode) = (self.due(), self.mode());
        let mut refused = None;
        let armed = home::with(self.core_ptr(), |home| {
            // SAFETY: a home knows how its thread stands to its shard.
            unsafe { home.shard().arm(home.access(), coming, deadline, mode, waker, &mut refused) }
        });
        let Some(node) = armed.node else { return self.refused(refused) };
        self.target = Target::node(node, self.target.is_held());
        if armed.wish == Wish::Earliest {
            self.tell();
        }
        Ok(Poll::Pending)
    }

    /// Tells whoever turns the shard of an armed entry that it is due before all others there.
    #[cold]
    fn tell(&self) {
        let shard = shard_of(self.node());
        let by = home::with_owner(shard, |home| if home.is_some() { Access::Owner } else { Access::Guest });
        // SAFETY: the core keeps its shards.
        self.core().tell(unsafe { shard.as_ref() }, by);
    }

    #[cold]
    fn refused(&mut self, waker: Option<Waker>) -> Result<Poll<Outcome>, ArmError> {
        drop(waker);
        self.give_room_back();
        if self.core().is_closed() {
            return Ok(self.ended(Outcome::Stopped));
        }
        Err(ArmError::Full { capacity: crate::slab::MOST as usize })
    }

    /// Its deadline is past, so it need not be armed.
    fn ended_when_idle(&mut self) -> Poll<Outcome> {
        self.ended(if self.core().is_closed() { Outcome::Stopped } else { Outcome::Fired })
    }

    #[inline]
    fn poll_armed(&mut self, waker: &Waker) -> Poll<Outcome> {
        let node = self.node();
        // SAFETY: we are the handle, and it is armed.
        let same = unsafe { node.has_waker(waker) };
        // In this order: if it is armed still, the waker that was compared had not been taken.
        match node.state().see() {
            Seen::Armed(_) if same => Poll::Pending,
            Seen::Armed(_) => self.change_waker(waker),
            ended => self.end_as(ended.outcome()),
        }
    }

    #[cold]
    fn change_waker(&mut self, waker: &Waker) -> Poll<Outcome> {
        let node = self.node();
        let mut new = Some(waker.clone());
        let changed = home::with_owner(shard_of(node), |home| {
            // SAFETY: the home is of the owner, and we are the handle.
            home.map(|home| unsafe { home.shard().change_waker_as_owner(node, &mut new) })
        });
        match changed {
            Some(Change::Done(old)) => {
                drop(old);
                Poll::Pending
            }
            Some(Change::Ended) => self.poll_armed(waker),
            None => self.move_house(|old| new.unwrap_or(old)),
        }
    }

    /// Takes it away from where it is and arms it here, with the waker that `waker` makes of the one that it had.
    ///
    /// It keeps its place within the capacity.
    fn move_house(&mut self, waker: impl FnOnce(Waker) -> Waker) -> Poll<Outcome> {
        let waker = match self.end(Leaving::Moving) {
            Ok(old) => waker(old),
            Err(outcome) => {
                self.give_room_back();
                return self.ended(outcome);
            }
        };
        if self.is_past() {
            return self.fire(waker);
        }
        let again = waker.clone();
        let poll = match self.arm_with_room(Coming::Moving, waker) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(ready) => ready,
            Err(_) => Poll::Pending,
        };
        // It cannot be armed here. Whoever waits for it is to look.
        self.core().wake_one(again);
        poll
    }

    /// Ends one whose deadline is past and that is between two shards.
    fn fire(&mut self, waker: Waker) -> Poll<Outcome> {
        let due = self.due();
        home::with(self.core_ptr(), |home| {
            // SAFETY: a home knows how its thread stands to its shard.
            unsafe { home.shard().count_fired(home.access(), home.now() - due) }
        });
        self.give_room_back();
        let ready = self.ended(Outcome::Fired);
        self.core().wake_one(waker);
        ready
    }

    /// Sets another deadline, in any state. An armed one keeps its waker, which is woken at the new deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        let before = self.due();
        self.deadline = self.core().deadline(self.core().clock.time_of(deadline.into_std()));
        self.set_held(false);
        self.deadline_changed(before);
    }

    /// Makes it idle, with another deadline on its engine's clock; the next poll arms it. Unlike [`reset`](Entry::reset) it
    /// wakes nobody, and never means never in virtual time too.
    pub(crate) fn set_due(&mut self, deadline: Time) {
        self.make_idle();
        self.deadline = representable(deadline);
    }

    /// Takes it out of the queue, and drops its waker. Its deadline is kept; the next poll arms it again.
    pub(crate) fn disarm(&mut self) {
        self.make_idle();
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
        if self.phase() != Phase::Armed {
            self.set_phase(Phase::Idle);
        } else if due < before {
            self.bring_forward(due);
        } else if self.node().state().later(before, due) == Later::Lost {
            self.make_idle();
        }
    }

    fn bring_forward(&mut self, due: Time) {
        let node = self.node();
        let is_past = self.is_past();
        let moved = home::with_owner(shard_of(node), |home| {
            let home = home.filter(|_| !is_past)?;
            // SAFETY: the home is of the owner, and we are the handle.
            Some(unsafe { home.shard().move_as_owner(node, due) })
        });
        match moved {
            Some(Change::Done(Wish::Earliest)) => self.tell(),
            Some(Change::Done(Wish::Later)) => {}
            Some(Change::Ended) => self.make_idle(),
            None if self.outcome().is_some() => self.make_idle(),
            None => _ = self.move_house(|waker| waker),
        }
    }

    /// Cancels it, if it is armed. It can be armed again.
    fn make_idle(&mut self) {
        if self.phase() == Phase::Armed {
            // The waker's destructor is the user's and may panic: it comes last.
            let waker = self.end(Leaving::Cancelled);
            self.give_room_back();
            self.set_phase(Phase::Idle);
            return drop(waker);
        }
        self.set_phase(Phase::Idle);
    }

    /// Gives up the node of an armed entry, which is idle afterwards. If that cancelled it, gives the
    /// waker; else how it had ended before.
    #[inline(always)]
    fn end(&mut self, leaving: Leaving) -> Result<Waker, Outcome> {
        let (node, mode) = (self.node(), self.mode());
        let shard = shard_of(node);
        let waker = home::with_owner(shard, |home| match home {
            // SAFETY: the home is of the owner; we are the handle and forget the node below.
            Some(home) => unsafe { home.shard().cancel_as_owner(node, leaving) },
            // SAFETY: the core keeps its shards; we are the handle and forget the node below.
            None => unsafe { shard.as_ref().cancel_from_afar(node, leaving) },
        });
        // SAFETY: as above.
        self.target = Target::core(unsafe { shard.as_ref() }.core(), mode, self.target.is_held(), Phase::Idle);
        waker
    }

    /// Gives up the node of an entry that has ended.
    fn end_as(&mut self, outcome: Outcome) -> Poll<Outcome> {
        let waker = self.end(Leaving::Cancelled);
        self.give_room_back();
        let ready = self.ended(outcome);
        drop(waker);
        ready
    }

    fn ended(&mut self, outcome: Outcome) -> Poll<Outcome> {
        self.set_phase(if outcome == Outcome::Fired { Phase::Fired } else { Phase::Stopped });
        Poll::Ready(outcome)
    }

    #[inline(always)]
    fn give_room_back(&self) {
        if let Some(capacity) = &self.core().capacity {
            self.core().wake(&mut capacity.give_back());
        }
    }

    /// When it is due indeed.
    #[inline(always)]
    fn due(&self) -> Time {
        if self.target.is_held() { Time::NEVER } else { self.deadline }
    }

    /// Nobody knows which of those who wait for room is this one, so all are let go, to come again if they want.
    #[cold]
    fn stop_waiting(&self) {
        if let Some(capacity) = &self.core().capacity {
            self.core().wake(&mut capacity.take_waiting());
        }
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

    #[inline(always)]
    fn core_ptr(&self) -> NonNull<Core> {
        match self.phase() {
            // SAFETY: the core, which the entry keeps, keeps its shards.
            Phase::Armed => unsafe { shard_of(self.node()).as_ref() }.core(),
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
    fn mode(&self) -> Mode {
        match self.phase() {
            // SAFETY: we are the handle.
            Phase::Armed => unsafe { self.node().mode() },
            _ => Mode::from_bits((self.target.0.addr() >> MODE_SHIFT) as u8),
        }
    }
}

impl Drop for Entry {
    #[inline(always)]
    fn drop(&mut self) {
        let mut waker = None;
        if self.phase() == Phase::Armed {
            waker = Some(self.end(Leaving::Cancelled));
            self.give_room_back();
        } else if self.target.0.addr() & WAITING != 0 {
            self.stop_waiting();
        }
        // SAFETY: the entry's own reference, which it does not use again.
        unsafe { home::put_ref(self.core_ptr()) };
        // The waker's destructor is the user's and may panic: it comes last.
        drop(waker);
    }
}

/// Whether a deadline is past. Reads the clock only if it may be: not if the shard will be visited before it anyway. (Should
/// that visit be overdue, a deadline that is past can be taken for one that is not; the visit then finds it.)
#[inline(always)]
fn is_past_at_first_sight(home: &Home, deadline: Time, mode: Mode) -> bool {
    let may_be = deadline < home.shard().wants().get(mode.line()) || !home.core().clock.is_steady();
    deadline <= home.seen() || (may_be && deadline <= home.now())
}
