//! What others have left for the owner of a ring: sockets that it is to watch no longer.
//!
//! # None is forgotten
//!
//! Who leaves one rings the bell afterwards; the owner looks here before each wait. So either the look finds it, or the wait hears
//! the bell.

use std::io;

use super::Token;
use crate::sync::{Mutex, ThreadId, current_thread, lock};

#[derive(Default)]
pub(crate) struct Left(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    owner: Option<ThreadId>,
    removals: Vec<Token>,
    /// Who stands in has seen them before.
    are_overdue: bool,
}

/// Who is to see to a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Removal {
    /// The calling thread, which is the owner.
    IsOnes,
    /// The owner, for whom it has been left: the bell is to be rung.
    IsLeft,
}

/// What who stands in is to do about removals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Overdue {
    No,
    /// They have been there for two looks. They are gone from here: who looked ends all that is watched.
    Yes,
}

impl Left {
    /// From now on the calling thread is the owner. Who was before.
    pub(crate) fn adopt(&self) -> Option<ThreadId> {
        lock(&self.0).owner.replace(current_thread().id())
    }

    /// A socket is to be watched no longer.
    pub(crate) fn remove(&self, token: Token) -> Removal {
        let mut inner = lock(&self.0);
        if inner.owner == Some(current_thread().id()) {
            return Removal::IsOnes;
        }
        inner.removals.push(token);
        Removal::IsLeft
    }

    /// By the owner: sees to each. One that cannot be seen to stays, and so do those that are left then.
    pub(crate) fn see_to(&self, mut each: impl FnMut(Token) -> io::Result<()>) -> io::Result<()> {
        let mut inner = lock(&self.0);
        inner.are_overdue = false;
        while let Some(token) = inner.removals.last() {
            each(*token)?;
            inner.removals.pop();
        }
        Ok(())
    }

    /// By who stands in for an owner that does not come.
    pub(crate) fn look_for_owner(&self) -> Overdue {
        let mut inner = lock(&self.0);
        if inner.removals.is_empty() || !std::mem::replace(&mut inner.are_overdue, true) {
            return Overdue::No;
        }
        inner.removals.clear();
        Overdue::Yes
    }
}
