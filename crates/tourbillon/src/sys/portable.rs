//! For systems whose threads and processes this crate does not ask about.

#[cfg(feature = "test-util")]
pub(crate) fn current_thread() -> Option<i32> {
    None
}

pub(crate) fn wake_without_slack() {}

#[cfg(feature = "inspect")]
pub(crate) fn process_time() -> Option<u128> {
    None
}
