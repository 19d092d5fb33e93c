//! The monotonic clock of a system that has no file of its own here: that of the standard library.

use tourbillon_queue::Time;

#[cfg(not(shuttle))]
pub(in crate::clock) fn monotonic() -> Time {
    use std::sync::OnceLock;
    use std::time::Instant as StdInstant;

    use tourbillon_queue::Span;

    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(StdInstant::now);
    // Not zero, so that moments before the first reading have a number too.
    Time::from_nanos(1 << 60) + Span::from(origin.elapsed())
}

/// Returns the monotonic time: this system does not tell the processor time of one thread.
pub(in crate::clock) fn thread_time() -> Time {
    super::monotonic()
}
