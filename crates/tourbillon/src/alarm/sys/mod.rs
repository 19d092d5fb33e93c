//! The timer of the kernel that a driver's thread sleeps on, one file for each platform.
//!
//! | file | back end |
//! |---|---|
//! | `timerfd` | Linux: a timer on the engine's own clock, which also reports that the wall clock was set |
//! | `kqueue` | macOS and FreeBSD: a timer in a kqueue, set to the time that is left |
//! | `waitable_timer` | Windows: a waitable timer of high resolution, set to the time that is left |
//! | `none` | other systems: there is none, and the alarm is a condition variable |
//!
//! Each file has a type `KernelTimer` with three methods:
//!
//! - `new(&Clock)` makes a timer for an engine on that clock; an error if the system refuses it. It is off.
//! - `set(&self, at)` makes the timer go off at `at` on that clock, in place of any time that it was set to before, and forgets an expiry
//!   that no wait has seen. `Time::ZERO`, as any time that has passed, makes it go off at once; `Time::NEVER` turns it off. Any thread may
//!   call this, also while the driver waits, and does not wake the driver by it. A time that is left is rounded up, and is at most
//!   [`Clock::wait_for`](crate::clock::Clock::wait_for), so a timer may go off before `at` and never long after it.
//! - `wait(&self)` blocks the driver's thread until the timer goes off. It may return earlier. Between two waits the driver sets the timer
//!   (`DriverShared::plan`), so an expiry need be seen only once.

#[cfg(tourbillon_kqueue)]
mod kqueue;
#[cfg(not(any(tourbillon_kqueue, tourbillon_timerfd, tourbillon_waitable_timer)))]
mod none;
#[cfg(tourbillon_timerfd)]
mod timerfd;
#[cfg(tourbillon_waitable_timer)]
mod waitable_timer;

#[cfg(tourbillon_kqueue)]
pub(super) use self::kqueue::KernelTimer;
#[cfg(not(any(tourbillon_kqueue, tourbillon_timerfd, tourbillon_waitable_timer)))]
pub(super) use self::none::KernelTimer;
#[cfg(tourbillon_timerfd)]
pub(super) use self::timerfd::KernelTimer;
#[cfg(tourbillon_waitable_timer)]
pub(super) use self::waitable_timer::KernelTimer;
