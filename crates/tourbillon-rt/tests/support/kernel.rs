//! Numbers that the kernel reports about this process, and a filter that makes it refuse system calls.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lets one test run at a time, for tests that count resources of the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of descriptors of the process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of sockets that the reactors of this process watch, as the kernel reports it.
pub(crate) fn watched_by_the_kernel() -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let info = format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy());
        if target.contains("eventpoll") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            count += info.lines().filter(|line| line.starts_with("tfd:")).count();
        } else if target.contains("io_uring") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let polls = info.lines().skip_while(|line| !line.starts_with("PollList")).skip(1);
            count += polls.take_while(|line| line.starts_with(' ')).count();
        }
    }
    count
}

/// Returns the ids of the threads of this process whose names begin so.
pub(crate) fn threads_named(name: &str) -> Vec<i32> {
    let mut ids = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.starts_with(name) {
            ids.push(task.file_name().to_string_lossy().parse().unwrap());
        }
    }
    ids
}

/// Returns how often these threads have gone to sleep, and how long they have run.
pub(crate) fn sleeps_and_cpu(name: &str) -> (u64, Duration) {
    let (mut sleeps, mut nanos) = (0, 0);
    for id in threads_named(name) {
        let read = |file| std::fs::read_to_string(format!("/proc/self/task/{id}/{file}")).unwrap_or_default();
        let status = read("status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += count.map_or(0, |count| count.trim().parse::<u64>().unwrap());
        nanos += read("schedstat").split(' ').next().and_then(|run| run.parse::<u64>().ok()).unwrap_or(0);
    }
    (sleeps, Duration::from_nanos(nanos))
}

/// Makes a system call fail with this error, for this thread and those that it starts.
pub(crate) fn refuse(call: libc::c_long, errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let if_equal =
        |k: u32| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: 1, k };
    let mut filter = [
        // `seccomp_data` begins with the number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        if_equal(call as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `prctl` gets numbers, and a pointer to a program that outlives the call.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}
