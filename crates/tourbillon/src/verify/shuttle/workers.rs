//! A worker, other threads that arm timers in its shard, and a thread that takes its timers over.

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::thread;

use super::checked_engine::{CheckedEngine, TurnSignal, micros, one_of};
use super::counted_sleep::CountedSleep;
use super::explore;
use crate::{Driver, Engine};

/// The worker turns until the other threads have ended, unless it ends before. Some of the three other threads, which use sleeps, share its
/// shard.
fn beside_a_worker() {
    let signal = Arc::new(TurnSignal::default());
    let checked = CheckedEngine::driven_beside(Engine::builder().shards(1 + one_of(2)), Arc::clone(&signal));
    let others = Arc::new(AtomicUsize::new(3));
    checked.spawn({
        let (signal, others) = (Arc::clone(&signal), Arc::clone(&others));
        move |checked| work(checked, &signal, &others)
    });
    for _ in 0..3 {
        let (signal, others) = (Arc::clone(&signal), Arc::clone(&others));
        checked.spawn(move |checked| {
            for _ in 0..3 {
                let mut sleep = CountedSleep::new(checked.engine.sleep(micros(0, 20_000)));
                match one_of(4) {
                    0 => _ = sleep.poll(checked),
                    1 => {
                        let _armed = sleep.poll(checked);
                        sleep.earlier(micros(1, 10_000));
                        sleep.wait(checked);
                    }
                    _ => _ = sleep.wait(checked),
                }
            }
            others.fetch_sub(1, Ordering::Relaxed);
            signal.notify();
        });
    }
    checked.run();
    checked.check_wakes();
    checked.engine.shutdown();
}

/// Runs the worker, which arms sleeps of its own between its turns. Another thread may take its timers over at any moment.
fn work(checked: &CheckedEngine, signal: &Arc<TurnSignal>, others: &AtomicUsize) {
    let notify = {
        let signal = Arc::clone(signal);
        move || signal.notify()
    };
    let Some(mut worker) = checked.engine.worker(notify) else { return };
    let takeover = worker.takeover();
    checked.spawn(move |_| (0..2).for_each(|_| takeover.take_over()));
    let mut turns = 1 + one_of(8);
    let mut own = None;
    signal.turn_while(|| {
        turns -= 1;
        let mut sleep = CountedSleep::new(checked.engine.sleep(micros(0, 10_000)));
        let _armed = sleep.poll(checked);
        own = Some(sleep);
        (turns > 0 && others.load(Ordering::Relaxed) > 0).then(|| worker.turn())
    });
}

/// Two threads, and a shard for each. One may start when the other, which has leaked its worker, is about to end.
fn one_after_the_other() {
    let engine =
        Engine::builder().driver(Driver::external()).shards(2).build().expect("an external driver needs no threads");
    for _ in 0..2 {
        let engine = engine.clone();
        thread::spawn(move || forget(engine.worker(|| ()).expect("there is a shard for each thread")));
    }
}

#[test]
fn f4_a_shard_that_is_free_is_free_of_its_last_worker() {
    explore(one_after_the_other);
}

#[test]
fn f4_d44_p11_timers_in_the_shard_of_a_worker_end_in_time_whichever_thread_turns_it() {
    explore(beside_a_worker);
}
