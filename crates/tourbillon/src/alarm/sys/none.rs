//! For systems without a timer of the kernel that a thread can wait for while others set it.

use std::io;

use tourbillon_queue::Time;

use crate::alarm::AlarmSet;
use crate::clock::Clock;

/// A timer that the system never has.
pub(in crate::alarm) enum KernelTimer {}

impl KernelTimer {
    pub(in crate::alarm) fn new(_: &Clock) -> io::Result<KernelTimer> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::alarm) fn set(&self, _: Time) -> AlarmSet {
        match *self {}
    }

    pub(in crate::alarm) fn wait(&self) {
        match *self {}
    }
}
