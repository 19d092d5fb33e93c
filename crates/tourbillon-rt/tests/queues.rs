//! Full queues between the reactor and the kernel (D7): more sockets at once than a ring has room for, in either direction.

mod support;

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use support::{eventually, in_a_child, in_time, until, watched_by_the_kernel};
use support::{kind, ms, on_each_backend, soon};
use tourbillon_rt::net::UdpSocket;
use tourbillon_rt::time::Instant;
use tourbillon_rt::{Runtime, spawn, time};

const LOCAL: &str = "127.0.0.1:0";

fn sockets(count: usize) -> Vec<Arc<UdpSocket>> {
    (0..count).map(|_| Arc::new(UdpSocket::bind(LOCAL).unwrap())).collect()
}

/// Registers all sockets at once, and leaves no task waiting for them.
async fn register(sockets: &[Arc<UdpSocket>]) {
    std::future::poll_fn(|context| {
        for socket in sockets {
            assert!(pin!(socket.recv(&mut [0; 8])).poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs a test with a worker, and with a thread inside `block_on`, on each back end.
fn on_each_ring(test: impl Fn(Runtime) + Copy + Send + 'static) {
    on_each_backend(|backend| {
        for workers in [0, 1] {
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            in_time("a full queue", move || test(runtime));
        }
    });
}

#[test]
fn d7_more_sockets_than_a_completion_queue_holds_become_ready_in_one_iteration_and_all_are_served() {
    /// More than the 4096 that a ring has room for.
    const MANY: usize = 5000;

    async fn test() {
        // Each socket is ready to write as soon as it is registered: a completion. All of them come before a thread looks.
        let sockets = sockets(MANY);
        register(&sockets).await;
        let received = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = sockets
            .iter()
            .map(|socket| {
                let (socket, received) = (Arc::clone(socket), Arc::clone(&received));
                spawn(async move {
                    let mut buffer = [0; 8];
                    for _ in 0..3 {
                        assert_eq!(soon("a datagram", socket.recv(&mut buffer)).await.unwrap(), 1);
                        received.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let sender = std::net::UdpSocket::bind(LOCAL).unwrap();
        for round in 1..=3 {
            // Blocking, so that again all become ready before a thread looks.
            time::sleep(ms(1)).await;
            for socket in &sockets {
                sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            }
            until("all have received", || received.load(Ordering::SeqCst) == round * MANY).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    const THIS: &str = "d7_more_sockets_than_a_completion_queue_holds_become_ready_in_one_iteration_and_all_are_served";
    in_a_child(THIS, &[], || {
        on_each_ring(|runtime| runtime.block_on(async { spawn(test()).await.unwrap() }));
    });
}

#[test]
fn d7_d5_d6_many_times_a_submission_queue_is_registered_and_removed_at_once_and_limits_and_results_are_kept() {
    /// Many times the 64 entries that the kernel takes at a time.
    const MANY: usize = 600;

    /// With `blocks`, the thread is blocked until all limits have passed, so that another has to serve its sockets.
    async fn test(blocks: bool) {
        let (removed, left, waiting) = (sockets(MANY), sockets(MANY), sockets(MANY));
        let (sender, deadline) = (std::net::UdpSocket::bind(LOCAL).unwrap(), Instant::now() + ms(400));
        let tasks: Vec<_> = waiting
            .iter()
            .enumerate()
            .map(|(number, socket)| {
                let socket = Arc::clone(socket);
                spawn(async move { (number, socket.recv(&mut [0; 8]).deadline(deadline).await) })
            })
            .collect();
        time::sleep(ms(1)).await;
        // At once, on this thread and on another.
        register(&left).await;
        register(&removed).await;
        let elsewhere = thread::spawn(move || drop(left));
        drop(removed);
        for socket in waiting.iter().step_by(3) {
            sender.send_to(b"in time", socket.local_addr().unwrap()).unwrap();
        }
        // On a machine so busy that it is not in time, the tasks that wait may time out.
        let is_in_time = Instant::now() < deadline;
        elsewhere.join().unwrap();
        if blocks {
            thread::sleep(deadline.saturating_duration_since(Instant::now()) + ms(5));
        }
        for task in tasks {
            let (number, received) = task.await.unwrap();
            match received {
                Ok(count) => assert_eq!((number % 3, count), (0, 7), "nothing was sent to it"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    assert!(number % 3 != 0 || !is_in_time, "what came first stays");
                    assert!(Instant::now() >= deadline, "early");
                }
            }
        }
        // They can be used as before.
        for socket in &waiting {
            assert_eq!(kind(socket.recv(&mut [0; 8]).timeout(Duration::ZERO).await), ErrorKind::TimedOut);
            sender.send_to(b"once more", socket.local_addr().unwrap()).unwrap();
            assert_eq!(soon("a datagram", socket.recv(&mut [0; 16])).await.unwrap(), 9);
        }
    }

    const THIS: &str =
        "d7_d5_d6_many_times_a_submission_queue_is_registered_and_removed_at_once_and_limits_and_results_are_kept";
    in_a_child(THIS, &[], || {
        on_each_ring(|runtime| {
            for blocks in [false, true] {
                runtime.block_on(async { spawn(test(blocks)).await.unwrap() });
            }
            // The back end's own descriptors are still watched.
            eventually("the kernel watches none of them", || watched_by_the_kernel() <= 8);
        });
    });
}
