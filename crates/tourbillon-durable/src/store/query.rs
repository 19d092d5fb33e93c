//! Questions to a store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::row::{RowId, RowState, TimerRow};
use super::shard::ShardId;
use crate::time::StoreTime;

/// A row that is to be looked at: as much of it as its owner keeps in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DueEntry {
    /// When to look.
    pub wake: StoreTime,
    /// The row.
    pub id: RowId,
    /// Its version.
    pub version: u64,
    /// Its shard.
    pub shard: ShardId,
}

/// The position of an entry in the order of [`DuePage`]s.
pub type DueCursor = (StoreTime, RowId);

/// Asks for rows of one kind that are to be looked at until some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueQuery {
    /// The kind.
    pub kind: String,
    /// The shards, in ascending order.
    pub shards: Vec<ShardId>,
    /// Only entries behind this one.
    pub after: Option<DueCursor>,
    /// Only entries whose time is not later than this.
    pub until: StoreTime,
    /// The most entries of the page.
    pub limit: usize,
}

/// Entries in the order of their times, equal times in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DuePage {
    /// The entries.
    pub entries: Vec<DueEntry>,
    /// Whether there may be more until the time that was asked for.
    pub has_more: bool,
    /// When the first entry behind the page is to be looked at, if there are no more until the time that was asked for and the store
    /// knows it cheaply; [`StoreTime::MAX`] if there is none.
    pub next_wake: Option<StoreTime>,
}

/// Which rows a list has (U4). Every field that is set must match.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListFilter {
    /// The namespace.
    pub namespace: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// What the key or the name begins with.
    pub prefix: Option<String>,
    /// The kind.
    pub kind: Option<String>,
    /// The state.
    pub state: Option<RowState>,
    /// Due at this time or later.
    pub due_from: Option<StoreTime>,
    /// Due before this time.
    pub due_before: Option<StoreTime>,
    /// Only rows whose last delivery failed.
    pub failed: bool,
}

/// Where a page of a list ended. It stays valid whatever happens to the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cursor(pub RowId);

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListPage {
    /// The rows; none only if this is the last page.
    pub rows: Vec<TimerRow>,
    /// Where the next page begins; `None` if this is the last. The next page has no rows if all that were behind this one have ended.
    pub next: Option<Cursor>,
}

/// How near a time is that [`StoreCounts::due_soon`] counts.
pub const SOON: Duration = Duration::from_secs(60);

/// The most that [`StoreCounts::due_soon`] counts.
pub const MOST_SOON: u64 = 10_000;

/// How many rows a store has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreCounts {
    /// Rows that wait for their time.
    pub armed: u64,
    /// Rows that are being delivered.
    pub claimed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Armed rows that are to be delivered within [`SOON`]: this many, or more if this is [`MOST_SOON`].
    pub due_soon: u64,
    /// Armed rows whose last delivery failed: they are tried again.
    pub failed: u64,
    /// Whether the store is paused.
    pub is_paused: bool,
    /// For each kind, how many rows are armed and already due: of a kind without a handler they wait (D53).
    pub overdue: Vec<(String, u64)>,
}

impl DuePage {
    /// Returns a page without entries, behind which there is none.
    #[must_use]
    pub(crate) fn empty() -> DuePage {
        DuePage { next_wake: Some(StoreTime::MAX), ..DuePage::default() }
    }

    /// Adds the next entry of a query, in the order of pages. Returns whether the page takes further entries.
    pub(crate) fn add(&mut self, entry: DueEntry, query: &DueQuery) -> bool {
        if entry.wake > query.until {
            self.next_wake = Some(entry.wake);
            return false;
        }
        if self.entries.len() == query.limit {
            (self.has_more, self.next_wake) = (true, None);
            return false;
        }
        self.entries.push(entry);
        true
    }
}

impl ListFilter {
    /// Returns whether a row passes.
    #[must_use]
    pub fn passes(&self, row: &TimerRow) -> bool {
        let spec = &*row.spec;
        let is = |wanted: &Option<String>, has: Option<&String>| wanted.is_none() || wanted.as_ref() == has;
        let begins = |text: &Option<String>| {
            let prefix = self.prefix.as_deref().unwrap_or_default();
            text.as_ref().is_some_and(|text| text.starts_with(prefix))
        };
        is(&self.namespace, Some(&spec.namespace))
            && is(&self.key, spec.key.as_ref())
            && is(&self.name, spec.name.as_ref())
            && is(&self.kind, Some(&spec.kind))
            && (self.prefix.is_none() || begins(&spec.key) || begins(&spec.name))
            && self.state.is_none_or(|state| state == row.state)
            && (!self.failed || row.last_error.is_some())
            && self.due_from.is_none_or(|from| row.due >= from)
            && self.due_before.is_none_or(|before| row.due < before)
    }
}

impl From<&TimerRow> for DueEntry {
    fn from(row: &TimerRow) -> DueEntry {
        DueEntry { wake: row.wake, id: row.id, version: row.version, shard: row.shard }
    }
}
