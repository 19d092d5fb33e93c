//! File descriptors and threads that are left over, counted: so one test, in a process of its own.

mod support;

use std::time::Duration;

use support::{eventually, ms, on_each_backend, pair, threads_named};
use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::{EventLoop, Runtime, spawn, time};

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Returns the number of reactors of the process, by their descriptors.
fn reactors() -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| ["eventpoll", "io_uring"].iter().any(|kind| link.to_string_lossy().contains(kind))).count()
}

#[test]
fn p7_runtimes_come_and_go_under_load_and_leave_no_descriptor_and_no_thread() {
    let work = |runtime: &Runtime| {
        let tasks: Vec<_> = (0..50_u64)
            .map(|number| {
                runtime.spawn(async move {
                    let (a, b) = pair().await;
                    let _ = a.read(&mut [0; 8]).timeout(Duration::from_micros(number * 50)).await;
                    spawn(async move { a.read(&mut [0; 8]).await.map(drop) });
                    spawn(async move { b.read(&mut [0; 8]).timeout(Duration::from_secs(60)).await.map(drop) });
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    drop(TcpStream::connect(listener.local_addr().unwrap()));
                    spawn(async move { listener.accept().await.map(drop) });
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    };
    on_each_backend(|backend| {
        let round = || {
            let runtime = Runtime::builder().backend(backend).workers(2).build().unwrap();
            work(&runtime);
            drop(runtime);
            drop(EventLoop::with_backend(backend).unwrap());
        };
        round();
        // Until the driver of the first has ended.
        std::thread::sleep(ms(100));
        let (descriptors, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
        (0..5).for_each(|_| round());
        // Drivers end by themselves, soon; and so do monitors if their runtime was dropped by one of its threads.
        eventually("descriptors are closed", || count("/proc/self/fd") <= descriptors);
        eventually("threads have ended", || count("/proc/self/task") <= threads);
        // A thread that has dropped a runtime has the descriptors of its reactors back. (Not those of the driver, which ends by itself.)
        let once = || {
            let runtime = Runtime::builder().backend(backend).workers(1).thread_name("short").build().unwrap();
            runtime.block_on(async {
                let (a, b) = pair().await;
                let reads = spawn(async move { a.read(&mut [0; 4]).await.unwrap() });
                time::sleep(ms(1)).await;
                b.write_all(b"x").await.unwrap();
                assert_eq!(reads.await.unwrap(), 1);
            });
        };
        once();
        std::thread::sleep(ms(100));
        let (descriptors, reactors_before) = (count("/proc/self/fd"), reactors());
        for _ in 0..250 {
            once();
            assert_eq!(reactors(), reactors_before);
        }
        eventually("all descriptors are closed", || count("/proc/self/fd") <= descriptors);
        eventually("all threads have ended", || threads_named("short").is_empty());
    });
}
