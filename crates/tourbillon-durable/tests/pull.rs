//! Deliveries that workers pull and acknowledge later.

use std::sync::Arc;
use std::time::Duration;

use smol::block_on;
use tourbillon_durable::{Ack, Delivery, MemoryStore, NewTimer, Pulled, Receipt, RetryPolicy, Timers};

const LEASE: Duration = Duration::from_secs(60);

fn due_now(key: &str) -> NewTimer {
    NewTimer::after("work", Duration::ZERO).key(key)
}

#[test]
fn v3_each_due_row_is_pulled_once_and_acknowledged_once() {
    block_on(async {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        let keys = ["a", "b", "c"];
        timers.create_all(keys.map(due_now)).await.unwrap();
        timers.create(NewTimer::after("work", Duration::from_secs(3600)).key("later")).await.unwrap();
        let first = timers.pull("work", 2, LEASE).await.unwrap();
        let rest = timers.pull("work", 10, LEASE).await.unwrap();
        assert_eq!((first.len(), rest.len()), (2, 1), "what is not due is not pulled (Q4)");
        assert!(timers.pull("work", 10, LEASE).await.unwrap().is_empty());
        let receipts: Vec<Receipt> = first.iter().chain(&rest).map(Pulled::receipt).collect();
        let acks = receipts.iter().map(|receipt| (*receipt, Ack::Done));
        let answers = timers.finish_pulled(acks.clone()).await.unwrap();
        assert!(answers.into_iter().all(|answer| answer == Ok(true)));
        let again = timers.finish_pulled(acks).await.unwrap();
        assert!(again.into_iter().all(|answer| answer == Ok(false)), "the deliveries have ended");
        assert_eq!(timers.stats().done, 6);
    });
}

#[test]
fn v5_a_receipt_counts_only_with_its_fence_and_its_attempt() {
    block_on(async {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        timers.create(due_now("a")).await.unwrap();
        let old = timers.pull("work", 1, Duration::ZERO).await.unwrap().remove(0).receipt();
        // The lease was over at once, so the row is pulled again.
        let new = timers.pull("work", 1, LEASE).await.unwrap().remove(0).receipt();
        assert_eq!((old.attempt, new.attempt), (1, 2));
        let forged = Receipt { fence: new.fence ^ 1, ..new };
        let answers = timers.finish_pulled([(old, Ack::Done), (forged, Ack::Done)]).await.unwrap();
        assert_eq!(answers, [Ok(false), Ok(false)]);
        assert_eq!(timers.extend_pulled([old, new], LEASE).await.unwrap(), [Ok(false), Ok(true)]);
        assert_eq!(timers.finish_pulled([(new, Ack::Done)]).await.unwrap(), [Ok(true)]);
    });
}

#[test]
fn v3_o9_a_row_that_one_node_has_pulled_is_acknowledged_by_another_after_the_first_is_gone() {
    block_on(async {
        let store: Arc<MemoryStore> = Arc::new(MemoryStore::new());
        let first = Timers::builder().build_shared(Arc::clone(&store) as _).unwrap();
        first.create(due_now("a")).await.unwrap();
        let pulled = first.pull("work", 1, LEASE).await.unwrap().remove(0);
        let second = Timers::builder().build_shared(store as _).unwrap();
        assert!(second.pull("work", 1, LEASE).await.unwrap().is_empty(), "the lease is still running");
        drop(first);
        assert_eq!(second.finish_pulled([(pulled.receipt(), Ack::Done)]).await.unwrap(), [Ok(true)]);
    });
}

#[test]
fn v4_a_refused_row_waits_as_its_policy_says_and_ends_as_a_dead_letter() {
    block_on(async {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        let retry =
            RetryPolicy { attempts: 2, first: Duration::ZERO, longest: Duration::ZERO, ..RetryPolicy::default() };
        let created = timers.create(due_now("a").retry(retry)).await.unwrap();
        // A delivery that was given back is not an attempt.
        for ack in [Ack::Postpone(Duration::ZERO), Ack::Retry("busy".into()), Ack::Retry("still busy".into())] {
            let pulled = timers.pull("work", 1, LEASE).await.unwrap().remove(0);
            assert_eq!(timers.finish_pulled([(pulled.receipt(), ack)]).await.unwrap(), [Ok(true)]);
        }
        assert!(timers.pull("work", 1, LEASE).await.unwrap().is_empty());
        assert_eq!(timers.counts().await.unwrap().dead, 1);
        let row = timers.get(created.id).await.unwrap().remove(0);
        assert_eq!((row.attempt, row.returned, row.last_error.as_deref()), (3, 1, Some("still busy")));
    });
}

#[test]
fn v3_many_workers_are_served_in_one_request_and_learn_when_to_come_again() {
    block_on(async {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        timers.create_all(["a", "b", "c"].map(due_now)).await.unwrap();
        let later = timers.create(NewTimer::after("work", Duration::from_secs(3600))).await.unwrap();
        let request = |max| tourbillon_durable::PullRequest { max, lease: LEASE };
        let answer = timers.pull_all("work", &[request(2), request(0), request(5)]).await.unwrap();
        assert_eq!(answer.pulled.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
        let dues: Vec<_> = answer.pulled.concat().iter().map(|pulled| pulled.row.due).collect();
        assert!(dues.is_sorted(), "the rows that are due for longest come first");
        let next = timers.pull_all("work", &[request(1)]).await.unwrap().next_due;
        assert!(next.is_none_or(|next| next <= later.due), "{next:?}");
    });
}

#[test]
fn q3_v3_a_row_that_a_worker_pulled_and_left_goes_to_the_handler_after_its_lease() {
    left_row_goes_to_the_handler(None);
}

#[test]
fn q3_v3_a_row_that_a_worker_extended_and_left_goes_to_the_handler_after_its_lease() {
    left_row_goes_to_the_handler(Some(Duration::from_millis(300)));
}

fn left_row_goes_to_the_handler(extension: Option<Duration>) {
    block_on(async {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        let (begun, deliveries) = smol::channel::unbounded();
        let (release, released) = smol::channel::bounded::<()>(1);
        let handler = move |delivery: Delivery| {
            let (begun, released) = (begun.clone(), released.clone());
            async move {
                let is_first = delivery.key() == Some("first");
                begun.send(delivery).await.unwrap();
                if is_first {
                    released.recv().await.unwrap();
                }
                Ack::Done
            }
        };
        timers.on_with_limit("work", 1, handler).unwrap();
        timers.create(due_now("first")).await.unwrap();
        deliveries.recv().await.unwrap();
        // The handler has no place for the second row until it has ended the first.
        timers.create(due_now("second")).await.unwrap();
        let pulled =
            timers.pull("work", 1, Duration::from_secs(if extension.is_some() { 60 } else { 1 })).await.unwrap();
        assert_eq!(pulled[0].row.spec.key.as_deref(), Some("second"));
        if let Some(lease) = extension {
            assert_eq!(timers.extend_pulled([pulled[0].receipt()], lease).await.unwrap(), [Ok(true)]);
        }
        release.send(()).await.unwrap();
        let delivery = smol::future::or(async { deliveries.recv().await.ok() }, async {
            smol::Timer::after(LEASE / 2).await;
            None
        });
        let delivery = delivery.await.expect("the row is delivered again");
        assert_eq!((delivery.key(), delivery.attempt()), (Some("second"), 2));
    });
}
