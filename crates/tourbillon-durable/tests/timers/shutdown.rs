//! Shutdowns while handlers run.

use std::sync::mpsc::channel;

use futures_lite::future::{block_on, poll_once};
use tourbillon_durable::{Delivery, MemoryStore, NewTimer, RetryPolicy, Timers};

use crate::{PATIENCE, end, hour, ms};

#[test]
fn q3_o9_a_handler_that_a_shutdown_waits_for_can_create_the_next_timer() {
    let store = MemoryStore::new();
    let timers = Timers::builder().build(store.clone()).unwrap();
    let (begun, begins) = channel();
    let (go_on, may_go_on) = async_channel::bounded::<()>(1);
    let of_handler = timers.clone();
    let handler = move |_: Delivery| {
        let (timers, begun, may_go_on) = (of_handler.clone(), begun.clone(), may_go_on.clone());
        async move {
            begun.send(()).unwrap();
            may_go_on.recv().await.map_err(|error| error.to_string())?;
            timers.create(NewTimer::after("mail", hour())).await.map(drop).map_err(|error| error.to_string())
        }
    };
    timers.on("mail", handler).unwrap();
    timers.blocking().create(NewTimer::after("mail", ms(0)).retry(RetryPolicy::never())).unwrap();
    begins.recv_timeout(PATIENCE).unwrap();
    block_on(async {
        let mut shutdown = Box::pin(timers.shutdown(PATIENCE));
        assert!(poll_once(&mut shutdown).await.is_none(), "the handler runs, and the shutdown has begun");
        go_on.send(()).await.unwrap();
        shutdown.await.unwrap();
    });
    let timers = Timers::builder().build(store).unwrap();
    let counts = timers.blocking().counts().unwrap();
    assert_eq!((counts.armed, counts.claimed, counts.dead), (1, 0, 0));
    end(&timers);
}
