//! Questions that change nothing.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::query::{Cursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, MOST_SOON, SOON, StoreCounts};
use super::super::row::{HistoryEntry, RowId, TimerRow};
use super::super::shard::ShardId;
use super::Shared;
use super::columns::{history_entry, micros, state_number, store_time, timer_id, timer_row};
use super::failure::Failure;
use super::session::Sql;
use super::statements::{in_schema, of_table};
use crate::id::TimerId;
use crate::time::StoreTime;

/// The most rows of a page.
const LONGEST_PAGE: usize = 1_000_000;

pub(super) async fn due(store: &Shared, query: &DueQuery) -> Result<DuePage, Failure> {
    if !can_exist(&query.kind) || query.shards.is_empty() {
        return Ok(DuePage::default());
    }
    let limit = query.limit.min(LONGEST_PAGE);
    let (wake, after) = query.after.map_or((-1, None), |(wake, after)| (micros(wake), Some(after)));
    let timer = after.map_or(TimerId::from_u128(0), |after| after.timer).as_uuid();
    let occurrence = after.map_or(0, |after| after.occurrence.cast_signed());
    let (until, most) = (micros(query.until), limit as i64 + 1);
    let owns_all = query.shards.len() == usize::from(super::SHARDS);
    let shards = (!owns_all).then(|| numbers(&query.shards));
    let params: [&(dyn ToSql + Sync); 7] = [&query.kind, &wake, &timer, &occurrence, &until, &most, &shards];
    let rows = store.pools.ask(&store.sql.due, &params).await?;
    let mut page = DuePage { entries: rows.iter().map(due_entry).collect(), ..DuePage::default() };
    if page.entries.last().is_some_and(|last| last.wake > query.until) {
        page.next_wake = page.entries.pop().map(|next| next.wake);
    }
    if page.entries.len() > limit {
        page.entries.truncate(limit);
        page.has_more = true;
    }
    Ok(page)
}

pub(super) async fn orphans(
    store: &Shared,
    kind: &str,
    shards: &[ShardId],
    limit: usize,
) -> Result<Vec<DueEntry>, Failure> {
    if !can_exist(kind) {
        return Ok(Vec::new());
    }
    let most = limit.min(LONGEST_PAGE) as i64;
    let rows = store.pools.read(&store.sql.orphans, &[&kind, &numbers(shards), &most]).await?;
    Ok(rows.iter().map(due_entry).collect())
}

pub(super) async fn get(store: &Shared, id: TimerId) -> Result<Vec<TimerRow>, Failure> {
    timer_rows(&store.pools.read(&store.sql.get, &[&id.as_uuid()]).await?)
}

pub(super) async fn get_key(store: &Shared, namespace: &str, key: &str) -> Result<Option<TimerRow>, Failure> {
    if !can_exist(namespace) || !can_exist(key) {
        return Ok(None);
    }
    let rows = store.pools.read(&store.sql.get_key, &[&namespace, &key]).await?;
    Ok(timer_rows(&rows)?.pop())
}

pub(super) async fn list(
    store: &Shared,
    filter: &ListFilter,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<ListPage, Failure> {
    let limit = limit.min(LONGEST_PAGE);
    let Some(mut search) = Search::of(filter) else { return Ok(ListPage::default()) };
    if let Some(Cursor(RowId { timer, occurrence })) = cursor {
        let number = search.push(Type::INT8, Box::new(occurrence.cast_signed()));
        search.condition(&format!("(t.id, t.occurrence) > ($, ${number})"), Type::UUID, Box::new(timer.as_uuid()));
    }
    let sql = Sql { text: in_schema(&search.query(limit + 1), &store.schema), types: search.types.clone() };
    let mut rows = timer_rows(&search.run(store, &sql).await?)?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| Cursor(row.id));
    Ok(ListPage { rows, next })
}

/// Returns the first rows of each kind, and of these the first: the index of times begins with the kind.
pub(super) async fn upcoming(store: &Shared, filter: &ListFilter, limit: usize) -> Result<Vec<TimerRow>, Failure> {
    let Some(search) = Search::of(filter) else { return Ok(Vec::new()) };
    let sql =
        Sql { text: in_schema(&search.upcoming(limit.min(LONGEST_PAGE)), &store.schema), types: search.types.clone() };
    timer_rows(&search.run(store, &sql).await?)
}

pub(super) async fn history(store: &Shared, id: TimerId) -> Result<Vec<HistoryEntry>, Failure> {
    let rows = store.pools.long_read(&store.sql.history, &[&id.as_uuid()]).await?;
    Ok(rows.iter().map(history_entry).collect::<Result<_, _>>()?)
}

/// Sends all rows of one moment in pages, and returns how many there are.
pub(super) async fn snapshot(store: &Shared, pages: &async_channel::Sender<Vec<TimerRow>>) -> Result<u64, Failure> {
    /// The most rows of a page.
    const PAGE: i64 = 1_000;

    let mut session = store.pools.long_session().await?;
    session.begin_snapshot().await?;
    let (mut last, mut count) = (RowId { timer: TimerId::from_u128(0), occurrence: 0 }, 0);
    loop {
        let params: [&(dyn ToSql + Sync); 3] = [&last.timer.as_uuid(), &last.occurrence.cast_signed(), &PAGE];
        let page = timer_rows(&session.rows(&store.sql.snapshot, &params).await?)?;
        let is_last = page.len() < PAGE as usize;
        last = page.last().map_or(last, |row| row.id);
        count += page.len() as u64;
        if pages.send(page).await.is_err() || is_last {
            break;
        }
    }
    session.commit(&[], || ()).await?;
    Ok(count)
}

/// Counts all rows: this reads the table from one end to the other.
pub(super) async fn counts(store: &Shared) -> Result<StoreCounts, Failure> {
    let soon = micros(StoreTime::ZERO.saturating_add(SOON));
    let mut counts = StoreCounts::default();
    for row in store.pools.search(&store.sql.counts, &[&soon]).await? {
        let count = |column| row.get::<_, i64>(column).cast_unsigned();
        counts.is_paused = row.get(0);
        counts.armed += count(2);
        counts.failed += count(3);
        counts.claimed += count(4);
        counts.dead += count(5);
        counts.due_soon = (counts.due_soon + count(6)).min(MOST_SOON);
        if let Some(kind) = row.get(1)
            && count(7) > 0
        {
            counts.overdue.push((kind, count(7)));
        }
    }
    Ok(counts)
}

/// Conditions of a list, and their values.
#[derive(Default)]
struct Search {
    conditions: Vec<String>,
    types: Vec<Type>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Search {
    /// Returns the conditions of a filter; `None` if no row can pass it.
    fn of(filter: &ListFilter) -> Option<Search> {
        let texts = [&filter.namespace, &filter.key, &filter.name, &filter.prefix, &filter.kind];
        if texts.into_iter().flatten().any(|text| !can_exist(text)) {
            return None;
        }
        let mut search = Search::default();
        search.text("t.namespace = $", filter.namespace.as_deref());
        // Two conditions, because two indexes have the keys: of heads, and of the few others.
        search.text("(t.key = $ AND t.key IS NOT NULL AND (t.is_head OR NOT t.is_head))", filter.key.as_deref());
        search.text("(t.name = $ AND t.name IS NOT NULL)", filter.name.as_deref());
        search.text("t.kind = $", filter.kind.as_deref());
        search.text("(starts_with(t.key, $) OR starts_with(t.name, $))", filter.prefix.as_deref());
        search.number("t.state = $", filter.state.map(|state| i64::from(state_number(state))));
        search.number("t.due >= $", filter.due_from.map(micros));
        search.number("t.due < $", filter.due_before.map(micros));
        if filter.failed {
            search.conditions.push("t.last_error IS NOT NULL".to_owned());
        }
        Some(search)
    }

    fn text(&mut self, condition: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.condition(condition, Type::TEXT, Box::new(value.to_owned()));
        }
    }

    fn number(&mut self, condition: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.condition(condition, Type::INT8, Box::new(value));
        }
    }

    /// Adds a condition, in which `$` not followed by a number is the value.
    fn condition(&mut self, condition: &str, kind: Type, value: Box<dyn ToSql + Sync + Send>) {
        let number = self.push(kind, value);
        let mut parts = condition.split('$');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let has_number = part.starts_with(|letter: char| letter.is_ascii_digit());
            text += &if has_number { format!("${part}") } else { format!("${number}{part}") };
        }
        self.conditions.push(text);
    }

    fn push(&mut self, kind: Type, value: Box<dyn ToSql + Sync + Send>) -> usize {
        self.types.push(kind);
        self.values.push(value);
        self.types.len()
    }

    fn query(&self, limit: usize) -> String {
        let columns = of_table("t");
        let conditions = match self.conditions.is_empty() {
            true => "true".to_owned(),
            false => self.conditions.join(" AND "),
        };
        format!(
            "SELECT {columns} FROM tourbillon.timers t WHERE {conditions} ORDER BY t.id, t.occurrence LIMIT {limit}"
        )
    }

    fn upcoming(&self, limit: usize) -> String {
        let columns = of_table("t");
        let conditions: String = self.conditions.iter().map(|condition| format!(" AND {condition}")).collect();
        format!(
            "WITH RECURSIVE kinds AS (
                SELECT min(kind) AS kind FROM tourbillon.timers WHERE state < 2
                UNION ALL
                SELECT (SELECT min(t.kind) FROM tourbillon.timers t WHERE t.state < 2 AND t.kind > kinds.kind)
                FROM kinds WHERE kinds.kind IS NOT NULL
            )
            SELECT t.* FROM kinds CROSS JOIN LATERAL (
                SELECT {columns} FROM tourbillon.timers t WHERE t.state < 2 AND t.kind = kinds.kind{conditions}
                ORDER BY t.wake, t.id LIMIT {limit}
            ) AS t WHERE kinds.kind IS NOT NULL ORDER BY t.wake, t.id, t.occurrence LIMIT {limit}"
        )
    }

    /// Runs the query once: it is not kept as a prepared statement, because there are many forms of it.
    async fn run(&self, store: &Shared, sql: &Sql) -> Result<Vec<Row>, Failure> {
        let values: Vec<_> = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        store.pools.search(sql, &values).await
    }
}

fn timer_rows(rows: &[Row]) -> Result<Vec<TimerRow>, Failure> {
    Ok(rows.iter().map(|row| timer_row(row, 0)).collect::<Result<_, _>>()?)
}

fn due_entry(row: &Row) -> DueEntry {
    DueEntry {
        wake: store_time(row.get(0)),
        id: RowId { timer: timer_id(row.get(1)), occurrence: row.get::<_, i64>(2).cast_unsigned() },
        version: row.get::<_, i64>(3).cast_unsigned(),
        shard: ShardId(row.get::<_, i16>(4).cast_unsigned()),
    }
}

fn numbers(shards: &[ShardId]) -> Vec<i16> {
    shards.iter().map(|shard| shard.0.cast_signed()).collect()
}

/// Returns whether a row can have this text: PostgreSQL cannot store the character zero.
fn can_exist(text: &str) -> bool {
    !text.contains('\0')
}
