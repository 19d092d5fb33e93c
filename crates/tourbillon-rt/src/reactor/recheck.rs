//! Sockets that the reactor polls for unread data, though no event has come.
//!
//! A read that meets urgent data ends before it, with fewer bytes than there was room for. That looks as if the read had taken
//! everything, so the next read waits, and no event comes for the rest. io_uring does not report urgent data. To repeat every
//! short read would cost a system call each. Instead the reactor polls all sockets with a reader that waits after a short read,
//! in one call: at once if there are few, else a moment after the last poll, by which time most have got an event.

use tourbillon::{Span, Time};

use super::sys::Token;
use crate::clock;

#[derive(Default)]
pub(crate) struct RecheckList {
    tokens: Vec<Token>,
    polled_at: Time,
}

/// The number of sockets up to which all are polled at once, whenever the last poll was.
const POLLED_AT_ONCE: usize = 8;

/// The time between two polls of more sockets than that.
const INTERVAL: Span = Span::from_millis(1);

impl RecheckList {
    pub(crate) fn add(&mut self, token: Token) {
        self.tokens.push(token);
    }

    /// Takes the sockets to poll now, or returns when there will be any.
    pub(crate) fn take(&mut self) -> Result<Vec<Token>, Option<Time>> {
        if self.tokens.is_empty() {
            return Err(None);
        }
        let (now, next) = (clock::now(), self.polled_at + INTERVAL);
        if self.tokens.len() > POLLED_AT_ONCE && now < next {
            return Err(Some(next));
        }
        self.polled_at = now;
        Ok(std::mem::take(&mut self.tokens))
    }

    /// Takes a list back for its capacity.
    pub(crate) fn recycle(&mut self, mut polled: Vec<Token>) {
        polled.clear();
        self.tokens = polled;
    }
}
