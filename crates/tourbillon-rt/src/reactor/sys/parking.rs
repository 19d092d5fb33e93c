//! The back end of a schedule (`--cfg shuttle`), where shuttle would not know that a thread waits in the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tourbillon::Time;

use super::{Selector, SocketEvent, TakeoverOutcome, Token};
use crate::sync::under_shuttle::Signal;
use crate::sync::under_shuttle::time::Timeline;

/// A back end without sockets: a wait ends when another thread wakes it, or at its time.
pub(crate) struct Parking {
    signal: Arc<Signal>,
    time: Arc<Timeline>,
}

impl Parking {
    pub(crate) fn new() -> Parking {
        Parking { signal: Arc::default(), time: Timeline::current() }
    }
}

impl Selector for Parking {
    fn add(&self, _: Token, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, _: Token, _: BorrowedFd<'_>) {}

    fn wait(&self, until: Option<Time>, _: &mut Vec<SocketEvent>) -> io::Result<()> {
        let _pending = until.map(|until| self.time.raise_at(until, &self.signal));
        self.signal.take();
        Ok(())
    }

    fn reports_urgent_data(&self) -> bool {
        true
    }

    fn reap(&self, _: &mut Vec<SocketEvent>) -> io::Result<()> {
        // The owner is busy, possibly because a timer is due too soon to sleep: time has to pass for that timer.
        self.time.pass();
        Ok(())
    }

    fn reap_for_owner(&self, _: &mut Vec<SocketEvent>) -> io::Result<TakeoverOutcome> {
        Ok(TakeoverOutcome::Collected)
    }

    fn wake(&self) {
        self.signal.set(true);
    }
}
