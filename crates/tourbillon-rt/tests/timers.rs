//! Timers on workers: never early, dropped anywhere, beside I/O, and nothing while nothing is due (F3, F4, P1, P9, D9, D26).

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use support::{Random, eventually, everywhere, ms, on_each_backend, on_each_backend_with, pair, sleeps_and_cpu, soon};
use tourbillon_rt::time::{self, Instant, Sleep};
use tourbillon_rt::{Runtime, spawn};

type Pinned = Pin<Box<Sleep>>;

fn poll(sleep: &mut Pinned) -> bool {
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn p1_d42_no_sleep_timeout_or_tick_on_a_worker_is_early() {
    on_each_backend_with(2, |runtime| {
        let mut random = Random::new();
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let mut random = random.split();
                runtime.spawn(async move {
                    for _ in 0..10 {
                        let wanted = Duration::from_nanos(random.below(3_000_000));
                        let start = std::time::Instant::now();
                        match random.below(4) {
                            0 => time::sleep(wanted).await,
                            1 => time::sleep_until(Instant::now() + wanted).await,
                            2 => assert!(time::timeout(wanted, std::future::pending::<()>()).await.is_err()),
                            _ => {
                                let mut interval = time::interval_at(Instant::now() + wanted, ms(1));
                                interval.tick().await;
                            }
                        }
                        assert!(start.elapsed() >= wanted, "{:?} of {wanted:?}", start.elapsed());
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                soon("a sleeper", task).await.unwrap();
            }
        });
    });
}

#[test]
fn f3_timers_armed_on_one_worker_are_awaited_reset_and_dropped_on_others() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(3).build().unwrap();
        let mut random = Random::new();
        // A heap of armed sleeps, which every task takes from and adds to.
        let heap: Arc<Mutex<Vec<Pinned>>> = Arc::default();
        let awaited = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (mut random, heap, awaited) = (random.split(), Arc::clone(&heap), Arc::clone(&awaited));
                runtime.spawn(async move {
                    for _ in 0..300 {
                        let mut sleep = Box::pin(time::sleep(Duration::from_micros(random.below(2000))));
                        let _ = poll(&mut sleep);
                        heap.lock().unwrap().push(sleep);
                        let other = {
                            let mut heap = heap.lock().unwrap();
                            let index = random.below(heap.len() as u64) as usize;
                            heap.swap_remove(index)
                        };
                        match random.below(4) {
                            0 => drop(other),
                            1 => {
                                let mut other = other;
                                other.as_mut().reset(Instant::now() + Duration::from_micros(random.below(500)));
                                other.await;
                                awaited.fetch_add(1, Ordering::SeqCst);
                            }
                            2 => {
                                let deadline = other.deadline();
                                other.await;
                                assert!(Instant::now() >= deadline, "early");
                                awaited.fetch_add(1, Ordering::SeqCst);
                            }
                            _ => heap.lock().unwrap().push(other),
                        }
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                soon("a task", task).await.unwrap();
            }
        });
        assert!(awaited.load(Ordering::SeqCst) > 1000);
        let left = std::mem::take(&mut *heap.lock().unwrap());
        // Dropped on a thread outside the runtime.
        thread::spawn(move || drop(left)).join().unwrap();
        eventually("nothing is pending", || runtime.engine().stats().pending == 0);
    });
}

#[test]
fn f4_a_timer_that_is_armed_while_all_workers_sleep_fires() {
    on_each_backend_with(2, |runtime| {
        for round in 0..20 {
            // Until the workers are parked.
            thread::sleep(ms(1));
            let (sender, receiver) = mpsc::channel();
            if round % 2 == 0 {
                // By a task that has to be woken for it.
                runtime.spawn(async move {
                    time::sleep(Duration::from_micros(300)).await;
                    sender.send(()).unwrap();
                });
            } else {
                // By a thread of the user that is inside of the runtime.
                let _entered = runtime.handle().enter();
                futures_lite::future::block_on(time::sleep(Duration::from_micros(300)));
                sender.send(()).unwrap();
            }
            receiver.recv_timeout(support::LONG).unwrap();
        }
    });
}

#[test]
fn f4_an_earlier_timer_cuts_the_wait_for_a_later_one_short() {
    everywhere(|| async {
        let far = spawn(time::sleep(Duration::from_secs(3600)));
        let mut last = Duration::from_millis(50);
        while last > Duration::from_micros(200) {
            let start = Instant::now();
            soon("the earlier one", time::sleep(last)).await;
            assert!(start.elapsed() >= last);
            last /= 2;
        }
        assert!(!far.is_finished());
        far.abort();
        assert!(far.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn d31_the_longest_sleep_stands_beside_the_shortest() {
    everywhere(|| async {
        let for_ever = spawn(time::sleep(Duration::MAX));
        for _ in 0..10 {
            soon("a short one", time::sleep(Duration::from_nanos(1))).await;
            soon("none at all", time::sleep(Duration::ZERO)).await;
        }
        assert!(!for_ever.is_finished());
        for_ever.abort();
    });
}

#[test]
fn d26_a_hundred_thousand_timers_due_at_once_let_sockets_and_tasks_have_their_turns() {
    on_each_backend_with(1, |runtime| {
        // A busy machine may not get them all armed in time, and then there is no burst; or it keeps the worker from running for so long
        // that the driver fires them in its place.
        let leads = [400, 400, 400, 2_000, 10_000, 10_000, 10_000];
        let bursts = leads.into_iter().filter_map(|lead| round_trips_in_a_burst(runtime, ms(lead)));
        let bursts = bursts.inspect(|(during, all)| println!("{during} round trips during the burst, {all} in all"));
        // Hundreds if the worker has the processor; none or one if the burst comes first.
        let has_its_turns = bursts.map(|(during, _)| during).any(|during| during >= 3);
        assert!(has_its_turns, "never three round trips during a burst");
    });
}

/// Has 100,000 sleeps end at once, `lead` from now, beside an echo. Returns how many round trips there were while they fired, and in all;
/// `None` if they were not all armed before.
fn round_trips_in_a_burst(runtime: &Runtime, lead: Duration) -> Option<(usize, usize)> {
    const TIMERS: usize = 100_000;
    let (armed, fired) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    // How far the burst had come at each round trip.
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let at = Instant::now() + lead;
    let sleepers: Vec<_> = (0..TIMERS)
        .map(|_| {
            let (armed, fired) = (Arc::clone(&armed), Arc::clone(&fired));
            runtime.spawn(async move {
                armed.fetch_add(usize::from(Instant::now() < at), Ordering::SeqCst);
                time::sleep_until(at).await;
                fired.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let echo = runtime.spawn(echo_until(Arc::clone(&stop), {
        let (seen, fired) = (Arc::clone(&seen), Arc::clone(&fired));
        move || seen.lock().unwrap().push(fired.load(Ordering::SeqCst))
    }));
    runtime.block_on(async {
        for sleeper in sleepers {
            soon("a sleeper", sleeper).await.unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        soon("the echo", echo).await.unwrap();
    });
    assert!(Instant::now() >= at);
    let seen = seen.lock().unwrap();
    let during = seen.iter().filter(|fired| 0 < **fired && **fired < TIMERS).count();
    (armed.load(Ordering::SeqCst) == TIMERS).then_some((during, seen.len()))
}

/// Sends a byte there and back until `stop`, and calls `told` after each.
async fn echo_until(stop: Arc<AtomicBool>, told: impl Fn()) {
    let (a, b) = pair().await;
    let answers = spawn(async move {
        let mut byte = [0];
        while b.read(&mut byte).await.unwrap() > 0 {
            b.write_all(&byte).await.unwrap();
        }
    });
    while !stop.load(Ordering::SeqCst) {
        a.write_all(b"x").await.unwrap();
        a.read_exact(&mut [0]).await.unwrap();
        told();
    }
    drop(a);
    answers.await.unwrap();
}

#[test]
fn d26_a_hundred_thousand_time_limits_of_io_due_at_once_all_end() {
    on_each_backend_with(2, |runtime| {
        let at = Instant::now() + ms(300);
        let (streams, _peers): (Vec<_>, Vec<_>) = runtime.block_on(async {
            let mut pairs = Vec::new();
            for _ in 0..50 {
                pairs.push(pair().await);
            }
            pairs.into_iter().unzip()
        });
        let tasks: Vec<_> = (0..100_000)
            .map(|number| {
                let stream = streams[number % streams.len()].clone();
                runtime.spawn(async move {
                    let error = stream.read(&mut [0; 1]).deadline(at).await.unwrap_err();
                    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
                    assert!(Instant::now() >= at, "early");
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                soon("a reader", task).await.unwrap();
            }
        });
    });
}

#[test]
fn p9_d9_an_idle_runtime_sleeps_without_timers_with_far_ones_and_after_a_burst() {
    on_each_backend(|backend| {
        let name = format!("still{}", backend.to_string().len());
        let runtime = Runtime::builder().backend(backend).workers(2).thread_name(&name).build().unwrap();
        let sleeps_on = || {
            // The monitor has to see that all workers are parked.
            thread::sleep(ms(60));
            let (sleeps, _) = sleeps_and_cpu(&name);
            thread::sleep(ms(300));
            sleeps_and_cpu(&name).0 == sleeps
        };
        // On a busy machine it takes a while until all threads have started, or have finished their work.
        let is_still = |what: &str| eventually(&format!("no wake-ups {what}"), sleeps_on);
        is_still("with nothing to do");
        let (_a, b) = runtime.block_on(runtime.spawn(pair())).unwrap();
        for number in 0..10_000 {
            runtime.spawn(async move { time::sleep(Duration::from_secs(100 + number)).await });
        }
        let waits = runtime.spawn(async move { b.read(&mut [0; 1]).timeout(Duration::from_secs(50)).await.map(drop) });
        eventually("all wait", || runtime.engine().stats().pending == 10_001);
        is_still("with far timers");
        let short: Vec<_> = (0..1000).map(|_| runtime.spawn(async { time::sleep(ms(1)).await })).collect();
        runtime.block_on(async {
            for task in short {
                task.await.unwrap();
            }
        });
        is_still("after near ones");
        // Cancelled timers leave no wake-up behind either.
        runtime.spawn(async {
            for _ in 0..100 {
                let _ = time::timeout(ms(30), async {}).await;
                let mut sleep = Box::pin(time::sleep(ms(150)));
                assert!(!poll(&mut sleep));
            }
        });
        waits.abort();
        is_still("after cancelled ones");
    });
}
