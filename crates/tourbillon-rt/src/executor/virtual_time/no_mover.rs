//! Replaces `mover.rs` where the feature `test-util` is off: does nothing, at no cost.

use tourbillon::{Time, Turn};

use super::VirtualTime;
use crate::executor::shared::RuntimeShared;
use crate::executor::worker_shared::WorkerShared;
use crate::reactor::{EventBatch, Reactor};

#[derive(Default)]
pub(crate) struct Mover(());

impl Mover {
    #[inline(always)]
    #[must_use]
    pub(crate) fn find_work(&mut self, _: &RuntimeShared, _: &WorkerShared, _: bool) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn wake(&mut self, _: &RuntimeShared, _: &WorkerShared) {}
}

#[inline(always)]
pub(crate) fn turn(_: &RuntimeShared, _: bool) -> Option<Turn> {
    None
}

#[inline(always)]
pub(crate) fn turn_if_running(_: &RuntimeShared) {}

#[inline(always)]
pub(crate) fn next_turn(_: &RuntimeShared) -> Option<Time> {
    None
}

#[inline(always)]
#[must_use]
pub(crate) fn finish_removals(_: &WorkerShared, _: &mut EventBatch) -> bool {
    false
}

#[inline(always)]
pub(crate) fn prepare(reactor: Reactor, _: &VirtualTime) -> Reactor {
    reactor
}
