//! The keys of the embedded store: all entries are in one keyspace, and the first byte of a key says what the entry is.
//!
//! ```text
//! m                                     totals          written with every transaction
//! r  timer occurrence                   row             the truth; all other entries follow from it
//! k  namespace key                      id of a row     the head that holds the key
//! n  namespace name timer occurrence                    rows by name
//! d  kind wake timer occurrence         version shard   armed rows, by the time of their next look
//! c  kind wake timer occurrence         the same, epoch claimed rows, by the end of their lease
//! e  state timer occurrence                             armed rows whose last delivery failed, and dead letters
//! h  slot                               history entry   a ring of the occurrences that ended last
//! ```
//!
//! One keyspace and not one for each index: a transaction is then in the tables as a whole or not at all, and a cancel of many timers
//! costs one memtable. Texts are preceded by their length, numbers are big-endian, so that keys sort as their fields do.

use crate::id::TimerId;
use crate::store::row::{RowId, RowState, TimerRow};
use crate::time::StoreTime;

/// The key of the totals.
pub(super) const TOTALS: &[u8] = b"m";

/// The most bytes of a text in a key. The texts of a checked timer are much shorter, and two of this length fit into a key of the engine.
const LONGEST_TEXT: usize = 16 * 1024;

const ROW: u8 = b'r';
const HEAD: u8 = b'k';
const NAME: u8 = b'n';
const ARMED: u8 = b'd';
const CLAIMED: u8 = b'c';
const FAILED: u8 = b'e';
const HISTORY: u8 = b'h';

/// The two indexes of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeIndex {
    /// Armed rows.
    Armed,
    /// Claimed rows.
    Claimed,
}

/// The fields of a key of a [`TimeIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeKey<'a> {
    pub(super) kind: &'a str,
    pub(super) wake: StoreTime,
    pub(super) id: RowId,
}

impl TimeIndex {
    const fn tag(self) -> u8 {
        match self {
            TimeIndex::Armed => ARMED,
            TimeIndex::Claimed => CLAIMED,
        }
    }

    /// Returns what all keys of the index begin with.
    pub(super) fn all(self) -> Vec<u8> {
        vec![self.tag()]
    }

    /// Returns what the keys of a kind begin with.
    pub(super) fn of_kind(self, kind: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(3 + kind.len() + 34);
        key.push(self.tag());
        push_text(&mut key, kind);
        key
    }

    /// Returns the key of a row.
    pub(super) fn key(self, kind: &str, wake: StoreTime, id: RowId) -> Vec<u8> {
        let mut key = self.of_kind(kind);
        key.extend_from_slice(&wake.as_micros().to_be_bytes());
        push_id(&mut key, id);
        key
    }

    /// Returns the smallest key of a kind that is not before `wake`.
    pub(super) fn from(self, kind: &str, wake: StoreTime) -> Vec<u8> {
        let mut key = self.of_kind(kind);
        key.extend_from_slice(&wake.as_micros().to_be_bytes());
        key
    }

    /// Returns the fields of a key; `None` if it is malformed.
    pub(super) fn parse(self, key: &[u8]) -> Option<TimeKey<'_>> {
        let (kind, rest) = split_text(key.strip_prefix(&[self.tag()])?)?;
        let (wake, id) = rest.split_first_chunk::<8>()?;
        Some(TimeKey { kind, wake: StoreTime::from_micros(u64::from_be_bytes(*wake)), id: parse_id(id)? })
    }
}

/// Returns the key of a row.
pub(super) fn row(id: RowId) -> Vec<u8> {
    let mut key = Vec::with_capacity(26);
    key.push(ROW);
    push_id(&mut key, id);
    key
}

/// Returns what the keys of all rows begin with.
pub(super) fn all_rows() -> Vec<u8> {
    vec![ROW]
}

/// Returns what the keys of a timer's rows begin with.
pub(super) fn rows_of(timer: TimerId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(ROW);
    key.extend_from_slice(&timer.as_u128().to_be_bytes());
    key
}

/// Returns the row of a key of [`row`]; `None` if it is malformed.
pub(super) fn parse_row(key: &[u8]) -> Option<RowId> {
    parse_id(key.strip_prefix(&[ROW])?)
}

/// Returns the key of the head that holds `key`.
pub(super) fn head(namespace: &str, key: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(3 + namespace.len() + key.len());
    bytes.push(HEAD);
    push_text(&mut bytes, namespace);
    bytes.extend_from_slice(storable(key));
    bytes
}

/// Returns what the keys of the rows with a name begin with.
pub(super) fn named(namespace: &str, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + namespace.len() + name.len() + 26);
    key.push(NAME);
    push_text(&mut key, namespace);
    push_text(&mut key, name);
    key
}

/// Returns the key of a row in the index of names.
pub(super) fn name(namespace: &str, name: &str, id: RowId) -> Vec<u8> {
    let mut key = named(namespace, name);
    push_id(&mut key, id);
    key
}

/// Returns the row of a key that begins with `prefix`, which [`named`] returned; `None` if it is malformed.
pub(super) fn parse_name(prefix: &[u8], key: &[u8]) -> Option<RowId> {
    parse_id(key.strip_prefix(prefix)?)
}

/// Returns what the keys of failed rows of a state begin with.
pub(super) fn failed(state: RowState) -> Vec<u8> {
    vec![FAILED, state as u8]
}

/// Returns the key of a row in the index of failures.
pub(super) fn failure(state: RowState, id: RowId) -> Vec<u8> {
    let mut key = failed(state);
    push_id(&mut key, id);
    key
}

/// Returns the row of a key of [`failure`]; `None` if it is malformed.
pub(super) fn parse_failure(key: &[u8]) -> Option<RowId> {
    parse_id(key.strip_prefix(&[FAILED])?.get(1..)?)
}

/// Returns the key of a slot of the history.
pub(super) fn history(slot: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(HISTORY);
    key.extend_from_slice(&slot.to_be_bytes());
    key
}

/// Returns what the keys of the history begin with.
pub(super) fn all_history() -> Vec<u8> {
    vec![HISTORY]
}

/// Returns the smallest key that is behind all keys that begin with `prefix`, which does so with one of the tags.
pub(super) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end
}

/// Returns what the keys of each index begin with.
pub(super) fn indexes() -> [Vec<u8>; 5] {
    [HEAD, NAME, ARMED, CLAIMED, FAILED].map(|tag| vec![tag])
}

/// Returns what the keys of all entries but the totals begin with.
pub(super) fn all() -> [Vec<u8>; 7] {
    [ROW, HEAD, NAME, ARMED, CLAIMED, FAILED, HISTORY].map(|tag| vec![tag])
}

/// Returns the keys under which a row is in the indexes.
pub(super) fn index_keys(row: &TimerRow) -> IndexKeys {
    let spec = &*row.spec;
    let time = match row.state {
        RowState::Armed => Some(TimeIndex::Armed.key(&spec.kind, row.wake, row.id)),
        RowState::Claimed => Some(TimeIndex::Claimed.key(&spec.kind, row.wake, row.id)),
        RowState::Dead => None,
    };
    let is_failure = match row.state {
        RowState::Armed => row.last_error.is_some(),
        RowState::Claimed => false,
        RowState::Dead => true,
    };
    IndexKeys {
        head: spec.key.as_ref().filter(|_| row.is_head).map(|key| head(&spec.namespace, key)),
        name: spec.name.as_ref().map(|called| name(&spec.namespace, called, row.id)),
        time,
        failure: is_failure.then(|| failure(row.state, row.id)),
    }
}

/// The keys of a row in the indexes.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct IndexKeys {
    pub(super) head: Option<Vec<u8>>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) time: Option<Vec<u8>>,
    pub(super) failure: Option<Vec<u8>>,
}

/// Appends a row's id: the occurrence as the number of its bytes and then these bytes, which sorts as the number does.
pub(super) fn push_id(out: &mut Vec<u8>, id: RowId) {
    out.extend_from_slice(&id.timer.as_u128().to_be_bytes());
    let bytes = id.occurrence.to_be_bytes();
    let zeros = id.occurrence.leading_zeros() as usize / 8;
    out.push((bytes.len() - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

/// Returns the id of [`push_id`]; `None` if it is malformed or bytes follow it.
pub(super) fn parse_id(bytes: &[u8]) -> Option<RowId> {
    let (timer, rest) = bytes.split_first_chunk::<16>()?;
    let (count, number) = rest.split_first()?;
    let count = usize::from(*count);
    if count > 8 || number.len() != count {
        return None;
    }
    let mut occurrence = [0; 8];
    occurrence[8 - count..].copy_from_slice(number);
    let timer = TimerId::from_u128(u128::from_be_bytes(*timer));
    Some(RowId { timer, occurrence: u64::from_be_bytes(occurrence) })
}

/// Appends a text and its length.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let text = storable(text);
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

/// Returns as much of a text as a key may have. A question may name a text that no timer can have: what is left of it is still too long for a
/// timer, so nothing is found.
fn storable(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(LONGEST_TEXT)]
}

fn split_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(timer: u128, occurrence: u64) -> RowId {
        RowId { timer: TimerId::from_u128(timer), occurrence }
    }

    #[test]
    fn u4_keys_of_rows_sort_as_their_ids_do() {
        let ids = [id(0, 0), id(0, 1), id(0, 255), id(0, 256), id(0, u64::MAX), id(1, 0), id(u128::MAX, u64::MAX)];
        assert!(ids.map(row).is_sorted());
        for of in ids {
            assert_eq!(parse_row(&row(of)), Some(of));
        }
    }

    #[test]
    fn keys_of_times_sort_by_kind_then_time_then_row() {
        let at = StoreTime::from_micros;
        let key = |kind, wake, row| TimeIndex::Armed.key(kind, at(wake), row);
        let keys = [key("a", 9, id(9, 9)), key("b", 1, id(2, 1)), key("b", 256, id(1, 1)), key("b", 256, id(1, 2))];
        assert!(keys.is_sorted());
        assert_eq!(TimeIndex::Armed.parse(&keys[2]), Some(TimeKey { kind: "b", wake: at(256), id: id(1, 1) }));
        assert_eq!(TimeIndex::Claimed.parse(&keys[2]), None);
        assert!(key("b", 1, id(2, 1)) > TimeIndex::Armed.from("b", at(1)));
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_its_keys_and_before_all_others() {
        for (prefix, end) in
            [(&b"d"[..], &b"e"[..]), (b"d\x01", b"d\x02"), (b"d\xff", b"e"), (b"d\x01\xff\xff", b"d\x02")]
        {
            assert_eq!(behind(prefix), end);
            assert!([prefix, &[0xff; 40]].concat() < end.to_vec());
        }
    }

    #[test]
    fn u2_no_name_is_the_beginning_of_another_in_the_index() {
        let long = name("space", "client 77", id(1, 1));
        assert!(!long.starts_with(&named("space", "client 7")));
        assert!(!name("space7", "x", id(1, 1)).starts_with(&named("space", "7x")));
        assert_eq!(parse_name(&named("space", "client 77"), &long), Some(id(1, 1)));
        assert_ne!(head("a", "bc"), head("ab", "c"));
    }

    #[test]
    fn q8_malformed_keys_are_refused() {
        let good = row(id(7, 300));
        for length in 0..good.len() {
            assert_eq!(parse_row(&good[..length]), None);
        }
        let mut long = good;
        long.push(0);
        assert_eq!(parse_row(&long), None);
    }
}
