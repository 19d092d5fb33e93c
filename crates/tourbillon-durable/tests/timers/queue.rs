//! The queue of operations that wait for the store: its bound, and the place of cancels in it.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use async_channel::Sender;
use futures_lite::future::{block_on, poll_once};
use tourbillon_durable::store::{
    Cursor, DueEntry, DuePage, DueQuery, Heartbeat, HistoryEntry, ListFilter, ListPage, Ownership, Reply, ShardId,
    StoreCounts, StoreTraits, TimerRow, WriteAnswer, WriteOp,
};
use tourbillon_durable::{MemoryStore, NewTimer, Request, Store, Target, TimerId, Timers, TimersError};

use crate::{PATIENCE, end, eventually, hour};

/// A store that has batches written when the test says so.
struct HeldStore {
    store: MemoryStore,
    batches: std::sync::mpsc::Sender<Batch>,
}

type Batch = (Vec<WriteOp>, Reply<Vec<WriteAnswer>>);

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

    fn write(&self, batch: Vec<WriteOp>, reply: Reply<Vec<WriteAnswer>>) {
        // The test may have ended.
        let _ended = self.batches.send((batch, reply));
    }

    passed_on! {
        due(query: DueQuery) -> DuePage;
        orphans(kind: String, shards: Vec<ShardId>, limit: usize) -> Vec<DueEntry>;
        heartbeat(heartbeat: Heartbeat) -> Ownership;
        get(id: TimerId) -> Vec<TimerRow>;
        get_key(namespace: String, key: String) -> Option<TimerRow>;
        list(filter: ListFilter, cursor: Option<Cursor>, limit: usize) -> ListPage;
        upcoming(filter: ListFilter, limit: usize) -> Vec<TimerRow>;
        history(id: TimerId) -> Vec<HistoryEntry>;
        counts() -> StoreCounts;
        set_paused(is_paused: bool) -> ();
        snapshot(pages: Sender<Vec<TimerRow>>) -> u64;
        close() -> ();
    }
}

/// Timers on a store that answers a batch when [`answer`](Held::answer) is called.
pub(crate) struct Held {
    pub(crate) timers: Timers,
    store: MemoryStore,
    batches: Receiver<Batch>,
}

impl Held {
    pub(crate) fn open(waiting_requests: usize) -> Held {
        let (sender, batches) = channel();
        let store = MemoryStore::new();
        let held = HeldStore { store: store.clone(), batches: sender };
        Held { timers: Timers::builder().waiting_requests(waiting_requests).build(held).unwrap(), store, batches }
    }

    fn next_batch(&self) -> Batch {
        self.batches.recv_timeout(PATIENCE).expect("the store gets a batch")
    }

    fn answer(&self, (ops, reply): Batch) {
        self.store.write(ops, reply);
    }

    fn waiting(&self) -> usize {
        self.timers.stats().waiting_requests
    }

    /// Answers all batches until no operation waits.
    fn answer_all(&self) {
        eventually("all operations are answered", || {
            self.batches.try_iter().for_each(|batch| self.answer(batch));
            self.waiting() == 0
        });
    }

    /// Answers batches until so many operations were answered.
    pub(crate) fn answer_all_of(&self, count: usize) {
        let mut answered = 0;
        while answered < count {
            let batch = self.next_batch();
            answered += batch.0.len();
            self.answer(batch);
        }
    }

    /// Answers all batches until a future ends.
    pub(crate) fn answer_until<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(future));
            eventually("the request is answered", || {
                self.batches.try_iter().for_each(|batch| self.answer(batch));
                waits.is_finished()
            });
            waits.join().unwrap()
        })
    }

    /// Begins a create, and returns what waits for its answer.
    pub(crate) fn create(&self, key: &str) -> Pin<Box<impl Future<Output = Result<String, TimersError>> + use<>>> {
        let (timers, key) = (self.timers.clone(), key.to_owned());
        begun(async move { timers.create(timer(&key)).await.map(|_| key) })
    }
}

pub(crate) fn timer(key: &str) -> NewTimer {
    NewTimer::after("mail", hour()).key(key)
}

/// Polls a future once: it is sent to the node if there is a place for it.
fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(block_on(poll_once(&mut future)).is_none(), "the store has not answered");
    future
}

fn is_cancel(op: &WriteOp) -> bool {
    matches!(op, WriteOp::Cancel(_))
}

#[test]
fn o2_a_cancel_goes_to_the_store_before_the_creates_of_a_full_queue() {
    let held = Held::open(2);
    let created = held.create("a");
    let first = held.next_batch();
    let others = ["b", "c", "d", "e"].map(|key| held.create(key));
    assert_eq!(held.waiting(), 2, "the queue is full");
    let cancels = [held.timers.cancel("a"), held.timers.cancel("none"), held.timers.cancel("b")].map(begun);
    held.answer(first);
    let (ops, reply) = held.next_batch();
    assert!(ops.len() == 3 && ops[..2].iter().all(is_cancel) && !is_cancel(&ops[2]), "{ops:?}");
    held.answer((ops, reply));
    assert_eq!(block_on(created), Ok("a".to_owned()));
    let [a, none, b] = cancels;
    assert_eq!((block_on(a).unwrap().cancelled, block_on(none).unwrap().cancelled), (1, 0));
    let created = others.map(|other| held.answer_until(other));
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    assert_eq!(held.answer_until(b).map(|counts| counts.cancelled), Ok(1));
    end(&held.timers);
}

#[test]
fn o2_a_batch_of_a_million_has_no_more_places_than_the_queue() {
    let held = Held::open(5_000);
    let one_place = held.create("before");
    let targets = (0..1_000_000).map(|number| Target::Id(TimerId::from_u128(number)));
    let many = begun(held.timers.cancel_all(targets));
    let creates = begun(held.timers.create_all((0..20_000).map(|number| timer(&number.to_string()))));
    let waiting = held.waiting();
    assert!((4_000..=10_000).contains(&waiting), "{waiting} operations wait");
    drop(many);
    drop(creates);
    assert_eq!(held.waiting(), waiting, "what the node has keeps its places until the store has answered");
    held.answer_all();
    assert_eq!(block_on(one_place), Ok("before".to_owned()));
    end(&held.timers);
}

#[test]
fn o2_u1_batches_that_are_larger_than_the_queue_are_done_in_their_order() {
    let timers = Timers::builder().waiting_requests(3).build(MemoryStore::new()).unwrap();
    let calls = timers.blocking();
    let mut all: Vec<NewTimer> = (0..100).map(|number| timer(&number.to_string())).collect();
    all.push(timer("7").payload("differently"));
    let created = calls.create_all(all.clone()).unwrap();
    let ids: Vec<TimerId> = created[..100].iter().map(|created| created.as_ref().unwrap().id).collect();
    assert_eq!(created.len(), 101);
    assert_eq!(created[100], Err(TimersError::Conflict(ids[7])), "the answers are in the order of the timers");
    let by_key = |key: usize| calls.get_key("default", &key.to_string()).unwrap().unwrap().id.timer;
    assert!((0..100).all(|key| by_key(key) == ids[key]));
    all.push(timer("invalid").namespace("<>"));
    assert!(matches!(calls.create_all(all), Err(TimersError::Invalid(_))));
    let group = (0..10).map(|number| Request::Create(timer(&format!("group {number}"))));
    assert!(calls.batch(group.collect()).unwrap().iter().all(Result::is_ok), "a group is not sent in parts");
    let counts = calls.cancel_all(ids.iter().map(|id| Target::Id(*id)).collect()).unwrap();
    assert!(counts.iter().all(|counts| counts.as_ref().unwrap().cancelled == 1) && counts.len() == 100);
    assert_eq!((calls.counts().unwrap().armed, timers.stats().waiting_requests), (10, 0));
    end(&timers);
}

#[test]
fn o2_a_request_that_is_dropped_while_it_waits_leaves_its_place_to_others() {
    let held = Held::open(1);
    let first = held.create("first");
    let batch = held.next_batch();
    let dropped = [held.create("dropped"), held.create("dropped too")];
    let last = held.create("last");
    drop(dropped);
    held.answer(batch);
    assert_eq!(block_on(first), Ok("first".to_owned()));
    let last = std::thread::spawn(move || block_on(last));
    let (ops, reply) = held.next_batch();
    let [WriteOp::Create(op)] = &ops[..] else { panic!("{ops:?}") };
    assert_eq!(op.spec.key.as_deref(), Some("last"));
    held.answer((ops, reply));
    assert_eq!(last.join().unwrap(), Ok("last".to_owned()));
    end(&held.timers);
}

#[test]
fn o2_requests_that_wait_for_a_place_are_told_when_the_timers_are_shut_down() {
    let held = Held::open(1);
    let (sent, waits) = (held.create("sent"), held.create("waits"));
    let many = begun(held.timers.create_all((0..5).map(|number| timer(&number.to_string()))));
    held.timers.blocking().shutdown(Duration::ZERO).unwrap();
    assert_eq!((block_on(sent), block_on(waits)), (Err(TimersError::Ended), Err(TimersError::Ended)));
    assert_eq!(block_on(many), Err(TimersError::Ended));
}

#[test]
fn o2_many_timers_with_large_payloads_are_sent_in_parts_that_the_store_can_take() {
    const PAYLOAD: usize = 64 << 10;
    let held = Held::open(1_000);
    let timers = (0..600).map(|number| timer(&number.to_string()).payload(vec![0; PAYLOAD]));
    let mut created = begun(held.timers.create_all(timers));
    let mut sizes = Vec::new();
    let results = loop {
        if let Some(results) = block_on(poll_once(&mut created)) {
            break results.unwrap();
        }
        for batch in held.batches.try_iter() {
            sizes.push(batch.0.len());
            held.answer(batch);
        }
        std::thread::yield_now();
    };
    assert!(results.len() == 600 && results.iter().all(Result::is_ok));
    assert_eq!(sizes, [256, 256, 88], "16 MiB each at most");
    end(&held.timers);
}
