//! What stands for the mover of virtual time (`mover.rs`) where the feature `test-util` is off: nothing, at no cost.

use tourbillon::{Time, Turn};

use super::VirtualTime;
use crate::reactor::{Batch, Reactor};
use crate::runtime::seat::Seat;
use crate::runtime::shared::Shared;

#[derive(Default)]
pub(in crate::runtime) struct Mover(());

impl Mover {
    #[inline(always)]
    pub(in crate::runtime) fn finds_work(&mut self, _: &Shared, _: &Seat, _: bool) -> bool {
        false
    }

    #[inline(always)]
    pub(in crate::runtime) fn wake(&mut self, _: &Shared, _: &Seat) {}
}

#[inline(always)]
pub(in crate::runtime) fn turn(_: &Shared, _: bool) -> Option<Turn> {
    None
}

#[inline(always)]
pub(in crate::runtime) fn turn_if_running(_: &Shared) {}

#[inline(always)]
pub(in crate::runtime) fn next_turn(_: &Shared) -> Option<Time> {
    None
}

#[inline(always)]
pub(in crate::runtime) fn finds_removals(_: &Seat, _: &mut Batch) -> bool {
    false
}

#[inline(always)]
pub(in crate::runtime) fn prepare(reactor: Reactor, _: &VirtualTime) -> Reactor {
    reactor
}
