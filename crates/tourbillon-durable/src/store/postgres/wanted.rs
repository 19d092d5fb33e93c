//! Which rows a batch touches.

use std::collections::BTreeSet;

use super::super::op::{ImportOp, Target, WriteOp};
use super::super::shard::{ShardId, shard_of};
use super::working_set::WorkingSet;
use crate::id::TimerId;

/// What the rules may read when they apply a batch. Of every timer that is wanted all rows are read, so the rules need nothing else.
#[derive(Default)]
pub(super) struct Wanted<'b> {
    /// Timers whose rows the batch waits for, if another transaction has locked them.
    pub(super) timers: BTreeSet<TimerId>,
    /// Timers that are only claimed. If another transaction has locked one, it is cancelling, moving or claiming it: the claim is lost and the
    /// others of the batch do not wait (D51).
    pub(super) claims: BTreeSet<TimerId>,
    /// By namespace and key.
    pub(super) keys: BTreeSet<(&'b str, &'b str)>,
    /// By namespace and name.
    pub(super) names: BTreeSet<(&'b str, &'b str)>,
    /// Whether the payloads of rows that the batch waits for are compared or delivered. Claims alone always read theirs.
    pub(super) needs_payloads: bool,
}

impl<'b> Wanted<'b> {
    pub(super) fn of(batch: &'b [WriteOp]) -> Wanted<'b> {
        let mut wanted = Wanted::default();
        for op in batch {
            match op {
                WriteOp::Create(op) => {
                    op.spec.key.as_ref().map(|key| wanted.keys.insert((&op.spec.namespace, key)));
                }
                WriteOp::Cancel(op) => wanted.add(&op.target),
                WriteOp::Reschedule(op) => wanted.add(&op.target),
                WriteOp::Claim(op) => _ = wanted.claims.insert(op.id.timer),
                WriteOp::Finish(op) => _ = wanted.timers.insert(op.id.timer),
                WriteOp::Extend(op) => _ = wanted.timers.insert(op.id.timer),
                WriteOp::DeadLetter(op) => _ = wanted.timers.insert(op.id.timer),
                WriteOp::Import(ImportOp { row, .. }) => {
                    wanted.timers.insert(row.id.timer);
                    row.spec.key.as_ref().map(|key| wanted.keys.insert((&row.spec.namespace, key)));
                }
            }
        }
        let count = wanted.claims.len();
        wanted.claims.retain(|timer| !wanted.timers.contains(timer));
        // A claim whose timer is named by its key or name in the same batch finds the row of either statement, so both have its payload.
        let is_compared = |op: &WriteOp| matches!(op, WriteOp::Create(_) | WriteOp::Import(_));
        let finds_claims =
            count > 0 && (wanted.claims.len() < count || !(wanted.keys.is_empty() && wanted.names.is_empty()));
        wanted.needs_payloads = finds_claims || batch.iter().any(is_compared);
        // No row has a text that PostgreSQL cannot store.
        let can_exist = |(namespace, text): &(&str, &str)| !namespace.contains('\0') && !text.contains('\0');
        wanted.keys.retain(can_exist);
        wanted.names.retain(can_exist);
        wanted
    }

    fn add(&mut self, target: &'b Target) {
        match target {
            Target::Id(timer) => _ = self.timers.insert(*timer),
            Target::Key { namespace, key } => _ = self.keys.insert((namespace, key)),
            Target::Name { namespace, name } => _ = self.names.insert((namespace, name)),
        }
    }

    /// Returns whether there is anything to wait for.
    pub(super) fn has_rows_to_wait_for(&self) -> bool {
        !(self.timers.is_empty() && self.keys.is_empty() && self.names.is_empty())
    }
}

/// Returns the shards whose epochs the operations of a batch compare.
pub(super) fn shards_of(batch: &[WriteOp], rows: &WorkingSet) -> BTreeSet<ShardId> {
    let delivered: BTreeSet<TimerId> = batch.iter().filter_map(delivered_timer).collect();
    let created = batch.iter().filter_map(|op| match op {
        WriteOp::Create(op) if delivered.contains(&op.id) => Some(shard_of(&op.spec, op.id, super::SHARDS)),
        _ => None,
    });
    let stored = rows.stored().filter(|row| delivered.contains(&row.id.timer)).map(|row| row.shard);
    created.chain(stored).collect()
}

fn delivered_timer(op: &WriteOp) -> Option<TimerId> {
    match op {
        WriteOp::Claim(op) => Some(op.id.timer),
        WriteOp::Finish(op) => Some(op.id.timer),
        WriteOp::Extend(op) => Some(op.id.timer),
        WriteOp::Create(_)
        | WriteOp::Cancel(_)
        | WriteOp::Reschedule(_)
        | WriteOp::DeadLetter(_)
        | WriteOp::Import(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::NewTimer;
    use crate::spec::{Limits, OnConflict};
    use crate::store::{CancelOp, ClaimOp, CreateOp, ExtendOp, RowId};

    #[test]
    fn q5_d54_payloads_are_read_for_claims_and_creates_only() {
        let id = RowId { timer: TimerId::from_u128(1), occurrence: 1 };
        let cancel = || WriteOp::Cancel(CancelOp { target: Target::name("n") });
        let extend = || WriteOp::Extend(ExtendOp { id, attempt: 1, epoch: 1, lease: Duration::ZERO });
        let claim = || WriteOp::Claim(ClaimOp { id, version: 1, epoch: 1, token: 1, lease: Duration::ZERO });
        let (spec, on_conflict) = NewTimer::after("mail", Duration::ZERO).check(Limits::default()).unwrap();
        let create = WriteOp::Create(CreateOp { id: id.timer, spec: Arc::new(spec), on_conflict });
        assert_eq!(on_conflict, OnConflict::Refuse);
        let needs = |batch: &[WriteOp]| Wanted::of(batch).needs_payloads;
        assert!(!needs(&[cancel(), extend()]) && !needs(&[claim()]));
        assert!(needs(&[cancel(), create]) && needs(&[cancel(), claim()]) && needs(&[extend(), claim()]));
    }
}
