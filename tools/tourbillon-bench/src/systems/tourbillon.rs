//! Tourbillon: a wheel a thread, exact to the nanosecond. Used in a Tokio runtime, in the place of Tokio's own timers.

use std::pin::Pin;
use std::time::Duration;

pub(crate) use tourbillon::Slack;
use tourbillon::time::Instant;
pub(crate) use tourbillon::time::{Sleep, sleep};
use tourbillon::{Driver, Engine};

use super::tokio::Tokio;

pub(crate) const NAME: &str = "tourbillon";

/// How much later than asked a timer may fire, under a name.
pub(crate) type NamedSlack = (&'static str, fn() -> Slack);

pub(crate) const SLACKS: [NamedSlack; 5] = [
    ("adaptive", Slack::adaptive),
    ("exact", Slack::exact),
    ("250us", || Slack::upto(Duration::from_micros(250))),
    ("1ms", || Slack::upto(Duration::from_millis(1))),
    (PRECISE, Slack::precise),
];

/// The slack that spins.
pub(crate) const PRECISE: &str = "precise";

/// An engine whose driver is a thread of its own.
pub(crate) fn on_thread(slack: Slack) -> Engine {
    Engine::builder().slack(slack).driver(Driver::thread()).build().expect("an engine can be built")
}

/// An engine whose driver is a task of a Tokio runtime.
pub(crate) fn on_tokio(runtime: &Tokio, slack: Slack) -> Engine {
    let _entered = runtime.enter();
    Engine::builder().slack(slack).driver(Driver::tokio()).build().expect("an engine can be built")
}

/// Sleeps of a certain engine.
pub(crate) fn sleep_on(engine: &Engine) -> impl Fn(Duration) -> Sleep + Send + use<> {
    let engine = engine.clone();
    move |duration| engine.sleep(duration)
}

/// The same, given a deadline.
pub(crate) fn sleep_until_on(engine: &Engine) -> impl Fn(std::time::Instant) -> Sleep + Send + use<> {
    let engine = engine.clone();
    move |deadline| engine.sleep_until(instant(deadline))
}

/// The same, of whatever engine the task that sleeps is on, with a slack.
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
