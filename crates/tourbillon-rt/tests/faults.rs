//! What a process can run into: no io_uring, no descriptors, signals, a completion queue that is full. Each in a process of its own.

mod backends;
mod harness;

use std::fs::File;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use backends::{kind, ms, on_each_backend, pair};
use harness::{bytes_from, expect_bytes, in_a_child, in_time, sleeps_and_cpu, soon, threads_named};
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::{Backend, BuildError, EventLoop, Runtime, spawn, time};

const LOCAL: &str = "127.0.0.1:0";

/// What a runtime has to do, whatever has been refused.
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

/// From now on, for this thread and those that it starts, this system call gives this error.
fn refuse(call: libc::c_long, errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let if_equal =
        |k: u32| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: 1, k };
    let mut filter = [
        // The number of the call is what `seccomp_data` begins with.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        if_equal(call as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both take numbers, and a program that outlives the call.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn where_io_uring_is_forbidden_auto_takes_epoll_and_uring_is_an_error_that_says_why() {
    in_a_child("where_io_uring_is_forbidden_auto_takes_epoll_and_uring_is_an_error_that_says_why", &[], || {
        // As containers do, and as kernels do that do not have it.
        for errno in [libc::EPERM, libc::ENOSYS] {
            let refused = thread::spawn(move || {
                refuse(libc::SYS_io_uring_setup, errno);
                let runtime = Runtime::builder().workers(2).build().unwrap();
                assert_eq!(runtime.backend(), Backend::Epoll);
                runtime.block_on(everything());
                runtime.block_on(runtime.spawn(everything())).unwrap();
                assert_eq!(EventLoop::new().unwrap().backend(), Backend::Epoll);
                match Runtime::builder().backend(Backend::Uring).build() {
                    Err(BuildError::Refused { backend: Backend::Uring, why }) => {
                        assert_eq!(why.raw_os_error(), Some(errno), "{why}");
                    }
                    other => panic!("{other:?}"),
                }
                let error = EventLoop::with_backend(Backend::Uring).unwrap_err();
                assert!(error.to_string().contains("io_uring"), "{error}");
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
                refuse(call, libc::EPERM);
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
fn where_io_uring_is_forbidden_after_the_runtime_was_built_block_on_still_has_sockets() {
    in_a_child("where_io_uring_is_forbidden_after_the_runtime_was_built_block_on_still_has_sockets", &[], || {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        refuse(libc::SYS_io_uring_setup, libc::EPERM);
        in_time("refused later", move || {
            runtime.block_on(everything());
            runtime.block_on(runtime.spawn(everything())).unwrap();
        });
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
        if std::env::var_os("TOURBILLON_TEST_CHILD").is_some() {
            return;
        }
    }
}

// --- no descriptors ---

/// Takes all descriptors that the process may have, but for so many.
fn take_all_descriptors_but(left: usize) -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: it reads a value that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        // Threads of a runtime before this one may give some back yet.
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
            // Not by `block_on` of the runtime, which would try to have some for itself.
            let (listener, client) = futures_lite::future::block_on(runtime.spawn(async move {
                // The last one is the client's: the kernel connects it, and nobody can accept it.
                let client = TcpStream::connect(address).await.unwrap();
                assert!(is_out_of_descriptors(TcpStream::connect(address).await));
                for _ in 0..3 {
                    assert!(is_out_of_descriptors(listener.accept().await));
                    assert!(is_out_of_descriptors(listener.accept().timeout(ms(1)).await));
                }
                assert!(is_out_of_descriptors(UdpSocket::bind(LOCAL)));
                (listener, client)
            }))
            .unwrap();
            assert!(Runtime::builder().backend(backend).build().is_err());
            assert!(Runtime::new().is_err());
            // A connection waits that nobody takes: that is no reason to wake up. (Who looks needs some descriptors.)
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

/// A handler after which system calls are not restarted.
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

// --- a completion queue that is full ---

#[test]
fn d7_more_sockets_in_one_turn_than_a_completion_queue_holds_are_all_watched() {
    in_a_child("d7_more_sockets_in_one_turn_than_a_completion_queue_holds_are_all_watched", &[], || {
        on_each_backend(|backend| {
            let runtime = Runtime::builder().backend(backend).workers(0).build().unwrap();
            in_time("a full completion queue", move || {
                runtime.block_on(async {
                    // Each is ready to write as soon as it is registered: a completion. Of all of them before anybody looks.
                    let sockets: Vec<Arc<UdpSocket>> =
                        (0..5000).map(|_| Arc::new(UdpSocket::bind(LOCAL).unwrap())).collect();
                    std::future::poll_fn(|context| {
                        for socket in &sockets {
                            assert!(pin!(socket.recv(&mut [0; 8])).poll(context).is_pending());
                        }
                        Poll::Ready(())
                    })
                    .await;
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
                        // Blocking, so that again all become ready before anybody looks.
                        time::sleep(ms(1)).await;
                        for socket in &sockets {
                            sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                        }
                        harness::until("all have received", || received.load(Ordering::SeqCst) == round * 5000).await;
                    }
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            });
        });
    });
}

#[test]
fn a_child_that_fails_is_a_failure_here() {
    // So that none of the tests above passes for want of a child.
    let failed = std::panic::catch_unwind(|| {
        in_a_child("a_child_that_fails_is_a_failure_here", &[], || panic!("as it should"));
    });
    if std::env::var_os("TOURBILLON_TEST_CHILD").is_some() {
        return failed.unwrap();
    }
    assert!(failed.is_err());
    assert!(std::panic::catch_unwind(|| in_a_child("there_is_no_such_test", &[], || ())).is_err());
}
