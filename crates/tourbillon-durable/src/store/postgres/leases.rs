//! Leases of shards.
//!
//! Heartbeats take turns by an advisory lock. In the steady state a heartbeat writes one row, that of its node: a shard's lease is as long as
//! its node is alive. Only shards that change their owner are locked and written. A shard whose epoch a transaction holds at that moment is
//! left to the next heartbeat, and the server ends a heartbeat whose process does not go on at once: so no hanging process stops the others from
//! keeping their leases (Q7).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::super::error::StoreError;
use super::super::shard::{Heartbeat, LiveNode, NodeId, NodeLeases, Ownership, ShardId, ShardOwner, ShardTable};
use super::Shared;
use super::columns::{damaged, micros, store_time};
use super::failure::Failure;
use super::session::{Change, IDLE_LIMIT, Session};
use crate::time::StoreTime;

/// Renews, releases and takes over shards.
pub(super) async fn heartbeat(store: &Shared, heartbeat: &Heartbeat) -> Result<Ownership, StoreError> {
    let beat = async {
        let mut session = store.pools.session(&store.pools.control).await?;
        let result = transact(store, &mut session, heartbeat).await;
        if let Err(failure) = &result {
            session.roll_back(failure).await;
        }
        result
    };
    let ownership = store.in_time_of(time_limit(store, heartbeat.lease), beat).await?;
    store.set_owned(ownership.shards.iter().map(|(shard, _)| *shard), heartbeat.kinds.as_ref());
    Ok(ownership)
}

/// Returns after how long a heartbeat is given up, so that another one on another connection comes before the lease is over. Of a very short lease
/// only a heartbeat that is useless anyway is given up.
fn time_limit(store: &Shared, lease: Duration) -> Duration {
    if lease.is_zero() {
        return store.request_timeout;
    }
    store.request_timeout.min((lease / 3).max(Duration::from_secs(2)))
}

/// Returns for how long a heartbeat may leave the server without a statement while it keeps others from theirs, in milliseconds.
fn idle_limit(lease: Duration) -> String {
    (lease / 20).clamp(Duration::from_secs(1), IDLE_LIMIT).as_millis().to_string()
}

async fn transact(store: &Shared, session: &mut Session<'_>, heartbeat: &Heartbeat) -> Result<Ownership, Failure> {
    let sql = &store.sql;
    // The clock and the tables are read by statements of their own, after the lock.
    let idle_limit = idle_limit(heartbeat.lease);
    let mut first: Vec<Change<'_>> = vec![(&sql.set_idle_limit, vec![&idle_limit])];
    first.extend([&sql.lock_leases, &sql.nodes, &sql.shards, &sql.is_paused].map(|sql| (sql, Vec::new())));
    let answers = session.begin(&first).await?;
    let [_, _, nodes, shards, paused] = &answers[..] else {
        return Err(damaged("a heartbeat has no answer".to_owned()).into());
    };
    let Some(now) = nodes.first().map(|row| store_time(row.get(0))) else {
        return Err(damaged("a heartbeat has no time".to_owned()).into());
    };
    let live = |row: &Row| {
        let kinds = row.get::<_, Option<Vec<String>>>(3).map(|kinds| kinds.into_iter().collect());
        let node = NodeId(row.get::<_, Option<Uuid>>(1)?);
        Some((node, LiveNode { alive_until: store_time(row.get(2)), kinds }))
    };
    let nodes: BTreeMap<NodeId, LiveNode> = nodes.iter().filter_map(live).collect();
    let owners: Vec<ShardOwner> = shards
        .iter()
        .map(|row| {
            let node = row.get::<_, Option<Uuid>>(2).map(NodeId);
            let lease_until = node.and_then(|node| nodes.get(&node)).map_or(StoreTime::ZERO, |node| node.alive_until);
            ShardOwner { node, epoch: row.get::<_, i64>(1).cast_unsigned(), lease_until }
        })
        .collect();
    if owners.len() != usize::from(super::SHARDS) {
        return Err(damaged(format!("there are {} shards and not {}", owners.len(), super::SHARDS)).into());
    }
    let heartbeat = without_busy(store, session, heartbeat, &owners, now).await?;
    let before = ShardTable::from_rows(owners, nodes);
    let mut after = before.clone();
    let is_paused = paused.first().is_some_and(|row| row.get(0));
    let ownership = Ownership { is_paused, ..after.heartbeat(&heartbeat, now) };
    save(store, session, &before, &after, heartbeat.node).await?;
    Ok(ownership)
}

/// Returns the leases of all nodes. A heartbeat that has begun ends before: it may not have seen what was committed meanwhile.
pub(super) async fn node_leases(store: &Shared) -> Result<NodeLeases, Failure> {
    let mut session = store.pools.session(&store.pools.control).await?;
    let read = async {
        let first = [&store.sql.lock_leases, &store.sql.nodes].map(|sql| (sql, Vec::new()));
        let answers = session.begin(&first).await?;
        session.commit(&[], || ()).await?;
        Ok::<_, Failure>(answers)
    };
    let answers = match read.await {
        Ok(answers) => answers,
        Err(failure) => {
            session.roll_back(&failure).await;
            return Err(failure);
        }
    };
    let rows = answers.get(1).map(Vec::as_slice).unwrap_or_default();
    let Some(now) = rows.first().map(|row| store_time(row.get(0))) else {
        return Err(damaged("the leases have no time".to_owned()).into());
    };
    let lease = |row: &Row| Some((NodeId(row.get::<_, Option<Uuid>>(1)?), store_time(row.get(2))));
    Ok(NodeLeases { now, alive_until: rows.iter().filter_map(lease).collect() })
}

/// Locks the shards that may change their owner, and returns the heartbeat without those that cannot be locked: none of them is released, and
/// none is taken over, which the rules do not do with a shard that the node itself gives up.
async fn without_busy(
    store: &Shared,
    session: &Session<'_>,
    heartbeat: &Heartbeat,
    owners: &[ShardOwner],
    now: StoreTime,
) -> Result<Heartbeat, Failure> {
    let is_mine = |owner: &ShardOwner| owner.node == Some(heartbeat.node) && owner.lease_until > now;
    let is_free = |owner: &ShardOwner| owner.node.is_none() || owner.lease_until <= now;
    let leaves = heartbeat.lease.is_zero();
    let may_change = |(index, owner): &(usize, &ShardOwner)| {
        let is_released = leaves || heartbeat.release.contains(&ShardId(*index as u16));
        (is_free(owner) && !leaves) || (is_mine(owner) && is_released)
    };
    let candidates: Vec<i16> =
        owners.iter().enumerate().filter(may_change).map(|(index, _)| (index as u16).cast_signed()).collect();
    if candidates.is_empty() {
        return Ok(heartbeat.clone());
    }
    let locked = session.rows(&store.sql.lock_shards, &[&candidates]).await?;
    let locked: BTreeSet<i16> = locked.iter().map(|row| row.get(0)).collect();
    let busy = candidates.into_iter().filter(|shard| !locked.contains(shard));
    let mut release: BTreeSet<ShardId> = heartbeat.release.iter().copied().collect();
    for shard in busy.map(i16::cast_unsigned) {
        if is_mine(&owners[usize::from(shard)]) {
            release.remove(&ShardId(shard));
        } else {
            release.insert(ShardId(shard));
        }
    }
    Ok(Heartbeat { release: release.into_iter().collect(), ..heartbeat.clone() })
}

/// Writes what a heartbeat has changed, and commits.
async fn save(
    store: &Shared,
    session: &mut Session<'_>,
    before: &ShardTable,
    after: &ShardTable,
    node: NodeId,
) -> Result<(), Failure> {
    let owners = before.owners().iter().zip(after.owners()).enumerate();
    let changed = owners.filter(|(_, (old, new))| (old.node, old.epoch) != (new.node, new.epoch));
    let (mut shards, mut epochs, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (_, new)) in changed {
        shards.push((index as u16).cast_signed());
        epochs.push(new.epoch.cast_signed());
        nodes.push(new.node.map(|node| node.0));
    }
    let live = after.nodes().get(&node);
    let live =
        live.map(|live| (micros(live.alive_until), live.kinds.as_ref().map(|kinds| kinds.iter().collect::<Vec<_>>())));
    let gone: Vec<Uuid> =
        before.nodes().keys().filter(|node| !after.nodes().contains_key(node)).map(|node| node.0).collect();
    let mut last: Vec<Change<'_>> = Vec::new();
    if let Some((alive_until, kinds)) = &live {
        last.push((&store.sql.keep_node, vec![&node.0, alive_until, kinds]));
    }
    if !gone.is_empty() {
        last.push((&store.sql.forget_nodes, vec![&gone]));
    }
    if !shards.is_empty() {
        last.push((&store.sql.change_shards, vec![&shards, &epochs, &nodes]));
    }
    session.commit(&last, || ()).await?;
    Ok(())
}
