//! Tourbillon: one wheel per thread, exact to the nanosecond. It is used in a Tokio runtime, instead of Tokio's own timers;
//! the default driver of an engine is on that runtime.

use std::pin::Pin;
use std::time::Duration;

use tourbillon::Driver;
use tourbillon::time::Instant;
pub(crate) use tourbillon::time::{Sleep, sleep};
pub(crate) use tourbillon::{Engine, Slack};

pub(crate) const NAME: &str = "tourbillon";

/// The end of a case in which Tourbillon was used in a current-thread runtime.
pub(crate) const ON_CURRENT: &str = ",rt=current";

/// A slack with its name.
pub(crate) type NamedSlack = (&'static str, fn() -> Slack);

pub(crate) const SLACKS: [NamedSlack; 5] = [
    ("adaptive", Slack::adaptive),
    ("exact", Slack::exact),
    ("250us", || Slack::up_to(Duration::from_micros(250))),
    ("1ms", || Slack::up_to(Duration::from_millis(1))),
    (PRECISE, Slack::precise),
];

/// The slack that spins.
pub(crate) const PRECISE: &str = "precise";

/// Returns an engine with the default driver. The first runtime that uses it gets its driver, whatever other runtimes there are.
pub(crate) fn by_default(slack: Slack) -> Engine {
    Engine::builder().slack(slack).build().expect("an engine can be built")
}

/// Returns an engine with its own driver thread.
pub(crate) fn on_thread(slack: Slack) -> Engine {
    Engine::builder().slack(slack).driver(Driver::thread()).build().expect("an engine can be built")
}

/// Returns a function that sleeps on an engine.
pub(crate) fn sleep_on(engine: &Engine) -> impl Fn(Duration) -> Sleep + Send + use<> {
    let engine = engine.clone();
    move |duration| engine.sleep(duration)
}

/// Returns a function that sleeps on an engine until a deadline.
pub(crate) fn sleep_until_on(engine: &Engine) -> impl Fn(std::time::Instant) -> Sleep + Send + use<> {
    let engine = engine.clone();
    move |deadline| engine.sleep_until(instant(deadline))
}

/// Returns a function that sleeps with a slack until a deadline, on the engine of the calling task.
pub(crate) fn sleep_until_with(slack: Slack) -> impl Fn(std::time::Instant) -> Sleep + Send + use<> {
    move |deadline| tourbillon::time::sleep_until(instant(deadline)).slack(slack)
}

pub(crate) fn instant(instant: std::time::Instant) -> Instant {
    Instant::from_std(instant)
}

#[inline(always)]
pub(crate) fn reset(sleep: Pin<&mut Sleep>, deadline: Instant) {
    sleep.reset(deadline);
}
