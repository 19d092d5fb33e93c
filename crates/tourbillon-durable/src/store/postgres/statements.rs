//! The statements of the store, for one schema.

use std::iter;

use tokio_postgres::types::Type;

use super::columns::{CHANGED_COLUMNS, ChangedRows, EndedRows, FIXED_COLUMNS, HISTORY_COLUMNS, NewRows};
use super::session::Sql;

/// All statements that are used again and again.
pub(super) struct Statements {
    pub(super) clock: Sql,
    pub(super) lock_rows: Sql,
    /// The same; it reads no payloads.
    pub(super) lock_light_rows: Sql,
    pub(super) lock_free_rows: Sql,
    pub(super) lock_epochs: Sql,
    pub(super) delete: Sql,
    pub(super) update: Sql,
    pub(super) insert: Sql,
    pub(super) record: Sql,
    pub(super) notify: Sql,
    pub(super) due: Sql,
    pub(super) orphans: Sql,
    pub(super) get: Sql,
    pub(super) get_key: Sql,
    pub(super) history: Sql,
    pub(super) last_ended: Sql,
    pub(super) counts: Sql,
    pub(super) set_time_limit: Sql,
    pub(super) set_idle_limit: Sql,
    pub(super) lock_leases: Sql,
    pub(super) nodes: Sql,
    pub(super) shards: Sql,
    pub(super) lock_shards: Sql,
    pub(super) keep_node: Sql,
    pub(super) forget_nodes: Sql,
    pub(super) change_shards: Sql,
    pub(super) keep_history: Sql,
    pub(super) is_paused: Sql,
    pub(super) set_paused: Sql,
    pub(super) snapshot: Sql,
}

/// The first half of both statements that lock rows: `found` has every row of every timer that is wanted by its id, its key or its name.
const FOUND: &str = "WITH wanted AS MATERIALIZED (
    SELECT unnest($1) AS id
    UNION SELECT t.id FROM unnest($2, $3) AS k(namespace, key)
        JOIN tourbillon.timers t ON t.namespace = k.namespace AND t.key = k.key AND t.is_head AND t.key IS NOT NULL
    UNION SELECT t.id FROM unnest($4, $5) AS n(namespace, name)
        JOIN tourbillon.timers t ON t.namespace = n.namespace AND t.name = n.name AND t.name IS NOT NULL
), found AS MATERIALIZED (
    SELECT t.id, t.occurrence, t.ctid AS place, count(*) OVER (PARTITION BY t.id) AS of_timer
    FROM wanted w JOIN tourbillon.timers t ON t.id = w.id
)";

impl Statements {
    pub(super) fn new(schema: &str) -> Statements {
        let sql = |text: &str, types: &[Type]| Sql { text: in_schema(text, schema), types: types.to_vec() };
        let columns = of_table("t");
        let lock = |mode: &str, columns: &str| {
            sql(
                &format!(
                    "{FOUND}, locked AS MATERIALIZED (
                        SELECT f.place = t.ctid AS is_same, f.of_timer, {columns}
                        FROM found f JOIN tourbillon.timers t ON t.id = f.id AND t.occurrence = f.occurrence
                        ORDER BY t.id, t.occurrence FOR UPDATE OF t {mode}
                    ) SELECT s.total, s.now, l.* FROM (SELECT count(*) AS total, tourbillon.now_micros() AS now FROM found) s
                    LEFT JOIN locked l ON true"
                ),
                &[Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
            )
        };
        let due_types = [Type::TEXT, Type::INT8, Type::UUID, Type::INT8, Type::INT8, Type::INT8, Type::INT2_ARRAY];
        Statements {
            clock: sql("SELECT tourbillon.now_micros()", &[]),
            lock_rows: lock("", &columns),
            lock_light_rows: lock("", &columns.replace("t.payload", "''::bytea AS payload")),
            lock_free_rows: lock("SKIP LOCKED", &columns),
            lock_epochs: sql(
                "SELECT shard, epoch FROM tourbillon.shards WHERE shard = ANY ($1) ORDER BY shard FOR SHARE",
                &[Type::INT2_ARRAY],
            ),
            delete: sql(
                "DELETE FROM tourbillon.timers t USING unnest($1, $2) AS e(id, occurrence)
                WHERE t.id = e.id AND t.occurrence = e.occurrence",
                &[Type::UUID_ARRAY, Type::INT8_ARRAY],
            ),
            update: sql(&update(), &ChangedRows::TYPES),
            insert: sql(&insert(), &NewRows::types()),
            record: sql(
                &format!(
                    "INSERT INTO tourbillon.history ({HISTORY_COLUMNS}) SELECT * FROM unnest({})",
                    numbers(EndedRows::types().len())
                ),
                &EndedRows::types(),
            ),
            notify: sql(&format!("SELECT pg_notify('{schema}', $1)"), &[Type::TEXT]),
            due: sql("SELECT * FROM tourbillon.due_rows($1, $2, $3, $4, $5, $6, $7)", &due_types),
            orphans: sql(
                "SELECT t.wake, t.id, t.occurrence, t.version, t.shard FROM tourbillon.timers t
                JOIN tourbillon.shards s ON s.shard = t.shard AND t.epoch < s.epoch
                WHERE t.kind = $1 AND t.state = 1 AND t.shard = ANY ($2) ORDER BY t.id, t.occurrence LIMIT $3",
                &[Type::TEXT, Type::INT2_ARRAY, Type::INT8],
            ),
            get: sql(
                &format!("SELECT {columns} FROM tourbillon.timers t WHERE t.id = $1 ORDER BY t.occurrence DESC"),
                &[Type::UUID],
            ),
            get_key: sql(
                &format!(
                    "SELECT {columns} FROM tourbillon.timers t
                    WHERE t.namespace = $1 AND t.key = $2 AND t.is_head AND t.key IS NOT NULL"
                ),
                &[Type::TEXT, Type::TEXT],
            ),
            history: sql(
                &format!(
                    "SELECT {HISTORY_COLUMNS} FROM tourbillon.history WHERE id = $1 ORDER BY at DESC, occurrence DESC"
                ),
                &[Type::UUID],
            ),
            last_ended: sql(
                "SELECT id, max(occurrence) FROM tourbillon.history WHERE id = ANY ($1) GROUP BY id",
                &[Type::UUID_ARRAY],
            ),
            // One pass over the table; one row if it is empty.
            counts: sql(
                "WITH clock AS MATERIALIZED (SELECT tourbillon.now_micros() AS now), counts AS (
                    SELECT kind, count(*) FILTER (WHERE state = 0) AS armed,
                        count(last_error) FILTER (WHERE state = 0) AS failed,
                        count(*) FILTER (WHERE state = 1) AS claimed, count(*) FILTER (WHERE state = 2) AS dead,
                        count(*) FILTER (WHERE state = 0 AND wake > (SELECT now FROM clock)
                            AND wake <= (SELECT now FROM clock) + $1) AS soon,
                        count(*) FILTER (WHERE state = 0 AND wake <= (SELECT now FROM clock)) AS overdue
                    FROM tourbillon.timers GROUP BY kind
                )
                SELECT coalesce((SELECT is_paused FROM tourbillon.settings LIMIT 1), false), c.kind, coalesce(armed, 0), coalesce(failed, 0), coalesce(claimed, 0),
                    coalesce(dead, 0), coalesce(soon, 0), coalesce(overdue, 0)
                FROM (SELECT 1) AS one LEFT JOIN counts c ON true ORDER BY c.kind",
                &[Type::INT8],
            ),
            set_time_limit: sql("SELECT set_config('statement_timeout', $1, true)", &[Type::TEXT]),
            set_idle_limit: sql(
                "SELECT set_config('idle_in_transaction_session_timeout', $1, true)",
                &[Type::TEXT],
            ),
            lock_leases: sql(&format!("SELECT pg_advisory_xact_lock({})", lock_key("leases", schema)), &[]),
            nodes: sql(
                "SELECT tourbillon.now_micros() AS now, n.node, n.alive_until, n.kinds FROM (SELECT 1) AS one
                LEFT JOIN tourbillon.nodes n ON true",
                &[],
            ),
            shards: sql("SELECT shard, epoch, node FROM tourbillon.shards ORDER BY shard", &[]),
            lock_shards: sql(
                "SELECT shard FROM tourbillon.shards WHERE shard = ANY ($1) ORDER BY shard FOR UPDATE SKIP LOCKED",
                &[Type::INT2_ARRAY],
            ),
            keep_node: sql(
                "INSERT INTO tourbillon.nodes (node, alive_until, kinds) VALUES ($1, $2, $3)
                ON CONFLICT (node) DO UPDATE SET alive_until = excluded.alive_until, kinds = excluded.kinds",
                &[Type::UUID, Type::INT8, Type::TEXT_ARRAY],
            ),
            forget_nodes: sql("DELETE FROM tourbillon.nodes WHERE node = ANY ($1)", &[Type::UUID_ARRAY]),
            change_shards: sql(
                "UPDATE tourbillon.shards s SET node = c.node, epoch = c.epoch
                FROM unnest($1, $2, $3) AS c(shard, epoch, node) WHERE s.shard = c.shard",
                &[Type::INT2_ARRAY, Type::INT8_ARRAY, Type::UUID_ARRAY],
            ),
            keep_history: sql(
                &format!(
                    "SELECT tourbillon.keep_history($1, $2) WHERE pg_try_advisory_xact_lock({})",
                    lock_key("history", schema)
                ),
                &[Type::INT4, Type::INT4],
            ),
            is_paused: sql("SELECT is_paused FROM tourbillon.settings", &[]),
            set_paused: sql("UPDATE tourbillon.settings SET is_paused = $1", &[Type::BOOL]),
            snapshot: sql(
                &format!(
                    "SELECT {columns} FROM tourbillon.timers t WHERE (t.id, t.occurrence) > ($1, $2)
                    ORDER BY t.id, t.occurrence LIMIT $3"
                ),
                &[Type::UUID, Type::INT8, Type::INT8],
            ),
        }
    }
}

/// Writes the name of the schema in the place of `tourbillon`.
pub(super) fn in_schema(text: &str, schema: &str) -> String {
    text.replace("tourbillon.", &format!("\"{schema}\"."))
        .replace("@schema@", &format!("'{schema}'"))
        .replace("@channel@", &format!("'{schema}'"))
}

/// Returns the key of an advisory lock: PostgreSQL knows such locks by numbers only, one set for each database.
pub(super) fn lock_key(purpose: &str, schema: &str) -> String {
    format!("hashtextextended('tourbillon {purpose} {schema}', 0)")
}

/// Returns the columns of a timer, read from a table of this name.
pub(super) fn of_table(table: &str) -> String {
    let columns = CHANGED_COLUMNS.split(", ").chain(FIXED_COLUMNS.split(", "));
    let read = columns.map(|column| match column {
        "plan" => format!("{table}.plan::text AS plan"),
        _ => format!("{table}.{column}"),
    });
    read.collect::<Vec<_>>().join(", ")
}

/// Returns `$1, $2, ...`.
fn numbers(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

fn update() -> String {
    let changes = CHANGED_COLUMNS.split(", ").skip(2).map(|column| format!("{column} = c.{column}"));
    format!(
        "UPDATE tourbillon.timers t SET {} FROM unnest({}) AS c({CHANGED_COLUMNS})
        WHERE t.id = c.id AND t.occurrence = c.occurrence",
        changes.collect::<Vec<_>>().join(", "),
        numbers(ChangedRows::TYPES.len())
    )
}

fn insert() -> String {
    let columns = CHANGED_COLUMNS.split(", ").chain(FIXED_COLUMNS.split(", "));
    let values = columns.clone().map(|column| if column == "plan" { "plan::jsonb" } else { column });
    let list = |names: &mut dyn Iterator<Item = &str>| {
        let first = names.next().unwrap_or_default().to_owned();
        names.flat_map(|name| iter::once(", ").chain([name])).fold(first, |list, part| list + part)
    };
    let names = list(&mut columns.clone());
    format!(
        "INSERT INTO tourbillon.timers ({names}) SELECT {} FROM unnest({}) AS n({names})",
        list(&mut values.into_iter()),
        numbers(columns.count())
    )
}
