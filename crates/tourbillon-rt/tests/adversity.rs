//! What the system may do to a process: refuse io_uring, run out of descriptors, interrupt every call. Each is done to a child process
//! that runs one test of this file; the machine's own settings stay as they are.

mod backends;

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use backends::{kind, ms, pair};
use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::{Backend, BuildError, EventLoop, Runtime, spawn, time};

const CHILD: &str = "TOURBILLON_TEST_CHILD";

/// Runs the test of that name in a process of its own; `true` in there.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, "1").env_remove("TOURBILLON_BACKEND");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the child says:\n{said}");
    said.lines().filter(|line| line.contains("NOT TESTED")).for_each(|line| println!("{line}"));
    false
}

/// Makes the kernel answer each `io_uring_setup` of this process with an error, as the filters of containers do.
fn refuse_io_uring(error: i32) {
    let statement = |code: u32, k: u32, if_true: u8, if_false: u8| libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k,
    };
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program is a valid filter and outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// So many descriptors, and no more.
fn limit_descriptors(to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: it is a valid limit.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0) };
}

/// From now on the process is interrupted two thousand times a second, some thread of it.
fn interrupt_all_the_time() {
    extern "C" fn nothing(_: libc::c_int) {}
    let often = libc::timeval { tv_sec: 0, tv_usec: 500 };
    let timer = libc::itimerval { it_interval: often, it_value: often };
    // SAFETY: the handler does nothing, and the structures are valid. Without `SA_RESTART` system calls are not taken up again.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
}

/// Some of everything.
async fn use_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 64];
        loop {
            match stream.read(&mut buffer).timeout(Duration::from_secs(20)).await.unwrap() {
                0 => return,
                count => stream.write_all(&buffer[..count]).await.unwrap(),
            }
        }
    });
    let stream = TcpStream::connect(address).timeout(Duration::from_secs(20)).await.unwrap();
    for round in 0..200_u8 {
        stream.write_all(&[round; 64]).await.unwrap();
        let mut answer = [0; 64];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [round; 64]);
        if round % 10 == 0 {
            let start = std::time::Instant::now();
            time::sleep(ms(1)).await;
            assert!(start.elapsed() >= ms(1));
            assert_eq!(kind(stream.read(&mut answer).timeout(ms(1)).await), ErrorKind::TimedOut);
        }
    }
    drop(stream);
    server.await.unwrap();
}

fn use_each_backend() {
    for backend in [Backend::Epoll, Backend::Uring] {
        match Runtime::builder().backend(backend).workers(2).build() {
            Ok(runtime) => {
                runtime.block_on(use_it());
                runtime.block_on(runtime.spawn(use_it())).unwrap();
            }
            Err(error) => println!("NOT TESTED ON {backend}: {error}"),
        }
    }
}

#[test]
fn where_io_uring_is_refused_auto_takes_epoll_and_who_insists_is_told_why() {
    if !is_child("where_io_uring_is_refused_auto_takes_epoll_and_who_insists_is_told_why", &[]) {
        return;
    }
    refuse_io_uring(libc::EPERM);
    let runtime = Runtime::new().unwrap();
    assert_eq!(runtime.backend(), Backend::Epoll);
    runtime.block_on(use_it());
    let error = Runtime::builder().backend(Backend::Uring).build().unwrap_err();
    let BuildError::Refused { backend: Backend::Uring, why } = &error else { panic!("{error}") };
    assert_eq!(why.raw_os_error(), Some(libc::EPERM));
    assert!(error.to_string().starts_with("the back end io_uring cannot be had: "), "{error}");
    assert!(EventLoop::with_backend(Backend::Uring).is_err());
    assert_eq!(EventLoop::new().unwrap().backend(), Backend::Epoll);
}

#[test]
fn a_kernel_without_io_uring_is_like_one_that_refuses_it() {
    if !is_child("a_kernel_without_io_uring_is_like_one_that_refuses_it", &[]) {
        return;
    }
    refuse_io_uring(libc::ENOSYS);
    assert_eq!(Runtime::new().unwrap().backend(), Backend::Epoll);
    assert!(Runtime::builder().backend(Backend::Uring).build().is_err());
}

#[test]
fn the_environment_overrides_the_builder() {
    let test = "the_environment_overrides_the_builder";
    if !is_child(test, &[("TOURBILLON_BACKEND", "epoll"), ("EXPECT", "epoll")]) {
        let _ = is_child(test, &[("TOURBILLON_BACKEND", "kqueue"), ("EXPECT", "error")]);
        return;
    }
    let built = Runtime::builder().backend(Backend::Uring).workers(1).build();
    match std::env::var("EXPECT").unwrap().as_str() {
        "epoll" => assert_eq!(built.unwrap().backend(), Backend::Epoll),
        _ => assert!(matches!(built.unwrap_err(), BuildError::Variable(name) if name == "kqueue")),
    }
}

#[test]
fn out_of_descriptors_an_accept_says_so_and_the_connection_waits() {
    if !is_child("out_of_descriptors_an_accept_says_so_and_the_connection_waits", &[]) {
        return;
    }
    limit_descriptors(64);
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(runtime) = Runtime::builder().backend(backend).workers(1).build() else {
            println!("NOT TESTED ON {backend}");
            continue;
        };
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut files = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                files.push(file);
            }
            for _ in 0..3 {
                assert_eq!(listener.accept().await.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            }
            assert_eq!(
                TcpStream::connect(listener.local_addr().unwrap()).await.unwrap_err().raw_os_error(),
                Some(libc::EMFILE)
            );
            assert!(TcpListener::bind("127.0.0.1:0").is_err());
            assert!(matches!(
                Runtime::builder().backend(backend).build(),
                Err(BuildError::Refused { .. } | BuildError::Engine(_))
            ));
            files.clear();
            let (server, _) = listener.accept().await.unwrap();
            server.write_all(b"welcome").await.unwrap();
            client.read_exact(&mut [0; 7]).await.unwrap();
        });
    }
}

#[test]
fn out_of_descriptors_block_on_still_waits_for_tasks_and_timers() {
    if !is_child("out_of_descriptors_block_on_still_waits_for_tasks_and_timers", &[]) {
        return;
    }
    limit_descriptors(64);
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(runtime) = Runtime::builder().backend(backend).workers(1).build() else {
            println!("NOT TESTED ON {backend}");
            continue;
        };
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        let answer = runtime.block_on(async {
            time::sleep(ms(1)).await;
            spawn(async { 5 }).await.unwrap()
        });
        assert_eq!(answer, 5);
    }
}

#[test]
fn interrupted_system_calls_disturb_nobody() {
    if !is_child("interrupted_system_calls_disturb_nobody", &[]) {
        return;
    }
    interrupt_all_the_time();
    use_each_backend();
}

#[test]
fn a_peer_that_never_reads_makes_writes_wait_and_time_out_and_then_go_on() {
    if !is_child("a_peer_that_never_reads_makes_writes_wait_and_time_out_and_then_go_on", &[]) {
        return;
    }
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(runtime) = Runtime::builder().backend(backend).workers(1).build() else {
            println!("NOT TESTED ON {backend}");
            continue;
        };
        runtime.block_on(async {
            let (a, b) = pair().await;
            let mut sent = 0;
            let error = loop {
                match a.write(&[1; 65536]).timeout(ms(10)).await {
                    Ok(count) => sent += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let writer = spawn(async move {
                a.write_all(&[1; 65536]).await.unwrap();
                drop(a);
            });
            let (mut received, mut buffer) = (0, vec![0; 65536]);
            loop {
                match b.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => received += count,
                }
            }
            writer.await.unwrap();
            assert_eq!(received, sent + 65536);
        });
    }
}
