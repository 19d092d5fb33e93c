//! Stores that are gone for a while, clocks that are off, and a start with many overdue timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use async_channel::Sender;
use tourbillon_durable::store::{
    Cursor, DueEntry, DuePage, DueQuery, Heartbeat, HistoryEntry, ListFilter, ListPage, Ownership, Reply, ShardId,
    StoreCounts, StoreTraits, TimerRow, WriteAnswer, WriteOp,
};
use tourbillon_durable::{
    Ack, InvalidTimer, MemoryStore, NewTimer, Store, StoreError, StoreTime, TimerId, Timers, TimersError,
};

use crate::{PATIENCE, end, eventually, ms, next, open, record};

/// A store that cannot be reached while `is_gone` is set.
#[derive(Clone)]
struct RemoteStore {
    store: MemoryStore,
    is_gone: Arc<AtomicBool>,
}

macro_rules! reachable {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($argument: $type,)* reply: Reply<$answer>) {
            match self.is_gone.load(Ordering::SeqCst) {
                true => reply.send(Err(StoreError::Unavailable("it is gone".to_owned()))),
                false => self.store.$name($($argument,)* reply),
            }
        })*
    };
}

impl Store for RemoteStore {
    fn traits(&self) -> StoreTraits {
        self.store.traits()
    }

    reachable! {
        write(batch: Vec<WriteOp>) -> Vec<WriteAnswer>;
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

/// Returns the system's time with an offset in microseconds.
fn shifted(offset: i64) -> StoreTime {
    let now = StoreTime::try_from(SystemTime::now()).unwrap();
    StoreTime::from_micros(now.as_micros().saturating_add_signed(offset))
}

#[test]
fn q1_q3_d47_a_store_that_is_gone_for_a_while_is_a_typed_error_and_loses_nothing() {
    for shards in [1, 4] {
        let is_gone = Arc::new(AtomicBool::new(false));
        let store =
            RemoteStore { store: MemoryStore::with_clock(shards, || shifted(0)), is_gone: Arc::clone(&is_gone) };
        let timers = Timers::builder().node_lease(ms(300)).build(store).unwrap();
        let received = record(&timers, "mail", |_| Ack::Done);
        let calls = timers.blocking();
        loop {
            let created = calls.create(NewTimer::after("mail", ms(150)).key("meanwhile")).unwrap();
            is_gone.store(true, Ordering::SeqCst);
            if SystemTime::now() < created.due {
                break;
            }
            // This thread was too slow: the timer may have fired before.
            is_gone.store(false, Ordering::SeqCst);
            next(&received);
            eventually("it is acknowledged", || calls.counts().unwrap().claimed == 0);
        }
        let refused = calls.create(NewTimer::after("mail", ms(1)).key("refused")).unwrap_err();
        assert!(matches!(&refused, TimersError::Store(error @ StoreError::Unavailable(_)) if error.is_temporary()));
        // Longer than the lease of the node.
        std::thread::sleep(ms(500));
        assert!(received.try_recv().is_err(), "nothing can be claimed");
        is_gone.store(false, Ordering::SeqCst);
        let delivery = next(&received);
        assert_eq!((delivery.key(), delivery.attempt()), (Some("meanwhile"), 1));
        eventually("it is acknowledged", || calls.counts().unwrap().claimed == 0);
        calls.create(NewTimer::after("mail", ms(1)).key("refused")).unwrap();
        assert_eq!(next(&received).key(), Some("refused"));
        end(&timers);
        assert!(received.try_recv().is_err(), "each was delivered once");
    }
}

#[test]
fn q1_q8_the_error_of_a_store_that_has_failed_for_good_is_told_to_later_callers() {
    struct FullStop;
    impl Store for FullStop {
        fn traits(&self) -> StoreTraits {
            StoreTraits { shards: 1, parallel_writes: 1, rescan: None }
        }

        fn heartbeat(&self, _: Heartbeat, reply: Reply<Ownership>) {
            reply.send(Err(StoreError::Damaged("a file is missing".to_owned())));
        }

        fn write(&self, _: Vec<WriteOp>, _: Reply<Vec<WriteAnswer>>) {}
        fn due(&self, _: DueQuery, _: Reply<DuePage>) {}
        fn orphans(&self, _: String, _: Vec<ShardId>, _: usize, _: Reply<Vec<DueEntry>>) {}
        fn get(&self, _: TimerId, _: Reply<Vec<TimerRow>>) {}
        fn get_key(&self, _: String, _: String, _: Reply<Option<TimerRow>>) {}
        fn list(&self, _: ListFilter, _: Option<Cursor>, _: usize, _: Reply<ListPage>) {}
        fn upcoming(&self, _: ListFilter, _: usize, _: Reply<Vec<TimerRow>>) {}
        fn history(&self, _: TimerId, _: Reply<Vec<HistoryEntry>>) {}
        fn counts(&self, _: Reply<StoreCounts>) {}
        fn set_paused(&self, _: bool, _: Reply<()>) {}
        fn snapshot(&self, _: Sender<Vec<TimerRow>>, _: Reply<u64>) {}
        fn close(&self, _: Reply<()>) {}
    }
    let timers = Timers::builder().build(FullStop).unwrap();
    let damaged = TimersError::Store(StoreError::Damaged("a file is missing".to_owned()));
    eventually("the node has ended", || timers.blocking().cancel("k") == Err(damaged.clone()));
}

#[test]
fn o1_a_node_whose_clock_is_off_owns_nothing_until_it_is_right() {
    let offset = Arc::new(AtomicI64::new(120_000_000));
    let clock = Arc::clone(&offset);
    let store = MemoryStore::with_clock(4, move || shifted(clock.load(Ordering::SeqCst)));
    let timers = Timers::builder().node_lease(ms(300)).build(store).unwrap();
    let received = record(&timers, "mail", |_| Ack::Done);
    timers.blocking().create(NewTimer::after("mail", Duration::ZERO)).unwrap();
    assert!(received.recv_timeout(ms(300)).is_err() && !timers.stats().is_owner);
    // A minute is allowed.
    offset.store(30_000_000, Ordering::SeqCst);
    timers.blocking().create(NewTimer::after("mail", Duration::ZERO).key("now")).unwrap();
    assert_eq!(next(&received).key(), Some("now"), "the clock of the store went back: the first timer is due later");
    end(&timers);
}

#[test]
fn q5_u7_v6_d58_a_start_with_many_overdue_timers_is_paced_oldest_first_and_has_bounded_memory() {
    const TIMERS: u64 = 5_000;
    let timers = Timers::builder().rows_in_memory(1_000).build(MemoryStore::new()).unwrap();
    let calls = timers.blocking();
    calls.pause().unwrap();
    let long_ago = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + second);
    // The newest are created first.
    let all = (0..TIMERS).rev().map(|second| NewTimer::at("mail", long_ago(second)));
    assert!(calls.create_all(all.collect()).unwrap().iter().all(Result::is_ok));
    let (sender, received) = std::sync::mpsc::channel();
    let handler = move |delivery: tourbillon_durable::Delivery| {
        let sender = sender.clone();
        async move { sender.send(delivery.due()).map_err(|error| error.to_string()) }
    };
    timers.on_with_limit("mail", 1, handler).unwrap();
    calls.resume().unwrap();
    for second in 0..TIMERS {
        assert_eq!(received.recv_timeout(PATIENCE), Ok(long_ago(second)));
        let rows = timers.stats().rows_in_memory;
        assert!(rows <= 2_000, "{rows} rows are in memory");
    }
    end(&timers);
}

#[test]
fn u8_times_after_the_year_9999_are_typed_errors() {
    let timers = open();
    let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    let create = |timer| timers.blocking().create(timer).unwrap_err();
    assert_eq!(create(NewTimer::at("mail", year_10000)), TimersError::Invalid(InvalidTimer::Time));
    let too_late = NewTimer::every("mail", Duration::from_secs(60)).until(year_10000);
    assert_eq!(create(too_late), TimersError::Invalid(InvalidTimer::Time));
    end(&timers);
}
