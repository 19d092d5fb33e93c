//! The word by which a queue finds an entry again.

use core::fmt;

/// The position of an entry inside a raw queue: one word that the queue stores with the entry and reads back to find it.
///
/// Opaque to all code but the queue that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(u32);

impl Place {
    /// The place of an entry that is in no queue.
    pub const NOWHERE: Place = Place(u32::MAX);

    /// The number of indices of each [kind](PlaceKind).
    pub(crate) const INDICES: u32 = 1 << 30;

    /// The smallest word that is not a position in a queue: this word and all greater ones are [`PlaceKind::Nowhere`].
    pub(crate) const FIRST_NOWHERE: u32 = 3 * Self::INDICES;

    /// Returns the place of an entry that is in no queue, with a number of the caller's own, below 2<sup>30</sup> - 1.
    ///
    /// An entry that is not in the queue yet can so remember where else it is, in the same word.
    ///
    /// # Panics
    /// If the number is too large.
    #[inline]
    #[must_use]
    pub const fn nowhere_with(number: u32) -> Place {
        assert!(number < u32::MAX - Self::FIRST_NOWHERE, "the number of a place must be below 2^30 - 1");
        Place(Self::FIRST_NOWHERE + number)
    }

    /// Returns the number of a place that [`nowhere_with`](Place::nowhere_with) has made.
    #[inline]
    #[must_use]
    pub const fn own_number(self) -> Option<u32> {
        match self.0.checked_sub(Self::FIRST_NOWHERE) {
            Some(number) if self.0 != u32::MAX => Some(number),
            _ => None,
        }
    }

    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Place {
        Place(bits)
    }

    pub(crate) fn main(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place(index)
    }

    pub(crate) fn side(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place(Self::INDICES | index)
    }

    pub(crate) fn never(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place((2 * Self::INDICES) | index)
    }

    #[inline]
    pub(crate) fn kind(self) -> PlaceKind {
        let index = self.0 % Self::INDICES;
        match self.0 / Self::INDICES {
            0 => PlaceKind::Main(index),
            1 => PlaceKind::Side(index),
            2 => PlaceKind::Never(index),
            _ => PlaceKind::Nowhere,
        }
    }
}

/// A decoded [`Place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceKind {
    /// In the main store of a structure.
    Main(u32),
    /// In the second store of a structure: its heap or its tree.
    Side(u32),
    /// Among the timers that never expire, outside the structure.
    Never(u32),
    /// In no queue.
    Nowhere,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind(), f)
    }
}
