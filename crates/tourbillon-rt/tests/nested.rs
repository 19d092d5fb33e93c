//! Nested and re-entrant runtimes (D66, D67): `block_on` in `block_on`, in tasks, in wakers, in destructors, and across runtimes,
//! with zero, one and two workers, on both back ends.

mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use support::{
    Blocks, Flag, LONG, chain, eventually, give_way, in_time, ms, on_each_backend, pair, poll_once, soon, threads_named,
};
use tourbillon_rt::{Backend, EventLoop, Runtime, spawn, spawn_local, time};

/// The most extra threads that nested calls of one runtime may start.
const MOST_SUBSTITUTES: usize = 64;

fn runtime(backend: Backend, workers: usize) -> Arc<Runtime> {
    Arc::new(Runtime::builder().backend(backend).workers(workers).build().unwrap())
}

/// Runs the test with zero, one and two workers on each back end, and fails if it hangs.
fn on_each_size(what: &str, test: impl Fn(&Arc<Runtime>) + Clone + Send + 'static) {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            let test = test.clone();
            in_time(&format!("{what}, {backend}, {workers} workers"), move || test(&runtime(backend, workers)));
        }
    });
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Raises the flag from another thread while the nested call sleeps.
fn nested_call_during_which_the_outer_is_woken(runtime: &Runtime, outer: &Flag) {
    let outer = outer.clone();
    let raises = thread::spawn(move || {
        thread::sleep(ms(10));
        outer.raise();
    });
    runtime.block_on(time::sleep(ms(30)));
    raises.join().unwrap();
}

#[test]
fn d66_a_nested_block_on_leaves_the_outer_wake_up_alone() {
    on_each_size("a nested call in a task", |runtime| {
        let (outer, inner) = (Flag::default(), Arc::clone(runtime));
        let raised = outer.clone();
        runtime.block_on(async move {
            let task = spawn(async move { nested_call_during_which_the_outer_is_woken(&inner, &raised) });
            outer.await;
            task.await.unwrap();
        });
    });
}

#[test]
fn d66_a_nested_block_on_in_a_local_task_leaves_the_outer_wake_up_alone() {
    on_each_size("a nested call in a local task", |runtime| {
        let (outer, inner) = (Flag::default(), Arc::clone(runtime));
        let raised = outer.clone();
        runtime.block_on(async move {
            let task = spawn_local(async move { nested_call_during_which_the_outer_is_woken(&inner, &raised) });
            outer.await;
            task.await.unwrap();
        });
    });
}

#[test]
fn d66_each_of_three_nested_calls_is_woken_by_its_own_wake_up() {
    on_each_size("three nested calls", |runtime| {
        let flags = [Flag::default(), Flag::default(), Flag::default()];
        let raised = flags.clone();
        // The innermost flag first, then outwards; and the other way round.
        let (middle, innermost) = (Arc::clone(runtime), Arc::clone(runtime));
        let [first, second, third] = flags;
        let raises = thread::spawn(move || {
            for flag in raised {
                thread::sleep(ms(5));
                flag.raise();
            }
        });
        runtime.block_on(async move {
            let task = spawn_local(async move {
                middle.block_on(async {
                    let task = spawn_local(async move {
                        innermost.block_on(third);
                        innermost.block_on(give_way());
                    });
                    second.await;
                    task.await.unwrap();
                });
            });
            first.await;
            task.await.unwrap();
        });
        raises.join().unwrap();
    });
}

#[test]
fn d66_a_task_blocks_on_tasks_that_were_spawned_before_and_inside_the_nested_call() {
    on_each_size("a task that blocks on tasks", |runtime| {
        let inner = Arc::clone(runtime);
        let sum = async move {
            let before = spawn(async {
                time::sleep(ms(2)).await;
                give_way().await;
                1
            });
            let also = spawn(async {
                let (a, b) = pair().await;
                let writes = spawn(async move {
                    time::sleep(ms(2)).await;
                    b.write_all(b"xy").await.unwrap();
                });
                let read = a.read(&mut [0; 4]).await.unwrap();
                writes.await.unwrap();
                read
            });
            inner.block_on(async move {
                let inside = spawn(async { spawn(async { 4 }).await.unwrap() });
                before.await.unwrap() + also.await.unwrap() + inside.await.unwrap()
            })
        };
        assert_eq!(runtime.block_on(runtime.spawn(sum)).unwrap(), 7);
    });
}

#[test]
fn d66_a_nested_call_in_the_first_poll_of_another_waits_for_tasks() {
    on_each_size("calls in first polls", |runtime| {
        let (middle, innermost) = (Arc::clone(runtime), Arc::clone(runtime));
        let task = runtime.spawn(async move {
            let before = spawn(async { 1 });
            let sum = middle.block_on(async {
                let child = spawn(async {
                    time::sleep(ms(1)).await;
                    2
                });
                let inside = innermost.block_on(async { child.await.unwrap() + spawn(async { 4 }).await.unwrap() });
                // And then the outer one waits as well.
                inside + spawn(async { 8 }).await.unwrap()
            });
            sum + before.await.unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 15);
    });
}

#[test]
fn d66_more_tasks_than_workers_block_on_tasks_of_their_own_at_the_same_time() {
    on_each_size("eight tasks that block on tasks", |runtime| {
        let tasks: Vec<_> = (0..8_u64)
            .map(|number| {
                let inner = Arc::clone(runtime);
                runtime.spawn(async move {
                    let child = spawn(async move {
                        time::sleep(ms(number % 3)).await;
                        number
                    });
                    inner.block_on(child).unwrap()
                })
            })
            .collect();
        runtime.block_on(async {
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(soon("a nested call", task).await.unwrap(), number as u64);
            }
        });
    });
}

#[test]
fn d66_two_tasks_that_block_on_each_others_flags_both_end() {
    on_each_size("two that wait for each other", |runtime| {
        let (first, second) = (Flag::default(), Flag::default());
        let tasks = [(first.clone(), second.clone()), (second, first)].map(|(waits, raises)| {
            let inner = Arc::clone(runtime);
            runtime.spawn(async move {
                raises.raise();
                inner.block_on(waits);
            })
        });
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn d66_a_runtime_that_is_dropped_while_its_worker_blocks_in_another_runtime_on_its_task_ends() {
    on_each_backend(|backend| {
        for (workers, of_other) in [(1, 0), (1, 1), (2, 1)] {
            in_time("dropped while nested", move || {
                let (dropped, other) = (runtime(backend, workers), runtime(backend, of_other));
                let handle = dropped.handle().clone();
                let (begins, has_begun) = std::sync::mpsc::channel();
                let task = dropped.spawn(async move {
                    let child = handle.spawn(std::future::pending::<()>());
                    begins.send(()).unwrap();
                    // It ends because the runtime cancels its task, which some thread has to poll once more.
                    other.block_on(child).is_err()
                });
                has_begun.recv_timeout(LONG).unwrap();
                thread::sleep(ms(5));
                drop(dropped);
                assert!(futures_lite::future::block_on(task).unwrap());
            });
        }
    });
}

#[test]
fn d67_twenty_thousand_tasks_that_each_block_on_something_end_on_a_small_stack() {
    on_each_size("20,000 nested calls", |runtime| {
        let done = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..20_000)
                .map(|_| {
                    let (inner, done) = (Arc::clone(runtime), Arc::clone(&done));
                    spawn(async move {
                        inner.block_on(give_way());
                        done.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 20_000);
    });
}

#[test]
fn d67_twenty_thousand_local_tasks_that_each_block_on_something_end_on_a_small_stack() {
    on_each_size("20,000 nested calls in local tasks", |runtime| {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..20_000)
                .map(|_| {
                    let inner = Arc::clone(runtime);
                    spawn_local(async move { inner.block_on(give_way()) })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn d67_a_chain_of_tasks_that_block_on_each_other_ends_with_a_bounded_number_of_threads() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            let name = format!("d67{backend}{workers}").replace("io_", "");
            let name = name.chars().take(9).collect::<String>();
            in_time("a chain", move || {
                let runtime = Runtime::builder().backend(backend).workers(workers).thread_name(&name).build().unwrap();
                let runtime = Arc::new(runtime);
                let links = runtime.block_on(chain(Arc::clone(&runtime), 200)).unwrap();
                assert_eq!(links, 200);
                // The monitor is one of them.
                assert!(threads_named(&name).len() <= workers + MOST_SUBSTITUTES + 1);
            });
        }
    });
}

#[test]
fn d66_runtimes_that_block_on_each_other_serve_each_others_tasks() {
    on_each_backend(|backend| {
        for (of_first, of_second) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)] {
            in_time(&format!("{of_first} and {of_second} workers, {backend}"), move || {
                let (first, second) = (runtime(backend, of_first), runtime(backend, of_second));
                let (inner, back) = (Arc::clone(&second), Arc::clone(&first));
                let task = first.spawn(async move {
                    inner.block_on(async {
                        // A task of the runtime whose only thread may be this one.
                        let task = back.spawn(async {
                            time::sleep(ms(2)).await;
                            let (a, b) = pair().await;
                            b.write_all(b"abc").await.unwrap();
                            a.read(&mut [0; 8]).await.unwrap()
                        });
                        let own = spawn(async { 4 });
                        let sum = task.await.unwrap() + own.await.unwrap();
                        let third = back.spawn(async { 5 });
                        // And the first one again, inside the second.
                        sum + back.block_on(third).unwrap()
                    })
                });
                assert_eq!(first.block_on(task).unwrap(), 12);
            });
        }
    });
}

/// The innermost call gives the thread the timers and sockets of the first runtime back, and then the thread waits in the second.
#[test]
fn d66_timers_and_sockets_of_a_runtime_end_after_its_nested_call_in_another_runtime() {
    on_each_backend(|backend| {
        for (of_first, of_second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            in_time(&format!("{of_first} and {of_second} workers, {backend}"), move || {
                let (first, second) = (runtime(backend, of_first), runtime(backend, of_second));
                let (inner, back) = (Arc::clone(&second), Arc::clone(&first));
                let task = first.spawn(async move {
                    let sleep = time::sleep(LONG);
                    let (reads, writes) = pair().await;
                    inner.block_on(async {
                        let (mut sleep, mut buffer) = (pin!(sleep), [0; 8]);
                        let mut read = pin!(reads.read(&mut buffer));
                        // The thread waits here, and leaves the first runtime's timers and sockets to others.
                        time::sleep(ms(1)).await;
                        back.block_on(async {
                            // Armed here, and not yet due: a busy machine may keep this thread for longer than 20 ms.
                            loop {
                                sleep.as_mut().reset(time::Instant::now() + ms(20));
                                if poll_once(sleep.as_mut()).await.is_pending() {
                                    break;
                                }
                            }
                            assert!(poll_once(read.as_mut()).await.is_pending());
                            time::sleep(ms(1)).await;
                        });
                        sleep.await;
                        let writes = thread::spawn(move || {
                            thread::sleep(ms(5));
                            Runtime::builder().workers(0).build().unwrap().block_on(writes.write_all(b"abc"))
                        });
                        assert_eq!(read.await.unwrap(), 3);
                        writes.join().unwrap().unwrap();
                    });
                });
                first.block_on(task).unwrap();
            });
        }
    });
}

#[test]
fn d66_a_block_on_in_a_waker_serves_tasks_on_one_worker() {
    on_each_size("block_on in a waker", |runtime| {
        let (done, inner) = (Flag::default(), Arc::clone(runtime));
        let raised = done.clone();
        let calls = move || {
            let answer = inner.block_on(async { spawn(async { 5 }).await.unwrap() });
            assert_eq!(answer, 5);
            raised.raise();
        };
        let waker = Waker::from(Arc::new(Blocks(Mutex::new(Some(calls)))));
        runtime.block_on(async move {
            let waits = spawn(async move {
                let mut sleep = Box::pin(time::sleep(ms(1)));
                assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                drop(waker);
                std::future::pending::<()>().await;
            });
            soon("the waker's call", done).await;
            waits.abort();
            assert!(waits.await.is_err());
        });
    });
}

#[test]
fn d66_a_block_on_in_a_destructor_serves_tasks() {
    on_each_size("block_on in a destructor", |runtime| {
        let count = Arc::new(AtomicUsize::new(0));
        let held = || {
            let (inner, count) = (Arc::clone(runtime), Arc::clone(&count));
            OnDrop(move || {
                let handle = inner.handle().clone();
                // Cancelled if the runtime is ending; in no case does it hang.
                let _ = inner.block_on(async { handle.spawn(give_way()).await });
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        // Dropped with a task that ends, with one that is aborted, and with the result of a task.
        let (ends, aborted, returned) = (held(), held(), held());
        runtime.block_on(async {
            spawn(async move { drop(ends) }).await.unwrap();
            let waits = spawn(async move {
                let _held = aborted;
                std::future::pending::<()>().await;
            });
            give_way().await;
            waits.abort();
            assert!(waits.await.is_err());
            spawn(async move { returned }).await.unwrap();
        });
        eventually("all three have been dropped", || count.load(Ordering::SeqCst) == 3);
    });
}

#[test]
fn d66_a_runtime_is_dropped_inside_its_own_task_and_inside_another_ones_block_on() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            in_time(&format!("dropped inside, {workers} workers, {backend}"), move || {
                // Inside the `block_on` of another runtime, while its own tasks block on tasks of that other.
                let outer = runtime(backend, workers);
                outer.block_on(async {
                    let inner = runtime(backend, 1);
                    let back = Arc::clone(&outer);
                    let (begins, has_begun) = std::sync::mpsc::channel();
                    let task = inner.spawn(async move {
                        let theirs = back.spawn(async {
                            time::sleep(ms(20)).await;
                            3
                        });
                        begins.send(()).unwrap();
                        back.block_on(theirs).unwrap()
                    });
                    has_begun.recv_timeout(LONG).unwrap();
                    drop(inner);
                    assert_eq!(task.await.unwrap(), 3);
                });
                // Inside its own task.
                if workers > 0 {
                    let runtime = runtime(backend, workers);
                    let (inside, (sends, ended)) = (Arc::clone(&runtime), std::sync::mpsc::channel());
                    let handle = runtime.handle().clone();
                    handle.spawn(async move {
                        inside.block_on(give_way());
                        eventually("this is the last reference", || Arc::strong_count(&inside) == 1);
                        drop(inside);
                        sends.send(()).unwrap();
                    });
                    drop(runtime);
                    ended.recv_timeout(LONG).unwrap();
                }
            });
        }
    });
}

#[test]
fn d66_a_local_task_on_a_substitute_thread_is_not_lost() {
    on_each_size("local tasks while another task blocks", |runtime| {
        let inner = Arc::clone(runtime);
        let task = runtime.spawn(async move {
            let child = spawn(async {
                let local = spawn_local(async {
                    time::sleep(ms(5)).await;
                    give_way().await;
                    6
                });
                local.await.unwrap()
            });
            inner.block_on(child).unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 6);
    });
}

#[test]
fn d66_an_event_loop_whose_handler_blocks_on_a_runtime_notices_its_stop() {
    on_each_backend(|backend| {
        in_time("a handler that blocks on a runtime", move || {
            let (events, other) = (EventLoop::with_backend(backend).unwrap(), runtime(backend, 0));
            let (stops, runs) = (events.clone(), events.clone());
            let guard = events.work_guard();
            let stop = thread::spawn(move || {
                thread::sleep(ms(10));
                stops.stop();
            });
            let task = events.spawn(async { time::sleep(ms(1)).await });
            events.post(move || other.block_on(time::sleep(ms(30))));
            runs.run();
            stop.join().unwrap();
            events.restart();
            drop(guard);
            events.run();
            assert!(task.is_finished());
        });
    });
}

#[test]
fn d67_a_future_that_is_ready_at_once_starts_no_thread() {
    on_each_backend(|backend| {
        in_time("no thread without need", move || {
            // A name of its own: the kernel may still list threads of the runtime before.
            let name = format!("{backend:?}67").to_lowercase();
            let runtime = Runtime::builder().backend(backend).workers(1).thread_name(&name).build().unwrap();
            let runtime = Arc::new(runtime);
            // The monitor and the worker, once they have their names.
            eventually("its threads have begun", || threads_named(&name).len() == 2);
            let inner = Arc::clone(&runtime);
            let task = runtime.spawn(async move {
                for _ in 0..1000 {
                    inner.block_on(async {});
                    inner.block_on(poll_fn(|_| Poll::Ready(())));
                }
                inner.block_on(time::sleep(ms(1)));
                threads_named(&name).len()
            });
            assert_eq!(runtime.block_on(task).unwrap(), 2);
        });
    });
}
