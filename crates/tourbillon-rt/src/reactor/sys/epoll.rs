//! The epoll back end, for every Linux: edge-triggered, with a timerfd for the deadline (A10, W2) and an eventfd for wake-ups by
//! other threads.
//!
//! Neither descriptor is ever read. They are edge-triggered too: each write to the eventfd is an edge, and setting the timerfd
//! again clears its last expiry. The timerfd is set only if the new deadline is earlier than the one it is set to.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tourbillon::Time;

use super::eventfd::EventFd;
use super::{ReadyFlags, Selector, SocketEvent, TakeoverOutcome, Token, WakeSeen};
use crate::sync::{Mutex, lock};

pub(crate) struct Epoll {
    epoll: OwnedFd,
    eventfd: EventFd,
    alarm: OwnedFd,
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
        let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &eventfd, EventData::new_u64(EVENTFD.0), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM.0), EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll { epoll, eventfd, alarm, set: Mutex::new(None) })
    }

    fn take(&self, timeout: Option<&Timespec>, events: &mut Vec<SocketEvent>) -> io::Result<WakeSeen> {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let (taken, _) = match epoll::wait(&self.epoll, &mut room, timeout) {
            Ok(taken) => taken,
            // A signal: the worker looks at its queues and waits again.
            Err(rustix::io::Errno::INTR) => return Ok(WakeSeen::No),
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

    fn set_alarm(&self, until: Option<Time>) -> io::Result<()> {
        let mut set = lock(&self.set);
        // An alarm left over from an earlier deadline costs one early return from a wait.
        let Some(until) = until.filter(|until| set.is_none_or(|set| *until < set)) else { return Ok(()) };
        // Zero would switch the alarm off.
        let nanos = until.as_nanos().clamp(1, i64::MAX as u64);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        *set = Some(until);
        Ok(())
    }
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
        self.set_alarm(until)?;
        self.take(None, events).map(drop::<WakeSeen>)
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
