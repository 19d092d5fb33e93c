//! Loops over timers that are ready at once yield on this runtime, so that they can be aborted and timed out (D63).

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tourbillon::time::{interval, sleep, timeout};
use tourbillon::{DelayQueue, Timer};
use tourbillon_rt::{Runtime, spawn};

type Endless = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A loop without an end, with a name.
type Named = (&'static str, fn() -> Endless);

/// Loops without an end over futures that are ready at once.
fn endless() -> Vec<Named> {
    vec![
        ("sleep", || {
            Box::pin(async {
                loop {
                    sleep(Duration::ZERO).await;
                }
            })
        }),
        ("timeout", || {
            Box::pin(async {
                loop {
                    assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
                }
            })
        }),
        ("tick", || {
            Box::pin(async {
                let mut interval = interval(Duration::from_nanos(1));
                loop {
                    interval.tick().await;
                }
            })
        }),
        ("delay queue", || {
            Box::pin(async {
                let mut queue = DelayQueue::new();
                loop {
                    queue.insert((), Duration::ZERO);
                    queue.next().await;
                }
            })
        }),
        ("expired timer", || {
            Box::pin(async {
                let timer = Timer::after(Duration::ZERO);
                loop {
                    timer.wait().await;
                }
            })
        }),
    ]
}

/// Runs a closure on a thread of its own, and fails if it does not end.
#[track_caller]
fn ends(name: &str, run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    thread::spawn(move || {
        run();
        done.send(())
    });
    is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{name} is never left, or has failed"));
}

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("a runtime")
}

#[test]
fn d63_a_loop_of_ready_timers_can_be_timed_out_and_aborted_and_leaves_others_their_turn() {
    for workers in 0..=2 {
        for (name, endless) in endless() {
            ends(name, move || {
                let limit = Duration::from_millis(5);
                let runtime = runtime(workers);
                assert!(runtime.block_on(timeout(limit, endless())).is_err());
                runtime.block_on(async move {
                    assert!(spawn(timeout(limit, endless())).await.unwrap().is_err());
                    let tasks = [spawn(endless()), spawn(endless())];
                    // They run on every worker, and yet other tasks run.
                    spawn(sleep(Duration::from_millis(1))).await.unwrap();
                    for task in tasks {
                        task.abort();
                        assert!(task.await.is_err());
                    }
                });
            });
        }
    }
}

#[test]
fn d63_t12_a_poll_of_a_task_has_room_for_some_results_and_no_more() {
    let polls = runtime(1).block_on(async {
        let mut many = Box::pin(async {
            for _ in 0..1280 {
                sleep(Duration::ZERO).await;
            }
        });
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            many.as_mut().poll(context)
        })
        .await;
        polls
    });
    assert_eq!(polls, 10);
}
