//! Removals that other threads have left for the owner of a ring: sockets that it is to stop watching.
//!
//! # No removal is lost
//!
//! A thread that leaves a removal signals the eventfd afterwards; the owner looks here before each wait. So either the owner's
//! look finds the removal, or the signal ends its wait.

use std::io;

use super::Token;
use crate::sync::{Mutex, ThreadId, current_thread, lock};

#[derive(Default)]
pub(crate) struct PendingRemovals(Mutex<RemovalState>);

#[derive(Default)]
struct RemovalState {
    owner: Option<ThreadId>,
    tokens: Vec<Token>,
    /// The monitor has seen the pending removals once before.
    are_overdue: bool,
}

/// Which thread carries out a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum RemovalRoute {
    /// The calling thread, which is the owner.
    Direct,
    /// The owner, later: the caller signals the eventfd.
    Queued,
}

/// Whether the owner has left removals undone for so long that the monitor drops its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum RemovalsOverdue {
    No,
    /// They were pending at two looks in a row. The list is empty now: the caller ends all polls of the ring.
    Yes,
}

impl PendingRemovals {
    /// Makes the calling thread the owner and returns the owner before it.
    pub(crate) fn adopt(&self) -> Option<ThreadId> {
        lock(&self.0).owner.replace(current_thread().id())
    }

    /// Queues the removal of a socket, unless the calling thread is the owner.
    pub(crate) fn remove(&self, token: Token) -> RemovalRoute {
        let mut state = lock(&self.0);
        if state.owner == Some(current_thread().id()) {
            return RemovalRoute::Direct;
        }
        state.tokens.push(token);
        RemovalRoute::Queued
    }

    /// Called by the owner: carries out each removal. One that fails stays pending, and so do those after it.
    pub(crate) fn finish(&self, mut each: impl FnMut(Token) -> io::Result<()>) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.are_overdue = false;
        while let Some(token) = state.tokens.last() {
            each(*token)?;
            state.tokens.pop();
        }
        Ok(())
    }

    /// Called by the monitor while the owner is blocked.
    pub(crate) fn check_overdue(&self) -> RemovalsOverdue {
        let mut state = lock(&self.0);
        if state.tokens.is_empty() || !std::mem::replace(&mut state.are_overdue, true) {
            return RemovalsOverdue::No;
        }
        state.tokens.clear();
        RemovalsOverdue::Yes
    }
}
