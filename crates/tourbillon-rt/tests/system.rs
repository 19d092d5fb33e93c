//! Faults of the system: it refuses io_uring, has no descriptors, interrupts every call, copies the process. Each is done to a child that
//! runs one test of this file; the machine's own settings stay as they are.

mod support;

use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{
    bytes_from, expect_bytes, in_a_child, in_time, is_a_child, kind, ms, on_each_backend, pair, sleeps_and_cpu, soon,
    threads_named, try_refuse, until, watched_by_the_kernel,
};
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::{Backend, BuildError, EventLoop, Runtime, spawn, time};

const LOCAL: &str = "127.0.0.1:0";

/// Uses sockets, tasks and timers, whatever the system has refused.
async fn everything() {
    let (a, b) = pair().await;
    let writes = spawn(async move {
        time::sleep(ms(1)).await;
        b.write_all(&bytes_from(0, 200_000)).await.unwrap();
    });
    let mut received = vec![0; 200_000];
    soon("a transfer", a.read_exact(&mut received)).await.unwrap();
    expect_bytes(&received, 0);
    writes.await.unwrap();
    assert_eq!(kind(a.read_exact(&mut [0; 1]).timeout(ms(1000)).await), ErrorKind::UnexpectedEof);
}

// --- io_uring that is refused ---

#[test]
fn where_io_uring_is_forbidden_auto_takes_epoll_and_uring_is_an_error_that_says_why() {
    in_a_child("where_io_uring_is_forbidden_auto_takes_epoll_and_uring_is_an_error_that_says_why", &[], || {
        // As containers do, and as kernels without io_uring do.
        for errno in [libc::EPERM, libc::ENOSYS] {
            let refused = thread::spawn(move || {
                if !try_refuse(&[libc::SYS_io_uring_setup], errno) {
                    return;
                }
                assert_eq!(Runtime::new().unwrap().backend(), Backend::Epoll);
                let runtime = Runtime::builder().workers(2).build().unwrap();
                assert_eq!(runtime.backend(), Backend::Epoll);
                runtime.block_on(everything());
                runtime.block_on(runtime.spawn(everything())).unwrap();
                assert_eq!(EventLoop::new().unwrap().backend(), Backend::Epoll);
                let error = Runtime::builder().backend(Backend::Uring).build().unwrap_err();
                let BuildError::Refused { backend: Backend::Uring, why } = &error else { panic!("{error:?}") };
                assert_eq!(why.raw_os_error(), Some(errno), "{why}");
                assert!(error.to_string().starts_with("the back end io_uring is not available: "), "{error}");
                // The threads of an event loop are not workers.
                assert_eq!(EventLoop::with_backend(Backend::Uring).unwrap().backend(), Backend::Epoll);
            });
            refused.join().unwrap();
        }
    });
}

#[test]
fn where_only_a_part_of_io_uring_is_allowed_auto_takes_epoll() {
    in_a_child("where_only_a_part_of_io_uring_is_allowed_auto_takes_epoll", &[], || {
        for call in [libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            let refused = thread::spawn(move || {
                if !try_refuse(&[call], libc::EPERM) {
                    return;
                }
                let runtime = Runtime::builder().workers(1).build().unwrap();
                assert_eq!(runtime.backend(), Backend::Epoll);
                runtime.block_on(everything());
                assert!(Runtime::builder().backend(Backend::Uring).build().is_err());
            });
            refused.join().unwrap();
        }
    });
}

#[test]
fn the_environment_variable_chooses_the_back_end_whatever_the_builder_says() {
    const THIS: &str = "the_environment_variable_chooses_the_back_end_whatever_the_builder_says";
    for value in ["epoll", "EPOLL", "uring", "io_uring", "auto", "kqueue", ""] {
        in_a_child(THIS, &[("TOURBILLON_BACKEND", value)], || {
            let value = std::env::var("TOURBILLON_BACKEND").unwrap();
            for asked in [Backend::Auto, Backend::Epoll, Backend::Uring] {
                match (value.as_str(), Runtime::builder().backend(asked).workers(1).build()) {
                    ("epoll" | "EPOLL", built) => assert_eq!(built.unwrap().backend(), Backend::Epoll),
                    ("uring" | "io_uring", Ok(runtime)) => assert_eq!(runtime.backend(), Backend::Uring),
                    ("uring" | "io_uring", Err(BuildError::Refused { backend: Backend::Uring, .. })) => {}
                    ("auto", built) => built.unwrap().block_on(everything()),
                    (_, Err(BuildError::Variable(name))) => assert_eq!(name, value),
                    (_, other) => panic!("{value:?}: {other:?}"),
                }
            }
        });
        if is_a_child() {
            return;
        }
    }
}

// --- no descriptors ---

/// Takes all descriptors that the process may have, except `left`.
fn take_all_descriptors_but(left: usize) -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: the pointer is to a local value, which the call reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        // Threads of an earlier runtime may still free some.
        thread::sleep(ms(50));
    }
    taken.truncate(taken.len() - left);
    taken
}

fn is_out_of_descriptors<T>(result: std::io::Result<T>) -> bool {
    result.err().expect("there are none left").raw_os_error() == Some(libc::EMFILE)
}

#[test]
fn out_of_descriptors_accept_and_connect_are_errors_nothing_spins_and_all_goes_on_afterwards() {
    const THIS: &str = "out_of_descriptors_accept_and_connect_are_errors_nothing_spins_and_all_goes_on_afterwards";
    in_a_child(THIS, &[], || {
        on_each_backend(|backend| {
            let runtime = Runtime::builder().backend(backend).workers(1).thread_name("emfile").build().unwrap();
            let listener = TcpListener::bind(LOCAL).unwrap();
            let address = listener.local_addr().unwrap();
            let mut taken = take_all_descriptors_but(1);
            // Not by `block_on` of the runtime, which would try to get some for itself.
            let (listener, client) = futures_lite::future::block_on(runtime.spawn(async move {
                // The last descriptor is the client's: the kernel connects it, and no task can accept it.
                let client = TcpStream::connect(address).await.unwrap();
                assert!(is_out_of_descriptors(TcpStream::connect(address).await));
                for _ in 0..3 {
                    assert!(is_out_of_descriptors(listener.accept().await));
                    assert!(is_out_of_descriptors(listener.accept().timeout(ms(1)).await));
                }
                assert!(is_out_of_descriptors(UdpSocket::bind(LOCAL)));
                assert!(is_out_of_descriptors(TcpListener::bind(LOCAL)));
                (listener, client)
            }))
            .unwrap();
            assert!(Runtime::builder().backend(backend).build().is_err());
            assert!(Runtime::new().is_err());
            // A connection waits that no task can accept: that is no reason to wake up. (The check itself needs some descriptors.)
            taken.truncate(taken.len() - 8);
            thread::sleep(ms(50));
            let (sleeps, cpu) = sleeps_and_cpu("emfile");
            thread::sleep(ms(200));
            let (sleeps_later, cpu_later) = sleeps_and_cpu("emfile");
            assert!(sleeps_later - sleeps < 5, "it woke up {} times", sleeps_later - sleeps);
            assert!(cpu_later - cpu < ms(20), "it has run for {:?}", cpu_later - cpu);
            drop(taken);
            let accepted = runtime.spawn(async move {
                let (server, _) = soon("accept", listener.accept()).await.unwrap();
                server.write_all(b"late").await.unwrap();
                soon("read", client.read_exact(&mut [0; 4])).await.unwrap();
                everything().await;
            });
            runtime.block_on(accepted).unwrap();
        });
    });
}

#[test]
fn out_of_descriptors_block_on_still_runs_tasks_and_timers() {
    in_a_child("out_of_descriptors_block_on_still_runs_tasks_and_timers", &[], || {
        on_each_backend(|backend| {
            for workers in [0, 1] {
                let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
                let taken = take_all_descriptors_but(0);
                let runtime = in_time("block_on without descriptors", move || {
                    let sum = runtime.block_on(async {
                        time::sleep(ms(1)).await;
                        let task = spawn(async {
                            time::sleep(ms(1)).await;
                            5
                        });
                        task.await.unwrap()
                    });
                    assert_eq!(sum, 5);
                    runtime
                });
                drop(taken);
                runtime.block_on(everything());
            }
        });
    });
}

// --- signals ---

extern "C" fn on_signal(_: libc::c_int) {}

/// Installs a handler after which system calls are not restarted.
fn handle_signals() {
    // SAFETY: all zero is a valid value of a plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // SAFETY: the handler does nothing, and may be called at any time.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
}

#[test]
fn signals_that_interrupt_every_system_call_lose_nothing_and_make_nothing_early() {
    in_a_child("signals_that_interrupt_every_system_call_lose_nothing_and_make_nothing_early", &[], || {
        handle_signals();
        on_each_backend(|backend| {
            let runtime = Runtime::builder().backend(backend).workers(2).thread_name("storm").build().unwrap();
            let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let storm = {
                let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
                thread::spawn(move || {
                    let ids = threads_named("");
                    while !stop.load(Ordering::SeqCst) {
                        for id in &ids {
                            // SAFETY: numbers. A thread that has ended is an error, which does not matter.
                            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), *id, libc::SIGUSR1) };
                            sent.fetch_add(1, Ordering::SeqCst);
                        }
                        thread::sleep(Duration::from_micros(100));
                    }
                })
            };
            let tasks: Vec<_> = (0..30_u64)
                .map(|number| {
                    runtime.spawn(async move {
                        for _ in 0..3 {
                            everything().await;
                            let (start, wanted) = (Instant::now(), Duration::from_micros(500 + 100 * number));
                            time::sleep(wanted).await;
                            assert!(start.elapsed() >= wanted, "early");
                            let (a, _b) = pair().await;
                            assert_eq!(kind(a.read(&mut [0; 1]).timeout(wanted).await), ErrorKind::TimedOut);
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    soon("a task in the storm", task).await.unwrap();
                }
            });
            stop.store(true, Ordering::SeqCst);
            storm.join().unwrap();
            assert!(sent.load(Ordering::SeqCst) > 100);
        });
    });
}

// --- a copy of the process ---

#[test]
fn a_process_that_forks_goes_on_undisturbed_by_a_child_that_does_not_use_the_runtime() {
    in_a_child("a_process_that_forks_goes_on_undisturbed_by_a_child_that_does_not_use_the_runtime", &[], || {
        on_each_backend(|backend| {
            for workers in [0, 2] {
                let runtime =
                    Runtime::builder().backend(backend).workers(workers).thread_name("forks").build().unwrap();
                in_time("a process that forks", move || runtime.block_on(fork_and_go_on()));
            }
        });
    });
}

/// Checks that earlier sockets and timers go on, that new ones work, and that a socket which is closed here is unregistered though the
/// child has a copy.
async fn fork_and_go_on() {
    let (a, b) = pair().await;
    let (start, wanted) = (Instant::now(), ms(30));
    let waits = spawn(async move {
        let mut buffer = [0; 4];
        soon("a read from before", a.read_exact(&mut buffer)).await.unwrap();
        a
    });
    let sleeps = spawn(async move { time::sleep(wanted).await });
    time::sleep(ms(1)).await;
    // SAFETY: the child calls only functions that a signal handler may call.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        loop {
            // SAFETY: no arguments. The child waits until it is killed.
            unsafe { libc::pause() };
        }
    }
    everything().await;
    b.write_all(b"four").await.unwrap();
    let a = waits.await.unwrap();
    sleeps.await.unwrap();
    assert!(start.elapsed() >= wanted, "early");
    // The child keeps the connection open; writes into it do not concern this process any more.
    assert_eq!(kind(a.read(&mut [0; 1]).timeout(ms(1)).await), ErrorKind::TimedOut);
    let watched = watched_by_the_kernel();
    drop(a);
    until("it is not watched any more", || watched_by_the_kernel() < watched).await;
    // SAFETY: numbers and a null pointer, which is allowed. The child has not been waited for.
    let killed = unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, std::ptr::null_mut(), 0)) };
    assert_eq!(killed, (0, child));
    assert_eq!(soon("the end, now that all copies are closed", b.read(&mut [0; 1])).await.unwrap(), 0);
    everything().await;
}

#[test]
fn a_child_that_fails_is_a_failure_here() {
    // A child that fails must fail its test: otherwise none of the tests above would check anything.
    let failed = std::panic::catch_unwind(|| {
        in_a_child("a_child_that_fails_is_a_failure_here", &[], || panic!("as it should"));
    });
    if is_a_child() {
        return failed.unwrap();
    }
    assert!(failed.is_err());
    assert!(std::panic::catch_unwind(|| in_a_child("there_is_no_such_test", &[], || ())).is_err());
}
