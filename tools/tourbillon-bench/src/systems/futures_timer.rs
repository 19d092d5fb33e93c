//! futures-timer: one heap per process, kept by its own thread, which is notified of every arming and every drop. The work of
//! that thread is not in the caller's time. It has no runtime, so it is used in Tokio's.

use std::time::Duration;

use futures_timer::Delay;

pub(crate) const NAME: &str = "futures-timer";

pub(crate) fn sleep(duration: Duration) -> Delay {
    Delay::new(duration)
}
