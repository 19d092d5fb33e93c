//! The back end that every Linux has: epoll, edge-triggered, with a timerfd for the deadline (A10, W2) and an eventfd for calls
//! from other threads.
//!
//! Neither descriptor is ever read. They are edge-triggered too: each write to the eventfd is an edge, and setting the timerfd
//! anew is what takes its last news back. The timerfd is set only if the earliest deadline has changed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tourbillon::Time;

use super::bell::Bell;
use super::{Event, Heard, Ready, Selector, StoodIn, Token};
use crate::sync::{Mutex, lock};

pub(crate) struct Epoll {
    epoll: OwnedFd,
    bell: Bell,
    alarm: OwnedFd,
    /// What the alarm is set to.
    set: Mutex<Option<Time>>,
}

const BELL: Token = Token::reserved(0);
const ALARM: Token = Token::reserved(1);

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// So many events are taken at a time.
const EVENTS: usize = 256;

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = Bell::new()?;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL.0), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM.0), EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll { epoll, bell, alarm, set: Mutex::new(None) })
    }

    fn take(&self, timeout: Option<&Timespec>, events: &mut Vec<Event>) -> io::Result<Heard> {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let (taken, _) = match epoll::wait(&self.epoll, &mut room, timeout) {
            Ok(taken) => taken,
            // A signal: whoever waits looks around and waits again.
            Err(rustix::io::Errno::INTR) => return Ok(Heard::Nothing),
            Err(error) => return Err(error.into()),
        };
        let mut heard = Heard::Nothing;
        for event in taken.iter() {
            let (token, flags) = (Token(event.data.u64()), event.flags);
            match token {
                BELL => heard = Heard::Call,
                ALARM => {
                    // It is off, until it is set again.
                    *lock(&self.set) = None;
                    heard = Heard::Call;
                }
                token => events.push(Event { token, ready: Ready::from_poll(flags.bits()), ended: false }),
            }
        }
        Ok(heard)
    }

    fn set_alarm(&self, until: Option<Time>) -> io::Result<()> {
        let mut set = lock(&self.set);
        // An alarm that is left over from an earlier deadline costs one look around.
        let Some(until) = until.filter(|until| set.is_none_or(|set| *until < set)) else { return Ok(()) };
        // All zero would switch it off.
        let nanos = until.as_nanos().clamp(1, i64::MAX as u64);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        *set = Some(until);
        Ok(())
    }
}

impl Selector for Epoll {
    fn hears_of_urgent_data(&self) -> bool {
        true
    }

    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token.0), flags)?)
    }

    fn remove(&self, _token: Token, fd: BorrowedFd<'_>) {
        // It is there, or its descriptor was closed by force; either way it is not afterwards.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn wait(&self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.set_alarm(until)?;
        self.take(None, events).map(drop::<Heard>)
    }

    fn reap(&self, events: &mut Vec<Event>) -> io::Result<()> {
        self.take(Some(&NO_TIME), events).map(drop::<Heard>)
    }

    fn reap_for_owner(&self, events: &mut Vec<Event>) -> io::Result<StoodIn> {
        if self.take(Some(&NO_TIME), events)? == Heard::Call {
            self.wake();
        }
        Ok(StoodIn::Told)
    }

    fn wake(&self) {
        self.bell.ring();
    }
}
