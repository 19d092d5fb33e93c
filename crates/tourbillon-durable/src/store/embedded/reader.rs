//! Questions to the store: each reads one view of the tables, on a thread for reading.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, OnceLock};

use super::encoding::{self, Totals};
use super::layout::{self, TimeIndex};
use super::options::EmbeddedOptions;
use super::syncer::DurableMark;
use super::tables::{Tables, View};
use super::transaction::{read_indexed, read_row};
use crate::catch_panic::catch_panic;
use crate::id::TimerId;
use crate::spec::Recurrence;
use crate::store::error::StoreError;
use crate::store::query::{
    Cursor, DueCursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, MOST_SOON, SOON, StoreCounts,
};
use crate::store::reply::Reply;
use crate::store::row::{HistoryEntry, RowId, RowState, TimerRow};
use crate::store::shard::ShardId;
use crate::time::StoreTime;

/// How many rows a list looks at before it gives way, so that a filter that few rows pass does not keep other questions waiting.
const MOST_ROWS: usize = 50_000;

/// The one shard of the store.
pub(super) const SHARD: ShardId = ShardId(0);

/// What a thread for reading is asked for.
pub(super) enum ReadJob {
    /// A question, and the way back.
    Ask(Box<dyn FnOnce(&StoreReader) + Send>),
    /// The thread ends.
    Stop,
}

/// The state of a thread for reading.
pub(super) struct StoreReader {
    pub(super) tables: Arc<Tables>,
    pub(super) options: EmbeddedOptions,
    pub(super) failure: Arc<OnceLock<StoreError>>,
    pub(super) durable: Arc<DurableMark>,
}

impl StoreReader {
    /// Serves questions until the store is closed.
    pub(super) fn run(self, jobs: &Receiver<ReadJob>) {
        while let Ok(ReadJob::Ask(question)) = jobs.recv() {
            // The waker of a task that takes pages is code of the user. A question that it breaks off is replied to as its reply is dropped.
            catch_panic(|| question(&self));
        }
    }

    pub(super) fn options(&self) -> &EmbeddedOptions {
        &self.options
    }

    /// Replies with what `read` finds, when all of it is durable.
    pub(super) fn answer<T>(&self, reply: Reply<T>, read: impl FnOnce(View<'_>) -> Result<T, StoreError>) {
        reply.send(self.find(read));
    }

    /// Returns what `read` finds, when all of it is durable.
    fn find<T>(&self, read: impl FnOnce(View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))?;
        self.tables.closing().check()?;
        let view = self.tables.view();
        let sequence = view.totals()?.sequence;
        let found = read(view)?;
        self.durable.wait_for(sequence)?;
        Ok(found)
    }

    pub(super) fn counts(&self, view: &View<'_>) -> Result<StoreCounts, StoreError> {
        let totals = view.totals()?;
        let now = (self.options.clock)();
        let (overdue, due_soon) = due_counts(view, now)?;
        let failed = view.scan(layout::failed(RowState::Armed), Vec::new());
        let failed = failed.map(|entry| entry.map(|_| 1)).sum::<Result<u64, StoreError>>()?;
        let Totals { armed, claimed, dead, is_paused, .. } = totals;
        Ok(StoreCounts { armed, claimed, dead, due_soon, failed, is_paused, overdue })
    }

    pub(super) fn history(&self, view: &View<'_>, timer: TimerId) -> Result<Vec<HistoryEntry>, StoreError> {
        let ended = view.totals()?.ended;
        let oldest = ended.saturating_sub(self.options.history);
        let mut found = Vec::new();
        for entry in view.scan(layout::all_history(), Vec::new()) {
            let (key, value) = entry?;
            let read = encoding::read_history(&key, &value);
            let (number, entry) = read.map_err(|_| view.tables().damaged("an entry of the history is malformed"))?;
            if entry.id.timer == timer && number >= oldest {
                found.push((number, entry));
            }
        }
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    }
}

/// Sends all rows of the view in pages, and returns how many there are.
pub(super) fn snapshot(view: View<'_>, pages: &async_channel::Sender<Vec<TimerRow>>) -> Result<u64, StoreError> {
    /// The most rows of a page.
    const PAGE: usize = 1_000;

    let tables = view.tables();
    let rows = view.scan(layout::all_rows(), Vec::new());
    drop(view);
    let (mut page, mut count) = (Vec::with_capacity(PAGE), 0);
    for entry in rows {
        let (key, value) = entry?;
        page.push(read_row(tables, &key, &value)?);
        count += 1;
        if page.len() == PAGE && !tables.closing().send(pages, std::mem::take(&mut page))? {
            return Ok(count);
        }
    }
    let _receiver_is_gone = tables.closing().send(pages, page)?;
    Ok(count)
}

/// Returns rows of a kind that are to be looked at.
pub(super) fn due(view: &View<'_>, query: &DueQuery) -> Result<DuePage, StoreError> {
    let mut page = DuePage::empty();
    if !query.shards.contains(&SHARD) {
        return Ok(page);
    }
    let mut armed = times(view, TimeIndex::Armed, &query.kind, query.after).peekable();
    let mut claimed = times(view, TimeIndex::Claimed, &query.kind, query.after).peekable();
    loop {
        let position = |entry: Option<&Result<TimeEntry, StoreError>>| match entry {
            Some(Ok(entry)) => (false, Some((entry.due.wake, entry.due.id))),
            // An error comes first, nothing comes last.
            Some(Err(_)) => (false, None),
            None => (true, None),
        };
        let is_armed = position(armed.peek()) <= position(claimed.peek());
        let Some(entry) = (if is_armed { armed.next() } else { claimed.next() }) else { break };
        if !page.add(entry?.due, query) {
            break;
        }
    }
    Ok(page)
}

/// Returns claimed rows whose owner is gone.
pub(super) fn orphans(
    view: &View<'_>,
    kind: &str,
    shards: &[ShardId],
    limit: usize,
) -> Result<Vec<DueEntry>, StoreError> {
    if !shards.contains(&SHARD) {
        return Ok(Vec::new());
    }
    let epoch = view.totals()?.epoch;
    let claimed = times(view, TimeIndex::Claimed, kind, None);
    let orphans = claimed.filter(|entry| entry.as_ref().map_or(true, |entry| entry.epoch < epoch));
    orphans.take(limit).map(|entry| entry.map(|entry| entry.due)).collect()
}

/// Returns all rows of a timer, the latest occurrence first.
pub(super) fn rows_of(view: &View<'_>, timer: TimerId) -> Result<Vec<TimerRow>, StoreError> {
    let first = layout::row(RowId { timer, occurrence: 1 });
    if let Some(value) = view.get(&first)? {
        let row = read_row(view.tables(), &first, &value)?;
        if row.spec.recurrence == Recurrence::Once {
            return Ok(vec![row]);
        }
    }
    let rows = view.scan(layout::rows_of(timer), Vec::new());
    let mut rows = rows.map(|entry| read_entry(view, entry?)).collect::<Result<Vec<_>, StoreError>>()?;
    rows.reverse();
    Ok(rows)
}

/// Returns the row that holds a key.
pub(super) fn holder(view: &View<'_>, namespace: &str, key: &str) -> Result<Option<TimerRow>, StoreError> {
    let Some(value) = view.get(&layout::head(namespace, key))? else { return Ok(None) };
    let id = encoding::read_head(&value).map_err(|_| view.tables().damaged("an entry of the keys is malformed"))?;
    read_indexed(view, id).map(Some)
}

/// A list that is asked for.
pub(super) struct ListQuestion {
    pub(super) filter: ListFilter,
    pub(super) cursor: Option<Cursor>,
    pub(super) limit: usize,
    pub(super) reply: Reply<ListPage>,
}

impl ListQuestion {
    /// Asks a thread for reading. If the store is closed, the question is dropped, and its reply says so.
    pub(super) fn ask(self, lane: Sender<ReadJob>) {
        let again = lane.clone();
        let _is_closed = lane.send(ReadJob::Ask(Box::new(move |reader| self.answer(reader, again))));
    }

    /// Replies with a page that has rows or is the last. A part without rows is not the answer: the search goes on behind it, when the
    /// questions have been answered that came in the meantime, unless nobody waits for it any more.
    fn answer(self, reader: &StoreReader, lane: Sender<ReadJob>) {
        if !self.reply.is_wanted() {
            return;
        }
        match reader.find(|view| list(&view, &self.filter, self.cursor, self.limit)) {
            Ok(ListPage { rows, next: Some(next) }) if rows.is_empty() => {
                ListQuestion { cursor: Some(next), ..self }.ask(lane);
            }
            page => self.reply.send(page),
        }
    }
}

/// Returns rows that pass a filter, in the order of their ids. Not all rows may have been looked at: there is a cursor then, but there may
/// be fewer rows than there is room for, or none.
fn list(view: &View<'_>, filter: &ListFilter, cursor: Option<Cursor>, limit: usize) -> Result<ListPage, StoreError> {
    match (&filter.namespace, &filter.name, failed_state(filter)) {
        (Some(namespace), Some(name), _) => {
            let prefix = layout::named(namespace, name);
            let from = cursor.map_or_else(Vec::new, |cursor| after(layout::name(namespace, name, cursor.0)));
            let rows = view.scan(prefix.clone(), from).map(|entry| {
                let id = layout::parse_name(&prefix, &entry?.0);
                read_indexed(view, id.ok_or_else(|| view.tables().damaged("an entry of the names is malformed"))?)
            });
            page(rows, filter, limit)
        }
        (_, _, Some(state)) => {
            let from = cursor.map_or_else(Vec::new, |cursor| after(layout::failure(state, cursor.0)));
            let rows = view.scan(layout::failed(state), from).map(|entry| {
                let id = layout::parse_failure(&entry?.0);
                read_indexed(view, id.ok_or_else(|| view.tables().damaged("an entry of the failures is malformed"))?)
            });
            page(rows, filter, limit)
        }
        _ => {
            let from = cursor.map_or_else(Vec::new, |cursor| after(layout::row(cursor.0)));
            page(view.scan(layout::all_rows(), from).map(|entry| read_entry(view, entry?)), filter, limit)
        }
    }
}

/// Returns the state whose entries in the index of failures are all rows that can pass the filter.
fn failed_state(filter: &ListFilter) -> Option<RowState> {
    match filter.state {
        Some(RowState::Dead) => Some(RowState::Dead),
        Some(RowState::Armed) if filter.failed => Some(RowState::Armed),
        _ => None,
    }
}

/// Returns rows that pass a filter, in the order of their times.
pub(super) fn upcoming(view: &View<'_>, filter: &ListFilter, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
    let mut entries = BinaryHeap::new();
    let mut sources = Vec::new();
    for index in [TimeIndex::Armed, TimeIndex::Claimed] {
        let is_wanted = match index {
            TimeIndex::Armed => filter.state.is_none_or(|state| state == RowState::Armed),
            TimeIndex::Claimed => filter.state.is_none_or(|state| state == RowState::Claimed),
        };
        for kind in if is_wanted { kinds(view, index)? } else { Vec::new() } {
            let mut source = times(view, index, &kind, None);
            if let Some(entry) = source.next().transpose()? {
                entries.push(Reverse((entry.due.wake, entry.due.id, sources.len())));
                sources.push(source);
            }
        }
    }
    let mut rows = Vec::new();
    let mut seen = 0;
    while let Some(Reverse((_, id, from))) = entries.pop()
        && rows.len() < limit
        && seen < MOST_ROWS
    {
        seen += 1;
        if let Some(entry) = sources[from].next().transpose()? {
            entries.push(Reverse((entry.due.wake, entry.due.id, from)));
        }
        let row = read_indexed(view, id)?;
        if filter.passes(&row) {
            rows.push(row);
        }
    }
    Ok(rows)
}

fn page(
    rows: impl Iterator<Item = Result<TimerRow, StoreError>>,
    filter: &ListFilter,
    limit: usize,
) -> Result<ListPage, StoreError> {
    let mut page = ListPage::default();
    let mut last = None;
    for (number, row) in rows.enumerate() {
        let row = row?;
        let passes = filter.passes(&row);
        if number >= MOST_ROWS || (passes && page.rows.len() == limit) {
            page.next = last.map(Cursor);
            break;
        }
        last = Some(row.id);
        if passes {
            page.rows.push(row);
        }
    }
    Ok(page)
}

/// For each kind, how many rows are armed and already due; and how many are due soon.
fn due_counts(view: &View<'_>, now: StoreTime) -> Result<(Vec<(String, u64)>, u64), StoreError> {
    let soon = now.saturating_add(SOON);
    let (mut overdue, mut due_soon) = (Vec::new(), 0);
    for kind in kinds(view, TimeIndex::Armed)? {
        let mut count = 0;
        for entry in times(view, TimeIndex::Armed, &kind, None) {
            let wake = entry?.due.wake;
            if wake <= now {
                count += 1;
            } else if wake <= soon && due_soon < MOST_SOON {
                due_soon += 1;
            } else {
                break;
            }
        }
        if count > 0 {
            overdue.push((kind, count));
        }
    }
    Ok((overdue, due_soon))
}

/// Returns the kinds of the rows in an index.
fn kinds(view: &View<'_>, index: TimeIndex) -> Result<Vec<String>, StoreError> {
    let mut kinds = Vec::new();
    let mut from = Vec::new();
    while let Some(entry) = view.scan(index.all(), from).next() {
        let (key, _) = entry?;
        let kind = index.parse(&key).ok_or_else(|| malformed_time(view))?.kind;
        // No key of this kind is behind this one.
        from = index.from(kind, StoreTime::MAX);
        from.extend_from_slice(&[0xff; 32]);
        kinds.push(kind.to_owned());
    }
    Ok(kinds)
}

/// An entry of a time index.
struct TimeEntry {
    due: DueEntry,
    epoch: u64,
}

/// Returns the entries of a kind in a time index, in their order.
fn times<'a>(
    view: &View<'a>,
    index: TimeIndex,
    kind: &str,
    behind: Option<DueCursor>,
) -> impl Iterator<Item = Result<TimeEntry, StoreError>> + use<'a> {
    let from = behind.map_or_else(Vec::new, |(wake, id)| after(index.key(kind, wake, id)));
    let tables = view.tables();
    view.scan(index.of_kind(kind), from).map(move |entry| {
        let (key, value) = entry?;
        let malformed = || tables.damaged("an entry of the times is malformed");
        let key = index.parse(&key).ok_or_else(malformed)?;
        let value = encoding::read_time_value(&value).map_err(|_| malformed())?;
        let due = DueEntry { wake: key.wake, id: key.id, version: value.version, shard: value.shard };
        Ok(TimeEntry { due, epoch: value.epoch })
    })
}

fn malformed_time(view: &View<'_>) -> StoreError {
    view.tables().damaged("an entry of the times is malformed")
}

fn read_entry(view: &View<'_>, (key, value): (fjall::Slice, fjall::Slice)) -> Result<TimerRow, StoreError> {
    read_row(view.tables(), &key, &value)
}

/// Returns the key that comes right after `key`.
fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}
