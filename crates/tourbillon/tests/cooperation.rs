//! Loops over timers that are ready at once yield, so that they can be aborted and timed out, under every executor (D63).

mod support;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, or};
use tourbillon::time::{Deadline, Instant, interval, sleep, sleep_until, timeout, timeout_at};
use tourbillon::{DelayQueue, NamedTimers, Outcome, Timer};

use self::support::{Task, manual, ms};

const NANO: Duration = Duration::from_nanos(1);

type Endless = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An endless loop and its name.
type Named = (&'static str, fn() -> Endless);

/// Returns an endless loop over each of our futures that can be ready at once.
fn endless() -> Vec<Named> {
    vec![
        ("sleep of some nanoseconds", || {
            Box::pin(async {
                loop {
                    sleep(7 * NANO).await;
                }
            })
        }),
        ("sleep of zero", || {
            Box::pin(async {
                loop {
                    sleep(Duration::ZERO).await;
                }
            })
        }),
        ("sleep until now", || {
            Box::pin(async {
                loop {
                    sleep_until(Instant::now()).await;
                }
            })
        }),
        ("sleep that has ended", || {
            Box::pin(async {
                let mut ended = Box::pin(sleep(ms(1)));
                loop {
                    ended.as_mut().await;
                }
            })
        }),
        ("timeout of zero", || {
            Box::pin(async {
                loop {
                    assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
                }
            })
        }),
        ("timeout in the past", || {
            Box::pin(async {
                let past = Instant::now();
                loop {
                    assert!(timeout_at(past, pending::<()>()).await.is_err());
                }
            })
        }),
        ("tick of a nanosecond", || {
            Box::pin(async {
                let mut interval = interval(NANO);
                loop {
                    interval.tick().await;
                }
            })
        }),
        ("tick that is reset", || {
            Box::pin(async {
                let mut interval = interval(ms(1000));
                loop {
                    interval.reset_immediately();
                    interval.tick().await;
                }
            })
        }),
        ("delay queue", || {
            Box::pin(async {
                let mut queue = DelayQueue::new();
                loop {
                    queue.insert((), Duration::ZERO);
                    assert!(queue.next().await.is_some());
                }
            })
        }),
        ("empty delay queue", || {
            Box::pin(async {
                let mut queue = DelayQueue::<()>::new();
                loop {
                    assert!(queue.next().await.is_none());
                }
            })
        }),
        ("timer that has expired", || {
            Box::pin(async {
                let timer = Timer::after(Duration::ZERO);
                loop {
                    assert_eq!(timer.wait().await, Outcome::Fired);
                }
            })
        }),
        ("named timer of zero", || {
            Box::pin(async {
                let timers = NamedTimers::new();
                loop {
                    let wait = timers.create("name").wait(Duration::ZERO).unwrap();
                    assert_eq!(wait.await, Outcome::Fired);
                }
            })
        }),
        ("scope that is over", || {
            Box::pin(async {
                loop {
                    assert!(Deadline::after(Duration::ZERO).scope(pending::<()>()).await.is_err());
                }
            })
        }),
        ("scope around sleeps", || {
            Box::pin(async {
                let _never = Deadline::never()
                    .scope(async {
                        loop {
                            sleep(Duration::ZERO).await;
                        }
                    })
                    .await;
            })
        }),
        #[cfg(feature = "futures")]
        ("stream of ticks", || {
            Box::pin(async {
                let mut ticks = interval(NANO);
                loop {
                    std::future::poll_fn(|cx| futures_lite::Stream::poll_next(Pin::new(&mut ticks), cx)).await;
                }
            })
        }),
    ]
}

/// Runs the closure on a thread of its own, and fails if it does not return.
#[track_caller]
fn ends(name: &str, run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    thread::spawn(move || {
        run();
        done.send(())
    });
    is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{name} does not return, or has failed"));
}

#[test]
fn d63_t12_a_timeout_around_a_loop_of_ready_timers_ends_on_any_executor() {
    for (name, endless) in endless() {
        ends(name, move || assert!(block_on(timeout(ms(5), endless())).is_err()));
        ends(name, move || assert!(smol::block_on(timeout(ms(5), endless())).is_err()));
        ends(name, move || {
            let smol = smol::Executor::new();
            let task = smol.spawn(timeout(ms(5), endless()));
            assert!(smol::block_on(smol.run(task)).is_err());
        });
        let current = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        ends(name, move || assert!(current().block_on(timeout(ms(5), endless())).is_err()));
        ends(name, move || {
            let in_a_task = async move { tokio::spawn(timeout(ms(5), endless())).await.unwrap() };
            assert!(current().block_on(in_a_task).is_err());
        });
        ends(name, move || {
            let in_tokios = async move { tokio::time::timeout(ms(5), endless()).await };
            assert!(current().block_on(in_tokios).is_err());
        });
    }
}

#[test]
fn d63_a_future_beside_a_loop_of_ready_timers_in_a_select_makes_progress() {
    for (name, endless) in endless() {
        ends(name, move || block_on(or(endless(), sleep(ms(5)))));
        ends(name, move || block_on(or(sleep(ms(5)), endless())));
        ends(name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            // Not `biased`: there a branch that uses up Tokio's budget starves those after it, of any crate.
            runtime.block_on(async move {
                tokio::select! {
                    () = endless() => {}
                    () = sleep(ms(5)) => {}
                }
            });
        });
    }
}

#[test]
fn d63_a_task_that_loops_over_ready_timers_can_be_aborted_and_lets_other_tasks_run() {
    for (name, endless) in endless() {
        ends(name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let task = tokio::spawn(endless());
                // The loop runs, and other tasks run beside it.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            });
        });
        ends(name, move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let task = runtime.spawn(endless());
            runtime.block_on(async move {
                runtime_neighbour().await;
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            });
        });
        ends(name, move || {
            let smol = smol::LocalExecutor::new();
            smol::block_on(smol.run(async {
                let task = smol.spawn(endless());
                for _ in 0..10 {
                    smol::future::yield_now().await;
                }
                task.cancel().await;
            }));
        });
    }
}

async fn runtime_neighbour() {
    tokio::spawn(sleep(ms(1))).await.unwrap();
}

#[test]
fn d63_a_task_of_tokio_that_is_unconstrained_does_not_yield() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let task = tokio::spawn(tokio::task::unconstrained(async {
            let mut polls = 0;
            let mut many = Box::pin(async {
                for _ in 0..10_000 {
                    sleep(Duration::ZERO).await;
                }
            });
            std::future::poll_fn(|cx| {
                polls += 1;
                many.as_mut().poll(cx)
            })
            .await;
            polls
        }));
        assert_eq!(task.await.unwrap(), 1);
    });
}

#[test]
fn d63_a_result_that_was_waited_for_or_has_no_task_is_never_deferred() {
    let engine = manual();
    let task = Task::new();
    for _ in 0..1000 {
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        engine.advance(ms(1));
        assert!(task.poll(sleep.as_mut()).is_ready(), "the task has waited for it");
    }
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        assert!(Box::pin(engine.sleep(Duration::ZERO)).as_mut().poll(&mut context).is_ready(), "there is no task");
    }
}

#[test]
fn d63_a_deferred_result_is_not_lost() {
    let engine = manual();
    let _entered = engine.enter();
    let (mut queue, mut interval, task) = (DelayQueue::new(), interval(NANO), Task::new());
    let start = Instant::now();
    engine.advance(ms(1));
    let (mut expired, mut ticks, mut deferred) = (0, 0, 0);
    for poll in 0..200_000 {
        queue.insert(expired, Duration::ZERO);
        match queue.poll_expired(&mut task.cx()) {
            Poll::Ready(Some(item)) => {
                assert_eq!(item.into_inner(), expired);
                expired += 1;
            }
            Poll::Ready(None) => panic!("the queue is not empty"),
            Poll::Pending => {
                assert_eq!(task.wakes(), 1, "poll {poll}");
                deferred += 1;
                assert!(queue.poll_expired(&mut task.cx()).is_ready(), "once");
                expired += 1;
            }
        }
        match interval.poll_tick(&mut task.cx()) {
            Poll::Ready(tick) => {
                assert_eq!(tick, start + ticks * NANO);
                ticks += 1;
            }
            Poll::Pending => {
                assert_eq!(task.wakes(), 1, "poll {poll}");
                deferred += 1;
            }
        }
    }
    assert!((1..5000).contains(&deferred), "{deferred} results were deferred");
    assert!(ticks >= 200_000 - deferred);
}

#[test]
fn d63_a_thousand_results_outside_a_task_are_never_deferred() {
    let (engine, task) = (manual(), Task::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..RESULTS_BY_HAND {
                let mut sleep = Box::pin(engine.sleep(Duration::ZERO));
                assert!(sleep.as_mut().poll(&mut task.cx()).is_ready());
            }
        });
    });
}

/// A thread that has not yielded before gets at least this many results.
const RESULTS_BY_HAND: u32 = 1000;
