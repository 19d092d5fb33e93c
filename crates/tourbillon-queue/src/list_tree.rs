//! Ordered runs, and a tree for the timers that fit no run.
//!
//! Most programs have few different timeouts. Timers with the same timeout are armed in the order of their deadlines, so
//! appending them to a list, a *run*, keeps it sorted:
//!
//! ```text
//!     run 0    10:00:00.1   10:00:00.2   10:00:00.2   ...   10:00:29.9     30 s timeouts: always append
//!     run 1    10:00:00.4   10:00:00.9                                     1 s timeouts
//!     run 2    11:00:00.0                                                  a single one, an hour away
//!     ...                                                                  RUNS at most
//!     tree     timers that are due before the end of every run
//! ```
//!
//! A timer goes to the run whose last deadline is the latest one that is not after its own. If there is no such run, it
//! begins an empty one. If no run is empty, the entries of the shortest run move into the tree to make it empty, provided
//! that there are few of them; otherwise the timer goes to the tree. So a few far timers do not keep the others out of the
//! runs, and timers in no order at all end up in the tree, at the cost of a tree.
//!
//! Each timer has a sequence number, which decides between equal deadlines in different runs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::blocks::{Blocks, List, ListOwner};
use crate::place::{Place, PlaceKind};
use crate::raw::{Entries, RawQueue};
use crate::violation::{Violation, ensure};
use crate::{Keyed, Time, Timer};

/// A timer queue for timers of a few different durations: O(1) for those, O(log n) in a tree for the others.
///
/// See [`RawListTree`] for the structure, [`TimerQueue`](crate::TimerQueue) for the methods.
///
/// ```
/// use tourbillon_queue::{ListTree, Span, Time, TimerQueue};
///
/// let mut queue = ListTree::new();
/// for second in 0..3 {
///     let now = Time::ZERO + Span::from_secs(second);
///     queue.insert(now + Span::from_secs(30), (second, "request")); // always the latest of their kind: appended
///     queue.insert(now + Span::from_secs(1), (second, "ping"));
/// }
/// assert_eq!(queue.pop(Time::ZERO + Span::from_secs(60)).unwrap().value, (0, "ping"));
/// ```
pub type ListTree<T> = Keyed<T, RawListTree<Timer<T>>>;

/// Sorted runs and a tree of ids, for entries that live anywhere.
#[derive(Clone)]
pub struct RawListTree<Id> {
    runs: [List; RUNS],
    /// Bitmap of the runs that have entries.
    used: u32,
    blocks: Blocks<ArmOrder, Id>,
    /// The number of each used cell, by the order of its entry.
    tree: BTreeMap<ArmOrder, u32>,
    cells: Vec<TreeCell<Id>>,
    /// The first free cell.
    free: u32,
    sequence: u64,
}

/// The firing order: by deadline, then by a sequence number.
type ArmOrder = (Time, u64);

/// An entry in the tree, or a free cell. An entry keeps its cell for as long as it is in the tree.
#[derive(Clone)]
enum TreeCell<Id> {
    Used { order: ArmOrder, id: Id },
    Free { next: u32 },
}

const RUNS: usize = 8;

/// The most entries of a run that may be moved into the tree.
const SHORT: usize = 8;

const END: u32 = u32::MAX;

impl<Id> RawListTree<Id> {
    /// Returns an empty queue. Allocates nothing.
    #[must_use]
    pub const fn new() -> RawListTree<Id> {
        RawListTree {
            runs: [List::EMPTY; RUNS],
            used: 0,
            blocks: Blocks::new(),
            tree: BTreeMap::new(),
            cells: Vec::new(),
            free: END,
            sequence: 0,
        }
    }

    /// Iterates over the numbers of the runs that have entries.
    #[inline(always)]
    fn used_runs(&self) -> impl Iterator<Item = usize> + use<Id> {
        let mut used = self.used;
        core::iter::from_fn(move || {
            let number = used.trailing_zeros() as usize;
            used &= used.wrapping_sub(1);
            (number < RUNS).then_some(number)
        })
    }

    /// Returns the run that an entry due at `deadline` can be appended to: an empty one only if no other fits.
    #[inline(always)]
    fn find_run(&self, deadline: Time) -> Option<usize> {
        let mut best = None;
        for number in self.used_runs() {
            let last = self.blocks.last_key(&self.runs[number]).map(|(last, _)| last);
            if last <= Some(deadline) && best.is_none_or(|(latest, _)| last > latest) {
                best = Some((last, number));
            }
        }
        let empty = (!self.used).trailing_zeros() as usize;
        best.map(|(_, number)| number).or((empty < RUNS).then_some(empty))
    }

    /// Clears the bit of a run that a removal has emptied.
    #[inline]
    fn note_removed(&mut self, number: usize) {
        if self.runs[number].is_empty() {
            self.used &= !(1 << number);
        }
    }

    /// Moves the entries of the shortest run into the tree, if they are few enough, and returns that run.
    fn clear_run<E: Entries<Id>>(&mut self, entries: &mut E) -> Option<usize> {
        let len = |run: &List| self.blocks.len_up_to(run, SHORT + 1);
        let (number, len) = self.runs.iter().map(len).enumerate().min_by_key(|(_, len)| *len)?;
        if len > SHORT {
            return None;
        }
        for (order, id) in self.blocks.take_if(&mut self.runs[number], |_| true, entries) {
            entries.set_place(&id, Place::side(self.next_cell()));
            self.insert_in_tree(order, id);
        }
        self.used &= !(1 << number);
        Some(number)
    }

    /// Returns the number of the cell that the next entry in the tree will get.
    fn next_cell(&self) -> u32 {
        if self.free == END { self.cells.len() as u32 } else { self.free }
    }

    fn insert_in_tree(&mut self, order: ArmOrder, id: Id) -> Place {
        let number = self.next_cell();
        let used = TreeCell::Used { order, id };
        match self.cells.get_mut(number as usize) {
            Some(cell) => {
                if let TreeCell::Free { next } = core::mem::replace(cell, used) {
                    self.free = next;
                }
            }
            None => self.cells.push(used),
        }
        self.tree.insert(order, number);
        Place::side(number)
    }

    fn remove_from_tree(&mut self, number: u32) -> (Id, Time) {
        let free = TreeCell::Free { next: self.free };
        match core::mem::replace(&mut self.cells[number as usize], free) {
            TreeCell::Used { order, id } => {
                self.free = number;
                self.tree.remove(&order);
                (id, order.0)
            }
            TreeCell::Free { .. } => unreachable!("an entry was removed twice, or from another queue"),
        }
    }

    /// Returns the order of the earliest entry in the runs, and the number of its run.
    #[inline]
    fn first_run(&self) -> Option<(ArmOrder, usize)> {
        let fronts = self.used_runs().filter_map(|number| Some((self.blocks.front_key(&self.runs[number])?, number)));
        fronts.min()
    }

    fn first_in_tree(&self) -> Option<(ArmOrder, u32)> {
        self.tree.first_key_value().map(|(order, number)| (*order, *number))
    }
}

impl<Id> Default for RawListTree<Id> {
    fn default() -> RawListTree<Id> {
        RawListTree::new()
    }
}

impl<Id> RawQueue<Id> for RawListTree<Id> {
    const BYTES_PER_ENTRY: usize = Blocks::<ArmOrder, Id>::ITEM_BYTES;

    #[inline(always)]
    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        let order = (deadline, self.sequence);
        self.sequence += 1;
        match self.find_run(deadline).or_else(|| self.clear_run(entries)) {
            Some(number) => {
                self.used |= 1 << number;
                Place::main(self.blocks.push(&mut self.runs[number], ListOwner(number as u32), order, id))
            }
            None => self.insert_in_tree(order, id),
        }
    }

    #[inline(always)]
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time) {
        match place.kind() {
            PlaceKind::Main(position) => {
                let number = self.blocks.owner(position).0 as usize;
                let ((deadline, _), id) = self.blocks.remove(&mut self.runs[number], position, entries);
                self.note_removed(number);
                (id, deadline)
            }
            PlaceKind::Side(number) => self.remove_from_tree(number),
            PlaceKind::Never(_) | PlaceKind::Nowhere => unreachable!("an entry that is not in the queue has its place"),
        }
    }

    fn get(&self, place: Place) -> Option<(&Id, Time)> {
        match place.kind() {
            PlaceKind::Main(position) => self.blocks.id(position).map(|id| (id, self.blocks.key(position).0)),
            PlaceKind::Side(number) => match self.cells.get(number as usize)? {
                TreeCell::Used { order, id } => Some((id, order.0)),
                TreeCell::Free { .. } => None,
            },
            PlaceKind::Never(_) | PlaceKind::Nowhere => None,
        }
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Id> {
        match place.kind() {
            PlaceKind::Main(position) => self.blocks.id_mut(position),
            PlaceKind::Side(number) => match self.cells.get_mut(number as usize)? {
                TreeCell::Used { id, .. } => Some(id),
                TreeCell::Free { .. } => None,
            },
            PlaceKind::Never(_) | PlaceKind::Nowhere => None,
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let run = self.first_run().map(|(order, _)| order);
        let tree = self.first_in_tree().map(|(order, _)| order);
        run.into_iter().chain(tree).min().map(|(deadline, _)| deadline)
    }

    #[inline]
    fn pop<E: Entries<Id>>(&mut self, _: &mut E, now: Time) -> Option<(Id, Time)> {
        let run = self.first_run();
        if let Some((first, number)) = self.first_in_tree()
            && run.is_none_or(|(order, _)| first < order)
        {
            return (first.0 <= now).then(|| self.remove_from_tree(number));
        }
        let (_, number) = run?;
        let ((deadline, _), id) = self.blocks.pop_front_if(&mut self.runs[number], |(deadline, _)| deadline <= now)?;
        self.note_removed(number);
        Some((id, deadline))
    }

    fn for_each(&self, mut visit: impl FnMut(&Id)) {
        self.blocks.ids().for_each(&mut visit);
        for cell in &self.cells {
            if let TreeCell::Used { id, .. } = cell {
                visit(id);
            }
        }
    }

    fn clear(&mut self) {
        *self = RawListTree::new();
    }

    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        let (mut count, mut blocks) = (0, 0);
        for (number, run) in self.runs.iter().enumerate() {
            let len = self.blocks.check(run, ListOwner(number as u32), entries)?;
            ensure!((len > 0) == (self.used >> number & 1 == 1), "list tree: a run and its bit disagree");
            ensure!(self.blocks.iter(run).map(|(order, _)| order).is_sorted(), "list tree: a run is not in order");
            (count, blocks) = (count + len, blocks + run.blocks());
        }
        self.blocks.check_free(blocks)?;
        for (order, &number) in &self.tree {
            let Some(TreeCell::Used { order: own, id }) = self.cells.get(number as usize) else {
                return Err(Violation::new("list tree: the tree leads to a free cell"));
            };
            ensure!(own == order, "list tree: a cell holds an entry of another order");
            ensure!(entries.place(id) == Place::side(number), "list tree: an entry's place is not its cell");
        }
        let used = self.cells.iter().filter(|cell| matches!(cell, TreeCell::Used { .. })).count();
        ensure!(used == self.tree.len(), "list tree: an entry is not in the tree");
        Ok(count + used)
    }
}

impl<Id> core::fmt::Debug for RawListTree<Id> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let runs = self.used.count_ones();
        f.debug_struct("RawListTree").field("runs", &runs).field("tree", &self.tree.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{ListTree, Span, Time, TimerQueue};

    fn in_tree<T>(queue: &ListTree<T>) -> usize {
        queue.raw().tree.len()
    }

    #[test]
    fn d34_a_far_timer_at_the_tail_sends_no_other_to_the_tree() {
        let mut queue = ListTree::new();
        queue.insert(Time::ZERO + Span::from_secs(3600), 0);
        for n in 0..1000 {
            queue.insert(Time::ZERO + Span::from_secs(1) + Span::from_nanos(n), n);
        }
        assert_eq!(in_tree(&queue), 0, "each of them was appended to a run");
    }

    #[test]
    fn d34_far_timers_in_descending_order_make_room_for_a_run() {
        let mut queue = ListTree::new();
        for hour in (1..=100).rev() {
            queue.insert(Time::ZERO + Span::from_secs(3600 * hour), 0);
        }
        let before = in_tree(&queue);
        for n in 0..1000 {
            queue.insert(Time::ZERO + Span::from_secs(1) + Span::from_nanos(n), n);
        }
        assert!(in_tree(&queue) <= before + super::SHORT, "at most one run moved to the tree");
        queue.check().unwrap();
    }

    #[test]
    fn w1_as_many_timeouts_as_there_are_runs_need_no_tree() {
        let mut queue = ListTree::new();
        for n in 0..10_000 {
            for timeout in 1..=super::RUNS as u64 {
                queue.insert(Time::from_nanos(n) + Span::from_secs(timeout), n);
            }
        }
        assert_eq!(in_tree(&queue), 0);
        queue.check().unwrap();
    }

    #[test]
    fn d34_a_run_goes_to_the_tree_only_if_it_is_short() {
        for (len, moved) in [(super::SHORT, super::SHORT), (super::SHORT + 1, 1)] {
            let mut queue = ListTree::new();
            for run in (1..=super::RUNS as u64).rev() {
                for n in 0..len as u64 {
                    queue.insert(Time::from_nanos(1000 * run + n), n);
                }
            }
            assert_eq!(in_tree(&queue), 0);
            queue.insert(Time::ZERO, 0);
            assert_eq!(in_tree(&queue), moved, "all entries of a run, or only the new timer");
            queue.check().unwrap();
        }
    }

    #[test]
    fn d34_a_timer_goes_to_the_run_that_ends_closest_before_it() {
        let mut queue = ListTree::new();
        let [_, _, last] = [50, 10, 60].map(|nanos| queue.insert(Time::from_nanos(nanos), nanos));
        queue.insert(Time::from_nanos(55), 55);
        // One run ends at 50 now, the other at 55.
        queue.remove(last);
        queue.insert(Time::from_nanos(70), 70);
        let raw = queue.raw();
        let ends = [0, 1].map(|run| raw.blocks.last_key(&raw.runs[run]).map(|(deadline, _)| deadline.as_nanos()));
        assert_eq!(ends, [Some(50), Some(70)]);
    }
}
