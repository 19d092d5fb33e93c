//! Nested runtimes where the system refuses threads or descriptors, and runtimes that are dropped by any thread at any moment, with the
//! descriptors and threads that are left over counted: each in a process of its own (D66, D67).

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::{
    Random, chain, descriptors, eventually, give_way, in_a_child, in_time, ms, on_each_backend, pair, try_refuse,
};
use tourbillon_rt::{Backend, Runtime, spawn, spawn_local, time};

fn runtime(backend: Backend, workers: usize) -> Arc<Runtime> {
    Arc::new(Runtime::builder().backend(backend).workers(workers).build().unwrap())
}

/// Makes nested calls on the only thread of the runtime that runs tasks: that thread has to serve all of them.
async fn nested_calls(runtime: Arc<Runtime>) {
    let links = chain(Arc::clone(&runtime), 8);
    assert_eq!(runtime.block_on(links).unwrap(), 8);
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..2000)
        .map(|_| {
            let (inner, done) = (Arc::clone(&runtime), Arc::clone(&done));
            runtime.spawn(async move {
                inner.block_on(time::sleep(std::time::Duration::from_micros(10)));
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 2000);
}

#[test]
fn d66_d67_nested_calls_end_though_the_system_refuses_threads() {
    in_a_child("d66_d67_nested_calls_end_though_the_system_refuses_threads", &[], || {
        on_each_backend(|backend| {
            for workers in [0, 1] {
                in_time("without more threads", move || {
                    let runtime = runtime(backend, workers);
                    let inner = Arc::clone(&runtime);
                    let task = runtime.spawn(async move {
                        // From now on, for this thread.
                        if !try_refuse(&[libc::SYS_clone3, libc::SYS_clone], libc::EAGAIN) {
                            return;
                        }
                        assert!(thread::Builder::new().spawn(|| ()).is_err());
                        nested_calls(inner).await;
                    });
                    runtime.block_on(task).unwrap();
                });
            }
        });
    });
}

#[test]
fn d66_d67_nested_calls_end_though_no_descriptor_is_left_for_another_reactor() {
    in_a_child("d66_d67_nested_calls_end_though_no_descriptor_is_left_for_another_reactor", &[], || {
        on_each_backend(|backend| {
            for workers in [0, 1] {
                in_time("without more descriptors", move || {
                    let runtime = runtime(backend, workers);
                    let inner = Arc::clone(&runtime);
                    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    // SAFETY: the pointer is to a local value, which the call fills in.
                    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
                    let task = runtime.spawn(async move {
                        // Zero, not the highest number in use: a new descriptor could get a free number below that.
                        let limit = libc::rlimit { rlim_cur: 0, ..before };
                        // SAFETY: the pointer is to a local value, which the call reads.
                        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
                        nested_calls(inner).await;
                    });
                    let ended = runtime.block_on(task);
                    // SAFETY: as above.
                    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) }, 0);
                    ended.unwrap();
                });
            }
        });
    });
}

#[derive(Clone)]
struct Sized {
    runtime: Arc<Runtime>,
    workers: usize,
}

/// Does something random with two runtimes, on the calling thread.
fn attack(random: &mut Random, mut ours: [Sized; 2], depth: u32) {
    let (inner, mut its) = ([ours[1].clone(), ours[0].clone()], random.split());
    let [Sized { runtime, workers }, Sized { runtime: other, .. }] = &ours;
    // A runtime without workers runs tasks only in its own `block_on`.
    let has_workers = *workers > 0;
    match random.below(9) {
        0 => runtime.block_on(time::sleep(std::time::Duration::from_micros(random.below(300)))),
        1 => runtime.block_on(give_way()),
        // A task that does something random as well; it may be cancelled when its runtime is dropped.
        2 if depth > 0 => _ = runtime.block_on(runtime.spawn(async move { attack(&mut its, inner, depth - 1) })),
        3 if depth > 0 && has_workers => {
            _ = other.block_on(runtime.spawn(async move { attack(&mut its, inner, depth - 1) }));
        }
        4 if depth > 0 => runtime.block_on(async move {
            let _ = spawn_local(async move { attack(&mut its, inner, depth - 1) }).await;
        }),
        5 if depth > 0 => runtime.block_on(async move { attack(&mut its, inner, depth - 1) }),
        // A task that is left behind.
        6 if depth > 0 && has_workers => drop(runtime.spawn(async move { attack(&mut its, inner, depth - 1) })),
        7 => runtime.block_on(async {
            let (a, b) = pair().await;
            let writes = spawn(async move {
                time::sleep(std::time::Duration::from_micros(100)).await;
                b.write_all(b"x").await
            });
            // A runtime that its own thread is dropping cancels the writer.
            let _ = a.read(&mut [0; 1]).timeout(ms(500)).await;
            drop(writes);
        }),
        _ => thread::yield_now(),
    }
    if random.one_in(2) {
        ours.reverse();
    }
    drop(ours);
}

#[test]
fn d66_d67_runtimes_that_nest_and_are_dropped_by_any_thread_leave_no_descriptor_and_no_thread() {
    let name = "d66_d67_runtimes_that_nest_and_are_dropped_by_any_thread_leave_no_descriptor_and_no_thread";
    in_a_child(name, &[], || {
        on_each_backend(|backend| {
            let mut random = Random::new();
            let mut round = || {
                let sizes = [random.below(3) as usize, random.below(3) as usize];
                let runtimes = sizes.map(|workers| Sized { runtime: runtime(backend, workers), workers });
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        let (mut its, ours) = (random.split(), runtimes.clone());
                        thread::spawn(move || {
                            for _ in 0..4 {
                                attack(&mut its, ours.clone(), 4);
                            }
                        })
                    })
                    .collect();
                drop(runtimes);
                threads
            };
            let mut run = |rounds| {
                for number in 0..rounds {
                    let threads = round();
                    in_time(&format!("round {number} of nested runtimes"), || {
                        threads.into_iter().for_each(|thread| thread.join().unwrap());
                    });
                }
            };
            let count = || (descriptors(), std::fs::read_dir("/proc/self/task").unwrap().count());
            // What the process keeps for good: its default engine, which a sleep outside of all runtimes starts, and the listener of `pair`.
            runtime(backend, 0).block_on(time::sleep(ms(1)));
            drop(runtime(backend, 0).block_on(pair()));
            run(3);
            // Threads of drivers and blocking pools, and substitutes that wait for a second call, end by themselves.
            thread::sleep(ms(1500));
            let (descriptors_before, threads_before) = count();
            run(25);
            eventually("all descriptors are closed", || count().0 <= descriptors_before);
            eventually("all threads have ended", || count().1 <= threads_before);
        });
    });
}

#[test]
fn d67_the_threads_that_nested_calls_have_started_end_with_the_runtime() {
    let name = "d67_the_threads_that_nested_calls_have_started_end_with_the_runtime";
    in_a_child(name, &[], || {
        on_each_backend(|backend| {
            for workers in [0, 1, 2] {
                let runtime =
                    Runtime::builder().backend(backend).workers(workers).thread_name("d67end").build().unwrap();
                let runtime = Arc::new(runtime);
                assert_eq!(runtime.block_on(chain(Arc::clone(&runtime), 30)).unwrap(), 30);
                eventually("no task holds the runtime", || Arc::strong_count(&runtime) == 1);
                drop(runtime);
                // They have been joined; the kernel may list a thread for a moment longer.
                eventually("all threads have ended", || support::threads_named("d67end").is_empty());
            }
        });
    });
}
