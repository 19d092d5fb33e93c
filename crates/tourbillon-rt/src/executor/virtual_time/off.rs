//! Replaces `mod.rs` where the feature `test-util` is off: no runtime has virtual time, at no cost.

#[path = "no_mover.rs"]
mod no_mover;

pub(crate) use self::no_mover::{Mover, finish_removals, next_turn, prepare, turn, turn_if_running};

/// The virtual time of a runtime, which has none.
#[derive(Clone, Default)]
pub(crate) struct VirtualTime(());

/// The result of [`VirtualTime::end_work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WorkEnd {
    NotLast,
}

/// Marks a thread as inside `block_on`.
pub(crate) struct BlockOnCall;

impl VirtualTime {
    #[inline(always)]
    pub(crate) fn is_pausable(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn wait_for_move(&self) {}

    #[inline(always)]
    pub(crate) fn begin_work(&self) {}

    #[inline(always)]
    pub(crate) fn end_work(&self) -> WorkEnd {
        WorkEnd::NotLast
    }

    #[inline(always)]
    pub(crate) fn enter_block_on(&self) -> BlockOnCall {
        BlockOnCall
    }
}
