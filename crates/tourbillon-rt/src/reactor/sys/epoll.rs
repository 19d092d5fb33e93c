//! The epoll back end, for every Linux: edge-triggered, with a timerfd for the deadline (A10, W2) and an eventfd for wake-ups by
//! other threads. Where the system refuses the timerfd, a wait has a timeout, which the kernel takes in milliseconds: rounded up, so a timer
//! may be one late.
//!
//! Neither descriptor is ever read. They are edge-triggered too: each write to the eventfd is an edge, and setting the timerfd
//! again clears its last expiry. The timerfd is set only if the new deadline is earlier than the one it is set to.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tourbillon::Time;

use super::eventfd::EventFd;
use super::{ReadyFlags, Selector, SocketEvent, TakeoverOutcome, Token, WakeSeen};
use crate::clock::now;
use crate::sync::{Mutex, lock};

pub(crate) struct Epoll {
    epoll: OwnedFd,
    eventfd: EventFd,
    /// A timerfd; `None` if the system refuses it.
    alarm: Option<OwnedFd>,
    /// The time that the alarm is set to.
    set: Mutex<Option<Time>>,
}

const EVENTFD: Token = Token::reserved(0);
const ALARM: Token = Token::reserved(1);

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The number of events that one call takes at most.
const EVENTS: usize = 256;

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let eventfd = EventFd::new()?;
        let alarm = match timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK) {
            Err(error) if is_refusal(error) => None,
            alarm => Some(alarm?),
        };
        epoll::add(&epoll, &eventfd, EventData::new_u64(EVENTFD.0), EventFlags::IN | EventFlags::ET)?;
        if let Some(alarm) = &alarm {
            epoll::add(&epoll, alarm, EventData::new_u64(ALARM.0), EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Epoll { epoll, eventfd, alarm, set: Mutex::new(None) })
    }

    fn take(&self, timeout: Option<&Timespec>, events: &mut Vec<SocketEvent>) -> io::Result<WakeSeen> {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let (taken, _) = match epoll::wait(&self.epoll, &mut room, timeout) {
            Ok(taken) => taken,
            // A signal: the worker looks at its queues and waits again.
            Err(Errno::INTR) => return Ok(WakeSeen::No),
            Err(error) => return Err(error.into()),
        };
        let mut seen = WakeSeen::No;
        for event in taken.iter() {
            let (token, flags) = (Token(event.data.u64()), event.flags);
            match token {
                EVENTFD => seen = WakeSeen::Yes,
                ALARM => {
                    // The alarm is off until it is set again.
                    *lock(&self.set) = None;
                    seen = WakeSeen::Yes;
                }
                token => events.push(SocketEvent { token, ready: ReadyFlags::from_poll(flags.bits()), ended: false }),
            }
        }
        Ok(seen)
    }

    fn set_alarm(&self, alarm: &OwnedFd, until: Option<Time>) -> io::Result<()> {
        let mut set = lock(&self.set);
        // An alarm left over from an earlier deadline costs one early return from a wait.
        let Some(until) = until.filter(|until| set.is_none_or(|set| *until < set)) else { return Ok(()) };
        // Zero would switch the alarm off.
        let nanos = until.as_nanos().clamp(1, i64::MAX as u64);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        *set = Some(until);
        Ok(())
    }
}

/// Returns whether a system call does not exist for this process: the kernel has none, or a filter forbids it.
pub(crate) fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::PERM | Errno::NOSYS | Errno::ACCESS)
}

/// Returns the time that is left, or an hour if it is longer: a wait may end early.
fn timeout_until(until: Time) -> Timespec {
    let left = Duration::from(until - now()).min(Duration::from_secs(3600));
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

impl Selector for Epoll {
    fn reports_urgent_data(&self) -> bool {
        true
    }

    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token.0), flags)?)
    }

    fn remove(&self, _token: Token, fd: BorrowedFd<'_>) {
        // It fails only if the socket is not there: its descriptor was closed by force.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn wait(&self, until: Option<Time>, events: &mut Vec<SocketEvent>) -> io::Result<()> {
        let timeout = match &self.alarm {
            Some(alarm) => {
                self.set_alarm(alarm, until)?;
                None
            }
            None => until.map(timeout_until),
        };
        self.take(timeout.as_ref(), events).map(drop::<WakeSeen>)
    }

    fn reap(&self, events: &mut Vec<SocketEvent>) -> io::Result<()> {
        self.take(Some(&NO_TIME), events).map(drop::<WakeSeen>)
    }

    fn reap_for_owner(&self, events: &mut Vec<SocketEvent>) -> io::Result<TakeoverOutcome> {
        if self.take(Some(&NO_TIME), events)? == WakeSeen::Yes {
            self.wake();
        }
        Ok(TakeoverOutcome::Collected)
    }

    fn wake(&self) {
        self.eventfd.signal();
    }
}
