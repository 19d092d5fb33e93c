//! How a store of an older format becomes one of the newest (O5).
//!
//! The steps can be repeated: a process that dies before the file `FORMAT` says the new number does them again.

use super::changes::Changes;
use super::encoding::Totals;
use super::layout;
use super::tables::Tables;
use super::transaction::read_row;
use crate::store::error::StoreError;

/// How many entries are written in one transaction.
const STEP: usize = 10_000;

/// Makes the index of failures of a store of format 1, and returns the totals of the last transaction. The store may have entries of an upgrade
/// that was interrupted, which a program of format 1 has not kept since then, so all are removed first.
pub(super) fn upgrade(tables: &Tables, mut totals: Totals) -> Result<Totals, StoreError> {
    let view = tables.view();
    let (old, rows) = (view.scan(layout::all_failures(), Vec::new()), view.scan(layout::all_rows(), Vec::new()));
    drop(view);
    let mut changes = Changes::default();
    let mut commit_step = |changes: &mut Changes| {
        if changes.len() < STEP {
            return Ok(());
        }
        totals.sequence += 1;
        tables.commit(changes, &totals)
    };
    for entry in old {
        changes.remove(&entry?.0);
        commit_step(&mut changes)?;
    }
    for entry in rows {
        let (key, value) = entry?;
        if let Some(failure) = layout::index_keys(&read_row(tables, &key, &value)?).failure {
            changes.put(&failure, &[]);
        }
        commit_step(&mut changes)?;
    }
    totals.sequence += 1;
    tables.commit(&mut changes, &totals)?;
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::store::embedded::directory::StoreDirectory;
    use crate::store::embedded::{EmbeddedStore, tables};
    use crate::store::{
        ClaimAnswer, ClaimOp, CreateOp, FinishOp, Heartbeat, NodeId, Reply, RowState, Store, Verdict, WriteAnswer,
        WriteOp,
    };
    use crate::{NewTimer, TimerId};

    fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> T {
        let (sender, receiver) = channel();
        call(Reply::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap()
    }

    /// Makes a store with a dead letter and a timer that is tried again.
    fn fill(store: &EmbeddedStore) {
        let lease = Duration::from_secs(60);
        let heartbeat = Heartbeat { node: NodeId(TimerId::new().as_uuid()), lease, release: Vec::new(), kinds: None };
        let epoch = ask(|reply| store.heartbeat(heartbeat, reply)).shards[0].1;
        let again = Verdict::Retry { after: lease, error: "busy".to_owned() };
        for (token, verdict) in [(1, again), (2, Verdict::Dead { error: "broken".to_owned() })] {
            let (spec, on_conflict) = NewTimer::after("mail", Duration::ZERO).check(Default::default()).unwrap();
            let create = CreateOp { id: TimerId::new(), spec: Arc::new(spec), on_conflict };
            let id = crate::store::RowId { timer: create.id, occurrence: 1 };
            let claim = ClaimOp { id, version: 1, epoch, token, lease };
            let answers = ask(|reply| store.write(vec![WriteOp::Create(create), WriteOp::Claim(claim)], reply));
            assert!(matches!(answers[1], WriteAnswer::Claim(ClaimAnswer::Claimed { .. })), "{answers:?}");
            let finish = FinishOp { id, attempt: 1, epoch, verdict };
            ask(|reply| store.write(vec![WriteOp::Finish(finish)], reply));
        }
    }

    #[test]
    fn o5_a_store_of_the_format_before_is_upgraded_and_keeps_all_that_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let options = EmbeddedStore::options().reserve(0);
        let store = options.clone().open(directory.path()).unwrap();
        fill(&store);
        let counts = ask(|reply| store.counts(reply));
        assert_eq!((counts.failed, counts.dead), (1, 1));
        drop(store);

        // As a program of format 1 left it: without the index.
        let locked = StoreDirectory::lock(directory.path()).unwrap();
        let mut opened = tables::open(&locked, &options).unwrap();
        let mut changes = Changes::default();
        for state in [RowState::Armed, RowState::Dead] {
            for entry in opened.tables.view().scan(layout::failed(state), Vec::new()) {
                changes.remove(&entry.unwrap().0);
            }
        }
        assert_eq!(changes.len(), 2);
        // But with what an interrupted upgrade wrote for a row that has ended since.
        changes
            .put(&layout::failure(RowState::Dead, crate::store::RowId { timer: TimerId::new(), occurrence: 1 }), &[]);
        let totals = Totals { sequence: opened.totals.sequence + 1, ..opened.totals };
        opened.tables.commit(&mut changes, &totals).unwrap();
        opened.acknowledged.set(totals.sequence).unwrap();
        drop((opened, locked));
        std::fs::write(directory.path().join("FORMAT"), "Tourbillon durable timers\nformat 1\n").unwrap();

        let look = options.clone().create(false).open(directory.path()).err();
        assert_eq!(look, Some(StoreError::OlderFormat { found: 1, wanted: 2 }), "it is not upgraded");
        for _ in 0..2 {
            let store = options.clone().open(directory.path()).unwrap();
            assert_eq!(ask(|reply| store.counts(reply)), counts);
            assert_eq!(ask(|reply| store.verify(reply)).rows, 2);
        }
        let format = std::fs::read_to_string(directory.path().join("FORMAT")).unwrap();
        assert!(format.ends_with("format 2\n"), "{format:?}");
    }
}
