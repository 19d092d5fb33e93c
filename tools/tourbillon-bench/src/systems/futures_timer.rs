//! futures-timer: one heap a process, kept by a thread of its own that is told of every arming and every drop. What that
//! thread does is not in the time of the caller. Used in a Tokio runtime, for want of its own.

use std::time::Duration;

use futures_timer::Delay;

pub(crate) const NAME: &str = "futures-timer";

pub(crate) fn sleep(duration: Duration) -> Delay {
    Delay::new(duration)
}
