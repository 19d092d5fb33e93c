//! The alarm that the monitor sleeps on, one file for each source of time.

#[cfg(not(shuttle))]
mod condvar;
#[cfg(not(shuttle))]
mod kernel;
#[cfg(shuttle)]
mod schedule;
#[cfg(not(shuttle))]
mod timerfd;

#[cfg(not(shuttle))]
pub(super) use self::kernel::MonitorAlarm;
#[cfg(shuttle)]
pub(super) use self::schedule::MonitorAlarm;
