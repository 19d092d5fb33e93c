//! Callbacks that take long.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once};
use tourbillon::time::Sleep;
use tourbillon::{Engine, Outcome, Timer};

use crate::child::report;
use crate::support::{eventually, ms};

/// A thousand callbacks of 10 ms take ten seconds, one after the other. A timer that waited for them would be late by seconds.
const CALLS: u64 = 1000;
const SLOW: Duration = Duration::from_millis(10);
const FAR_LESS: Duration = Duration::from_secs(1);

/// Waits for the end of a sleep and returns whether it was armed: it was not if its thread was kept from running until the deadline had
/// passed.
async fn was_armed(sleep: Sleep) -> bool {
    let mut sleep = pin!(sleep);
    let has_ended = poll_once(&mut sleep).await.is_some();
    if !has_ended {
        sleep.await;
    }
    !has_ended
}

#[test]
fn p4_p11_slow_callbacks_wait_for_each_other_in_order_and_no_timer_waits_for_them() {
    let engine = Engine::builder().build().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let longest_wait = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let due = tourbillon::time::Instant::now() + ms(100);
    let timers: Vec<_> = (0..CALLS)
        .map(|number| {
            let timer = Timer::on(&engine);
            timer.expires_at(due);
            let (order, longest_wait) = (Arc::clone(&order), Arc::clone(&longest_wait));
            timer.on_expiry(move |outcome| {
                assert_eq!(outcome, Outcome::Fired);
                assert!(start.elapsed() >= ms(100), "early");
                longest_wait.fetch_max(start.elapsed().as_nanos() as u64, Ordering::SeqCst);
                thread::sleep(SLOW);
                order.lock().unwrap().push(number);
            });
            timer
        })
        .collect();

    let (mut others, mut armed, mut on_time, mut latest) = (0, 0, 0, Duration::ZERO);
    while (order.lock().unwrap().len() as u64) < CALLS {
        let start = Instant::now();
        armed += u64::from(block_on(was_armed(engine.sleep(ms(2)))));
        let late = start.elapsed().checked_sub(ms(2)).expect("early");
        (others, latest) = (others + 1, latest.max(late));
        on_time += u64::from(late < FAR_LESS);
    }
    let took = start.elapsed();
    assert!(on_time * 10 >= others * 9, "{on_time} of {others} timers on time beside slow callbacks");
    assert_eq!(
        *order.lock().unwrap(),
        (0..CALLS).collect::<Vec<_>>(),
        "callbacks of equal deadlines must run in the order of arming"
    );
    drop(timers);
    eventually("no timer is pending", || engine.stats().pending == 0);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.callback_panics), (stats.fired + stats.cancelled, 0), "{stats:?}");
    assert_eq!(stats.fired, CALLS + armed, "{stats:?}");
    let last = Duration::from_nanos(longest_wait.load(Ordering::SeqCst));
    report(&format!(
        "{CALLS} callbacks of {SLOW:?} took {took:?}, the last began {last:?} after they were set; meanwhile {others} sleeps of 2 ms, \
         at most {latest:?} late, {on_time} by less than {FAR_LESS:?}",
    ));
}
