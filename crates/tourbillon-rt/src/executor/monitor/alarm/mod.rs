//! The alarm that the monitor sleeps on, one file for each source of time.

#[cfg(shuttle)]
mod schedule;
#[cfg(not(shuttle))]
mod timerfd;

#[cfg(shuttle)]
pub(super) use self::schedule::MonitorAlarm;
#[cfg(not(shuttle))]
pub(super) use self::timerfd::MonitorAlarm;
