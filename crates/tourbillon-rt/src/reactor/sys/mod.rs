//! Back ends: what a reactor waits on, one file for each.
//!
//! | file | back end | used by |
//! |---|---|---|
//! | `uring.rs` | io_uring, a ring that only its own thread enters | workers |
//! | `epoll.rs` | epoll, with a timerfd for the deadline, or a timeout where that is refused | workers where io_uring is refused; all other threads |
//! | `parking.rs` | none: a condition variable (`--cfg shuttle`) | every thread of a schedule |
//!
//! `eventfd.rs` and `removals.rs` are parts that the back ends use.
//!
//! # What a back end must provide
//!
//! 1. *Edges.* After [`add`](Selector::add), a [`SocketEvent`] for what the socket is ready for already, and one for each time that
//!    it becomes ready again. More events than edges do no harm; fewer lose a wake-up.
//! 2. *A reported end.* If it stops watching a socket, its last event for the socket says so, and the next task that waits registers
//!    the socket again.
//! 3. *A wait to the nanosecond* (without a timerfd to the millisecond), until an event, the given time, or a [`wake`](Selector::wake). It may return early.
//! 4. *Wake from any thread*, one system call, never lost: a wake before the wait ends that wait.
//! 5. *Removal from any thread.* Events of a removed token may come late; the reactor's slots drop them.
//! 6. The owning thread alone calls `add`, `wait` and `reap`. The monitor calls [`reap_for_owner`](Selector::reap_for_owner),
//!    possibly while the owner begins to wait: it must not take a wake-up from the owner. A thread becomes the owner by
//!    [`adopt`](Selector::adopt); the reactor removes all sockets before another thread does.

#[cfg_attr(shuttle, allow(dead_code, reason = "a schedule has no kernel"))]
mod epoll;
mod eventfd;
#[cfg(shuttle)]
mod parking;
#[cfg_attr(shuttle, allow(dead_code, reason = "a schedule has no kernel"))]
pub(crate) mod removals;
mod uring;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use tourbillon::Time;

#[cfg(not(shuttle))]
pub(crate) use self::epoll::{Epoll, is_refusal};
#[cfg(shuttle)]
pub(crate) use self::parking::Parking;
pub(crate) use self::uring::Uring;

/// The back end of one reactor. The module says what it must provide.
pub(crate) trait Selector: Send + Sync {
    /// Makes the calling thread the owner.
    fn adopt(&self) {}
    /// Watches a socket, in both directions.
    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()>;
    /// Stops watching a socket.
    fn remove(&self, token: Token, fd: BorrowedFd<'_>);
    /// Waits until something happens or the monotonic clock shows `until`, and appends the events.
    fn wait(&self, until: Option<Time>, events: &mut Vec<SocketEvent>) -> io::Result<()>;
    /// Returns whether an event has the urgent flag if and only if there is urgent data.
    fn reports_urgent_data(&self) -> bool;
    /// Appends the events that have happened, without waiting.
    fn reap(&self, events: &mut Vec<SocketEvent>) -> io::Result<()>;
    /// Does the same from another thread while the owner is blocked. A wake-up or a deadline that it takes is passed on to the owner.
    fn reap_for_owner(&self, events: &mut Vec<SocketEvent>) -> io::Result<TakeoverOutcome>;
    /// Ends the current wait, or the next.
    fn wake(&self);
}

/// Whether a look at the kernel's events has found a wake-up or a deadline beside those of sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WakeSeen {
    No,
    Yes,
}

/// The result of [`Selector::reap_for_owner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum TakeoverOutcome {
    /// The events, if there were any, have been appended.
    Collected,
    /// Only the owner can read the events. The caller polls the sockets themselves.
    PollSockets,
    /// The back end watches no socket any more.
    RingDropped,
}

/// Identifies a socket within one reactor: a slot index and, above it, the slot's generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(pub(crate) u64);

/// An event of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketEvent {
    pub(crate) token: Token,
    pub(crate) ready: ReadyFlags,
    /// The back end watches the socket no longer.
    pub(crate) ended: bool,
}

/// The operations that a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReadyFlags(u64);

impl Token {
    pub(crate) const RESERVED_GENERATION: u32 = u32::MAX;

    /// Returns a token that no socket has, for a descriptor of the back end itself.
    pub(crate) const fn reserved(number: u32) -> Token {
        Token((Token::RESERVED_GENERATION as u64) << 32 | number as u64)
    }

    pub(crate) fn is_reserved(self) -> bool {
        (self.0 >> 32) as u32 == Token::RESERVED_GENERATION
    }
}

impl ReadyFlags {
    pub(crate) const READ: ReadyFlags = ReadyFlags(1);
    pub(crate) const WRITE: ReadyFlags = ReadyFlags(1 << 1);
    pub(crate) const READ_CLOSED: ReadyFlags = ReadyFlags(1 << 2);
    pub(crate) const WRITE_CLOSED: ReadyFlags = ReadyFlags(1 << 3);
    pub(crate) const URGENT: ReadyFlags = ReadyFlags(1 << 5);

    /// Translates the flags that `poll` and epoll share.
    pub(crate) fn from_poll(bits: u32) -> ReadyFlags {
        // The type of rustix's bits depends on its back end: signed with libc.
        let bits = PollFlags::from_bits_retain(bits as _);
        let has = |these: PollFlags, ready: ReadyFlags| if bits.intersects(these) { ready } else { ReadyFlags(0) };
        has(PollFlags::IN | PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP, ReadyFlags::READ)
            | has(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP, ReadyFlags::WRITE)
            | has(PollFlags::HUP | PollFlags::RDHUP, ReadyFlags::READ_CLOSED)
            | has(PollFlags::HUP, ReadyFlags::WRITE_CLOSED)
            | has(PollFlags::PRI, ReadyFlags::URGENT)
    }

    /// Returns the flags as they stand in a readiness word.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

impl std::ops::BitOr for ReadyFlags {
    type Output = ReadyFlags;

    fn bitor(self, other: ReadyFlags) -> ReadyFlags {
        ReadyFlags(self.0 | other.0)
    }
}
