//! Pulls of workers while the store is paused, or while the node does not know whether it is.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use tourbillon_durable::store::{
    Cursor, DueEntry, DuePage, DueQuery, Heartbeat, HistoryEntry, ListFilter, ListPage, Ownership, Reply, ShardId,
    StoreCounts, StoreTraits, TimerRow, WriteAnswer, WriteOp,
};
use tourbillon_durable::{MemoryStore, NewTimer, Store, StoreTime, TimerId, Timers};

use crate::{PATIENCE, end, hour, ms};

/// A store that answers heartbeats, or searches for due rows, when the test says so.
struct HeldStore {
    store: MemoryStore,
    heartbeats: Option<Sender<(Heartbeat, Reply<Ownership>)>>,
    dues: Option<Sender<(DueQuery, Reply<DuePage>)>>,
}

macro_rules! passed_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($argument: $type,)* reply: Reply<$answer>) {
            self.store.$name($($argument,)* reply);
        })*
    };
}

impl Store for HeldStore {
    fn traits(&self) -> StoreTraits {
        self.store.traits()
    }

    fn heartbeat(&self, heartbeat: Heartbeat, reply: Reply<Ownership>) {
        match &self.heartbeats {
            // The test may have ended.
            Some(heartbeats) => drop(heartbeats.send((heartbeat, reply))),
            None => self.store.heartbeat(heartbeat, reply),
        }
    }

    fn due(&self, query: DueQuery, reply: Reply<DuePage>) {
        match &self.dues {
            Some(dues) => drop(dues.send((query, reply))),
            None => self.store.due(query, reply),
        }
    }

    passed_on! {
        write(batch: Vec<WriteOp>) -> Vec<WriteAnswer>;
        orphans(kind: String, shards: Vec<ShardId>, limit: usize) -> Vec<DueEntry>;
        get(id: TimerId) -> Vec<TimerRow>;
        get_key(namespace: String, key: String) -> Option<TimerRow>;
        list(filter: ListFilter, cursor: Option<Cursor>, limit: usize) -> ListPage;
        upcoming(filter: ListFilter, limit: usize) -> Vec<TimerRow>;
        history(id: TimerId) -> Vec<HistoryEntry>;
        counts() -> StoreCounts;
        set_paused(is_paused: bool) -> ();
        snapshot(pages: async_channel::Sender<Vec<TimerRow>>) -> u64;
        close() -> ();
    }
}

#[test]
fn v3_o4_a_pull_waits_until_the_node_has_heard_that_the_store_is_not_paused() {
    let store = MemoryStore::new();
    let (sender, heartbeats) = channel();
    let held = HeldStore { store: store.clone(), heartbeats: Some(sender), dues: None };
    let timers = Timers::builder().build(held).unwrap();
    timers.blocking().create(NewTimer::after("work", Duration::ZERO)).unwrap();
    let (heartbeat, reply) = heartbeats.recv_timeout(PATIENCE).unwrap();
    let (sender, pulled) = channel();
    let worker = timers.blocking();
    let pull = std::thread::spawn(move || sender.send(worker.pull("work", 1, hour())).unwrap());
    assert_eq!(pulled.recv_timeout(ms(50)).err(), Some(RecvTimeoutError::Timeout), "nobody has said that it is paused");
    store.heartbeat(heartbeat, reply);
    assert_eq!(pulled.recv_timeout(PATIENCE).unwrap().unwrap().len(), 1);
    pull.join().unwrap();
}

#[test]
fn v3_o1_a_node_whose_clock_is_off_from_the_start_pulls_what_is_due_by_the_clock_of_the_store() {
    let two_minutes_ahead = || StoreTime::try_from(SystemTime::now() + Duration::from_secs(120)).unwrap();
    let timers = Timers::builder().build(MemoryStore::with_clock(4, two_minutes_ahead)).unwrap();
    let calls = timers.blocking();
    calls.create(NewTimer::after("work", Duration::ZERO)).unwrap();
    assert_eq!(calls.pull("work", 1, hour()).unwrap().len(), 1);
    calls.pause().unwrap();
    calls.create(NewTimer::after("work", Duration::ZERO)).unwrap();
    assert_eq!(calls.pull("work", 1, hour()).unwrap(), []);
    end(&timers);
}

#[test]
fn o4_v3_a_pull_that_has_begun_claims_nothing_after_a_pause() {
    let store = MemoryStore::new();
    let (sender, dues) = channel();
    let held = HeldStore { store: store.clone(), heartbeats: None, dues: Some(sender) };
    let timers = Timers::builder().build(held).unwrap();
    let calls = timers.blocking();
    calls.create(NewTimer::after("work", Duration::ZERO)).unwrap();
    let worker = timers.blocking();
    let pull = std::thread::spawn(move || worker.pull("work", 1, hour()));
    let (query, reply) = dues.recv_timeout(PATIENCE).unwrap();
    calls.pause().unwrap();
    store.due(query, reply);
    // The pull may look once more for rows in the place of those that it has not got.
    while !pull.is_finished() {
        dues.try_iter().for_each(|(query, reply)| store.due(query, reply));
        std::thread::sleep(ms(1));
    }
    assert_eq!(pull.join().unwrap().unwrap(), []);
    assert_eq!(calls.counts().unwrap().claimed, 0);
    end(&timers);
}
