//! Keys and values in the form in which the engine keeps them, many in one allocation.
//!
//! The engine keeps every entry of a transaction in memory until it has written a table. With an allocation for each key and each value, the
//! writer spends more time in the allocator than in the engine, and the engine's thread, which frees them, holds the allocator's locks
//! meanwhile. The entries of a transaction come and go together, so they share blocks.

use bytes::Bytes;
use fjall::Slice;

/// A key, and its value unless the entry is removed.
type Entry<T> = (T, Option<T>);

/// The bytes of a block, unless one entry has more.
const BLOCK: usize = 1 << 20;

/// Returns entries as slices of shared blocks, in the same order.
pub(super) fn in_blocks(entries: &[Entry<Vec<u8>>]) -> Vec<Entry<Slice>> {
    let mut slices = Vec::with_capacity(entries.len());
    let mut rest = entries;
    while !rest.is_empty() {
        let (block, after) = rest.split_at(entries_of_block(rest));
        push_block(block, &mut slices);
        rest = after;
    }
    slices
}

/// Returns how many of the first entries fit into a block: at least one.
fn entries_of_block(entries: &[Entry<Vec<u8>>]) -> usize {
    let mut bytes = 0;
    let fitting = entries.iter().take_while(|entry| {
        bytes += length(entry);
        bytes <= BLOCK
    });
    fitting.count().max(1)
}

fn push_block(entries: &[Entry<Vec<u8>>], slices: &mut Vec<Entry<Slice>>) {
    let mut block = Vec::with_capacity(entries.iter().map(length).sum());
    for (key, value) in entries {
        block.extend_from_slice(key);
        block.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let mut rest = Bytes::from(block);
    for (key, value) in entries {
        let key = rest.split_to(key.len());
        let value = value.as_ref().map(|value| rest.split_to(value.len()));
        slices.push((key.into(), value.map(Slice::from)));
    }
}

fn length((key, value): &Entry<Vec<u8>>) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_bytes_and_their_order_in_any_number_of_blocks() {
        let entry = |number: usize| {
            // An empty value, a removed entry, one that fills a block alone, one that just does not.
            let value = match number % 7 {
                0 => Some(Vec::new()),
                1 => None,
                2 => Some(vec![2; BLOCK]),
                3 => Some(vec![3; BLOCK - 4]),
                other => Some(vec![other as u8; number]),
            };
            ((number as u32).to_be_bytes().to_vec(), value)
        };
        for count in [0, 1, 2, 3, 50] {
            let entries: Vec<_> = (0..count).map(entry).collect();
            let slices = in_blocks(&entries);
            let back: Vec<Entry<Vec<u8>>> =
                slices.iter().map(|(key, value)| (key.to_vec(), value.as_ref().map(|value| value.to_vec()))).collect();
            assert_eq!(back, entries);
        }
    }

    #[test]
    fn a_block_has_the_entries_that_fit_and_at_least_one() {
        let of = |bytes: usize| (vec![0; 10], Some(vec![0; bytes - 10]));
        assert_eq!(entries_of_block(&[of(BLOCK), of(20)]), 1);
        assert_eq!(entries_of_block(&[of(BLOCK + 1), of(20)]), 1, "too large for any block");
        assert_eq!(entries_of_block(&[of(BLOCK - 40), of(20), of(20), of(20)]), 3);
    }
}
