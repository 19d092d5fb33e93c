//! A filter that makes the kernel refuse a system call. The tool `refuse-syscalls` uses this file, too.

/// Makes a system call fail with this error, for this thread and those that it starts.
///
/// # Errors
/// Where the kernel has no filters, or an emulator does not pass them on.
pub(crate) fn refuse(call: libc::c_long, errno: i32) -> std::io::Result<()> {
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
    if installed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
