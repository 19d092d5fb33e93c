//! The largest and smallest values of what callers choose.

use std::time::{Duration, SystemTime};

use tourbillon_durable::{Ack, MemoryStore, NewTimer, StoreTime, Timers, TimersBuilder};

use crate::{end, eventually, hour, next, open, record};

fn clock() -> StoreTime {
    StoreTime::try_from(SystemTime::now()).unwrap()
}

#[test]
fn p6_o9_the_longest_and_shortest_leases_and_a_store_without_shards_deliver() {
    let leases = |lease: Duration| Timers::builder().delivery_lease(lease).node_lease(lease);
    let deliver = |builder: TimersBuilder, shards: u16| {
        let timers = builder.build(MemoryStore::with_clock(shards, clock)).unwrap();
        let received = record(&timers, "mail", |_| Ack::Done);
        timers.blocking().create(NewTimer::after("mail", Duration::ZERO)).unwrap();
        assert_eq!(next(&received).attempt(), 1);
        eventually("it is acknowledged", || timers.blocking().counts().unwrap().claimed == 0);
        end(&timers);
    };
    for shards in [0, 1, 4] {
        deliver(leases(Duration::MAX), shards);
        deliver(leases(Duration::ZERO), shards);
    }
}

#[test]
fn p6_p7_o2_the_largest_numbers_a_caller_can_ask_for_are_bounded() {
    let timers = open();
    let calls = timers.blocking();
    let mut events = timers.events(usize::MAX).unwrap();
    calls.create_all((0..20).map(|_| NewTimer::after("mail", Duration::ZERO)).collect()).unwrap();
    eventually("the store is known not to be paused", || !timers.stats().is_paused);
    let pulled = calls.pull("mail", usize::MAX, Duration::MAX).unwrap();
    assert_eq!(pulled.len(), 20);
    let receipts = || pulled.iter().map(tourbillon_durable::Pulled::receipt);
    let extended = calls.extend_pulled(receipts().collect(), Duration::MAX).unwrap();
    assert!(extended.into_iter().all(|result| result == Ok(true)));
    let acks = receipts().map(|receipt| (receipt, Ack::RetryAfter(Duration::MAX, "never".into())));
    assert!(calls.finish_pulled(acks.collect()).unwrap().into_iter().all(|result| result == Ok(true)));
    assert_eq!(calls.upcoming(Default::default(), usize::MAX).unwrap().len(), 20);
    assert_eq!(calls.list(Default::default(), None, usize::MAX).unwrap().rows.len(), 20);
    timers.on_with_limit("page", usize::MAX, |_| async {}).unwrap();
    calls.create(NewTimer::after("page", hour())).unwrap();
    assert!(events.next_blocking().is_some());
    end(&timers);
}
