//! A timer for hyper.
//!
//! hyper has no timers of its own: a program that uses its `header_read_timeout`, its HTTP/2 keep-alive or another of its timeouts
//! gives it a [`Timer`]. [`TourbillonTimer`] is one, under any executor.

use std::pin::Pin;
use std::time::{Duration, Instant as StdInstant};

use ::hyper::rt::{Sleep as HyperSleep, Timer};

use crate::engine::Engine;
use crate::instant::Instant;
use crate::time::{Sleep, sleep, sleep_until};

/// An implementation of hyper's [`Timer`] on an engine.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use hyper::server::conn::http1;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response};
/// use tourbillon::adapters::hyper::TourbillonTimer;
///
/// # fn serve(io: impl hyper::rt::Read + hyper::rt::Write + Unpin) {
/// let hello = service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
/// let connection = http1::Builder::new()
///     .timer(TourbillonTimer::new())
///     .header_read_timeout(Duration::from_secs(5))
///     .serve_connection(io, hello);
/// # drop(connection);
/// # }
/// ```
///
/// Moving a deadline, which hyper does for each request of a connection, reuses the existing timer.
///
/// If the engine is shut down, hyper's sleeps end at once: its connections then time out rather than hang.
#[derive(Clone, Debug, Default)]
pub struct TourbillonTimer {
    /// `None` for the engine that is current where hyper creates a sleep.
    engine: Option<Engine>,
}

impl TourbillonTimer {
    /// Creates a timer that uses the current engine of the thread that polls the connection: the global one, unless that thread has
    /// [entered](Engine::enter) another.
    #[must_use]
    pub fn new() -> TourbillonTimer {
        TourbillonTimer::default()
    }

    /// Creates a timer on this engine. It is one of the engine's handles, and keeps the engine running as long as hyper holds it.
    #[must_use]
    pub fn on(engine: &Engine) -> TourbillonTimer {
        TourbillonTimer { engine: Some(engine.clone()) }
    }
}

impl Timer for TourbillonTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn HyperSleep>> {
        Box::pin(match &self.engine {
            Some(engine) => engine.sleep(duration),
            None => sleep(duration),
        })
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn HyperSleep>> {
        let deadline = Instant::from_std(deadline);
        Box::pin(match &self.engine {
            Some(engine) => engine.sleep_until(deadline),
            None => sleep_until(deadline),
        })
    }

    fn now(&self) -> StdInstant {
        match &self.engine {
            Some(engine) => engine.clock().now_std(),
            None => Instant::now().into_std(),
        }
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn HyperSleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(ours) => ours.reset(Instant::from_std(deadline)),
            // A sleep of another timer cannot be moved, but it can be replaced.
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// Lets hyper wait for a [`Sleep`].
impl HyperSleep for Sleep {}
