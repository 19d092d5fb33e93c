//! Threads and the process under Linux.

#[cfg(feature = "test-util")]
pub(crate) fn current_thread() -> Option<i32> {
    Some(rustix::thread::gettid().as_raw_nonzero().get())
}

pub(crate) fn wake_without_slack() {
    // If the kernel refuses, timers are late by its default of 50 us.
    #[cfg(not(miri))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(feature = "inspect")]
pub(crate) fn process_time() -> Option<u128> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(std::time::Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?).as_nanos())
}
