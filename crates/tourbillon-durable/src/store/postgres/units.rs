//! Which operations of a batch are written together, if not all of them are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::super::op::{Target, WriteOp};
use crate::id::TimerId;

/// What two operations name alike if their order matters.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'b> {
    Timer(TimerId),
    Key(&'b str, &'b str),
    Name(&'b str, &'b str),
}

/// Returns the places of operations that stay together, in their order: those of a group, and those that name the same timer.
pub(super) fn units_of(batch: &[WriteOp], groups: &[Range<usize>]) -> Vec<Vec<usize>> {
    // Each place leads to an earlier place of its unit, the first one to itself.
    let mut unit: Vec<usize> = (0..batch.len()).collect();
    for group in groups {
        for place in group.clone() {
            join(&mut unit, group.start, place);
        }
    }
    let targets: HashSet<Identity<'_>> = batch.iter().filter_map(target_of).map(identity).collect();
    let mut first: HashMap<Identity<'_>, usize> = HashMap::new();
    for (place, op) in batch.iter().enumerate() {
        for identity in identities(op) {
            // Timers that only have the same name do not depend on each other.
            if !matches!(identity, Identity::Name(..)) || targets.contains(&identity) {
                let first = *first.entry(identity).or_insert(place);
                join(&mut unit, first, place);
            }
        }
    }
    let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in 0..batch.len() {
        units.entry(root(&mut unit, place)).or_default().push(place);
    }
    units.into_values().collect()
}

fn root(unit: &mut [usize], mut place: usize) -> usize {
    while unit[place] != place {
        unit[place] = unit[unit[place]];
        place = unit[place];
    }
    place
}

fn join(unit: &mut [usize], one: usize, other: usize) {
    let (one, other) = (root(unit, one), root(unit, other));
    unit[one.max(other)] = one.min(other);
}

fn target_of(op: &WriteOp) -> Option<&Target> {
    match op {
        WriteOp::Cancel(op) => Some(&op.target),
        WriteOp::Reschedule(op) => Some(&op.target),
        _ => None,
    }
}

fn identity(target: &Target) -> Identity<'_> {
    match target {
        Target::Id(timer) => Identity::Timer(*timer),
        Target::Key { namespace, key } => Identity::Key(namespace, key),
        Target::Name { namespace, name } => Identity::Name(namespace, name),
    }
}

fn identities(op: &WriteOp) -> Vec<Identity<'_>> {
    let (timer, spec) = match op {
        WriteOp::Create(op) => (op.id, Some(&op.spec)),
        WriteOp::Import(op) => (op.row.id.timer, Some(&op.row.spec)),
        WriteOp::Cancel(op) => return vec![identity(&op.target)],
        WriteOp::Reschedule(op) => return vec![identity(&op.target)],
        WriteOp::Claim(op) => (op.id.timer, None),
        WriteOp::Finish(op) => (op.id.timer, None),
        WriteOp::Extend(op) => (op.id.timer, None),
        WriteOp::DeadLetter(op) => (op.id.timer, None),
    };
    let key = spec.and_then(|spec| Some(Identity::Key(&spec.namespace, spec.key.as_deref()?)));
    let name = spec.and_then(|spec| Some(Identity::Name(&spec.namespace, spec.name.as_deref()?)));
    [Some(Identity::Timer(timer)), key, name].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::NewTimer;
    use crate::spec::{Limits, OnConflict};
    use crate::store::{CancelOp, CreateOp};

    fn create(id: u128, timer: NewTimer) -> WriteOp {
        let (spec, _) = timer.check(Limits::default()).unwrap();
        let spec = Arc::new(spec);
        WriteOp::Create(CreateOp { id: TimerId::from_u128(id), spec, on_conflict: OnConflict::Refuse })
    }

    fn cancel(target: Target) -> WriteOp {
        WriteOp::Cancel(CancelOp { target })
    }

    #[test]
    fn u1_u2_groups_and_operations_on_one_timer_stay_together_in_their_order() {
        let timer = || NewTimer::after("mail", Duration::ZERO);
        let batch = [
            create(1, timer().key("a")),
            create(2, timer().name("n")),
            cancel(Target::key("a")),
            create(3, timer().key("b")),
            cancel(Target::Id(TimerId::from_u128(3))),
            create(4, timer()),
            create(5, timer().name("n")),
            cancel(Target::key("c")),
        ];
        let groups = [5..7, 2..4];
        assert_eq!(units_of(&batch, &groups[..1]), [vec![0, 2], vec![1], vec![3, 4], vec![5, 6], vec![7]]);
        assert_eq!(units_of(&batch, &groups), [vec![0, 2, 3, 4], vec![1], vec![5, 6], vec![7]]);
        let named = [create(2, timer().name("n")), create(5, timer().name("n")), cancel(Target::name("n"))];
        assert_eq!(units_of(&named, &[]), [[0, 1, 2]]);
    }
}
