//! Where a wheel finds the deadline of an item: in the item, or with the entry.
//!
//! A wheel whose items have no deadlines takes 4 bytes for an entry with a 4-byte id, instead of 16. It reads a deadline
//! when it splits the entry's slot, when it opens the slot, and when it looks for the next wake-up; never in order to cancel. An entry
//! may move its own deadline later meanwhile, without a word to the wheel: the wheel then returns it early, and the caller
//! inserts it again.

use super::DIGIT;
use super::levels::WheelSlot;
use crate::blocks::{Blocks, List};
use crate::raw::Entries;
use crate::{Place, Time};

/// The deadline that an item of the wheel stores: `u64` nanoseconds, or [`WithEntry`].
pub(super) trait ItemDeadline: Copy {
    /// Whether the deadline is in the item.
    const IS_STORED: bool;

    fn new(nanos: u64) -> Self;

    /// Returns the deadline, if it is in the item.
    fn stored(self) -> Option<u64>;
}

/// Stands for a deadline that is not in the item but with its entry: see [`EntryDeadlines`].
#[derive(Clone, Copy)]
pub(super) struct WithEntry;

/// Entries that store their own deadlines, for a [`CompactWheel`](crate::CompactWheel).
pub trait EntryDeadlines<Id>: Entries<Id> {
    /// Returns the deadline of an entry that is in the wheel; `None` if the entry has ended, and the wheel may return it at once.
    ///
    /// The answer may be later than the deadline with which the entry was inserted, and must not be earlier.
    fn deadline(&self, id: &Id) -> Option<Time>;

    /// Tells the processor that the deadline of `id` will be read soon.
    fn prefetch(&self, id: &Id) {
        let _ = id;
    }
}

/// What the wheel needs of the entries, according to where the deadlines are.
pub(super) trait WheelEntries<Id, D>: Entries<Id> {
    /// Returns the deadline that the entry stores. Called only if the item stores none.
    fn entry_deadline(&self, id: &Id) -> Option<Time>;

    fn prefetch_entry(&self, id: &Id);
}

/// The entries for calls that only read a wheel with stored deadlines.
pub(super) struct NoEntries;

impl ItemDeadline for u64 {
    const IS_STORED: bool = true;

    #[inline(always)]
    fn new(nanos: u64) -> u64 {
        nanos
    }

    #[inline(always)]
    fn stored(self) -> Option<u64> {
        Some(self)
    }
}

impl ItemDeadline for WithEntry {
    const IS_STORED: bool = false;

    #[inline(always)]
    fn new(_: u64) -> WithEntry {
        WithEntry
    }

    #[inline(always)]
    fn stored(self) -> Option<u64> {
        None
    }
}

impl<Id, E: Entries<Id>> WheelEntries<Id, u64> for E {
    fn entry_deadline(&self, _: &Id) -> Option<Time> {
        None
    }

    #[inline(always)]
    fn prefetch_entry(&self, _: &Id) {}
}

impl<Id, E: EntryDeadlines<Id>> WheelEntries<Id, WithEntry> for E {
    #[inline(always)]
    fn entry_deadline(&self, id: &Id) -> Option<Time> {
        self.deadline(id)
    }

    #[inline(always)]
    fn prefetch_entry(&self, id: &Id) {
        self.prefetch(id);
    }
}

impl<Id> Entries<Id> for NoEntries {
    fn place(&self, _: &Id) -> Place {
        Place::NOWHERE
    }

    fn set_place(&mut self, _: &Id, _: Place) {}
}

/// Returns the deadline of an item of `slot`. If the entry has it, this is the nearest nanosecond of the slot: the entry may have moved
/// its deadline out of the slot, or have ended.
#[inline(always)]
pub(super) fn deadline_in<Id, D, E>(slot: WheelSlot, stored: D, id: &Id, entries: &E) -> u64
where
    D: ItemDeadline,
    E: WheelEntries<Id, D>,
{
    stored.stored().unwrap_or_else(|| {
        let deadline = entries.entry_deadline(id).map_or(slot.start, Time::as_nanos);
        deadline.clamp(slot.start, slot.start | within(slot))
    })
}

/// Returns a deadline of an item by which to choose among the parts of `slot`: [the deadline](deadline_in); or any time within the slot if
/// the entry has moved its deadline beyond it. Many entries may have done that, and would crowd the last part.
#[inline(always)]
pub(super) fn deadline_for_split<Id, D, E>(slot: WheelSlot, stored: D, id: &Id, entries: &E) -> u64
where
    D: ItemDeadline,
    E: WheelEntries<Id, D>,
{
    stored.stored().unwrap_or_else(|| {
        let deadline = entries.entry_deadline(id).map_or(slot.start, Time::as_nanos).max(slot.start);
        slot.start | (deadline & within(slot))
    })
}

/// Returns the bits of a deadline that tell the times within a slot apart.
#[inline(always)]
fn within(slot: WheelSlot) -> u64 {
    (1 << (DIGIT * slot.height as u32)) - 1
}

/// Prefetches the entries of a block, if they have the deadlines.
#[inline(always)]
pub(super) fn prefetch_block<Id, D, E>(blocks: &Blocks<D, Id>, list: &List, number: u32, entries: &E)
where
    D: ItemDeadline,
    E: WheelEntries<Id, D>,
{
    if !D::IS_STORED {
        let ids = blocks.block(list, number).1.iter().filter_map(|item| item.id.as_ref());
        ids.for_each(|id| entries.prefetch_entry(id));
    }
}
