//! The changes of a transaction, before they are written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use bytes::Bytes;

use super::blocks::SharedBlocks;

/// Entries that a transaction writes and removes. A later change of a key replaces an earlier one.
///
/// The changes of the next transaction go on in the same block: use one `Changes` for many transactions.
#[derive(Debug, Default)]
pub(super) struct Changes {
    entries: BTreeMap<Bytes, Change>,
    blocks: SharedBlocks,
}

#[derive(Debug)]
struct Change {
    /// `None` if the entry is removed.
    value: Option<Bytes>,
    /// Whether the tables have no such entry, so that its removal is nothing to be written.
    is_new: bool,
}

impl Changes {
    /// Returns what the transaction did to a key: `None` if nothing, `Some(None)` if it removed the entry.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.entries.get(key).map(|change| change.value.as_deref())
    }

    /// Returns the changes of the keys that begin with `prefix`, in their order.
    pub(super) fn scan<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let range = self.entries.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        let of_prefix = range.take_while(move |(key, _)| key.starts_with(prefix));
        of_prefix.map(|(key, change)| (&key[..], change.value.as_deref()))
    }

    /// Writes an entry.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, value, false);
    }

    /// Writes an entry that the tables do not have, unless this transaction has removed it.
    pub(super) fn put_new(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, value, true);
    }

    fn write(&mut self, key: &[u8], value: &[u8], is_new: bool) {
        let (key, value) = (self.blocks.copy(key), self.blocks.copy(value));
        match self.entries.entry(key) {
            Entry::Vacant(entry) => _ = entry.insert(Change { value: Some(value), is_new }),
            Entry::Occupied(mut entry) => entry.get_mut().value = Some(value),
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &[u8]) {
        match self.entries.entry(self.blocks.copy(key)) {
            Entry::Vacant(entry) => _ = entry.insert(Change { value: None, is_new: false }),
            Entry::Occupied(entry) if entry.get().is_new => _ = entry.remove(),
            Entry::Occupied(mut entry) => entry.get_mut().value = None,
        }
    }

    /// Returns how many keys are changed.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes the changes, and returns them in the order of their keys.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + use<> {
        std::mem::take(&mut self.entries).into_iter().map(|(key, change)| (key, change.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_written_and_removed_in_one_transaction_is_not_written_at_all() {
        let mut changes = Changes::default();
        changes.put_new(b"new", b"1");
        changes.put(b"new", b"2");
        changes.remove(b"new");
        assert_eq!(changes.len(), 0);
    }

    #[test]
    fn an_entry_of_the_tables_that_is_removed_and_written_again_is_removed_at_last() {
        let mut changes = Changes::default();
        changes.remove(b"old");
        assert_eq!(changes.get(b"old"), Some(None));
        changes.put_new(b"old", b"1");
        assert_eq!(changes.get(b"old"), Some(Some(&b"1"[..])));
        changes.remove(b"old");
        assert_eq!(changes.take().collect::<Vec<_>>(), [("old".into(), None)]);
        assert_eq!(changes.len(), 0);
    }

    #[test]
    fn changes_are_found_by_what_their_keys_begin_with() {
        let mut changes = Changes::default();
        for name in ["a", "ab", "b", "abc"] {
            changes.put(name.as_bytes(), name.as_bytes());
        }
        changes.remove(b"ab");
        let found: Vec<_> = changes.scan(b"ab").collect();
        assert_eq!(found, [(&b"ab"[..], None), (&b"abc"[..], Some(&b"abc"[..]))]);
    }
}
