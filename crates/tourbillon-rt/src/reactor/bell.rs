//! How other threads end a wait: an eventfd, rung by whoever calls and never taken back. Each ring of it is an event of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        // It fails only if it has been rung so often that it is bound to be heard.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
