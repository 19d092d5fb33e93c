//! The timer that hyper asks for.
//!
//! hyper has no clock of its own: whoever wants its `header_read_timeout`, its HTTP/2 keep-alive or another of its timeouts
//! gives it a [`Timer`]. [`TourbillonTimer`] is one, under any executor.

use std::pin::Pin;
use std::time::{Duration, Instant as StdInstant};

use ::hyper::rt::{Sleep as HyperSleep, Timer};

use crate::Engine;
use crate::time::{Instant, Sleep, sleep, sleep_until};

/// hyper's [`Timer`], on an engine.
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
/// Moving a deadline, which hyper does for each request of a connection, reuses the timer that is there.
///
/// If the engine is shut down, what hyper waits for ends at once: its connections then time out rather than hang.
#[derive(Clone, Debug, Default)]
pub struct TourbillonTimer {
    /// `None`: whichever is current where hyper asks.
    engine: Option<Engine>,
}

impl TourbillonTimer {
    /// On the current engine of the thread that polls the connection: the global one, unless another was
    /// [entered](Engine::enter).
    #[must_use]
    pub fn new() -> TourbillonTimer {
        TourbillonTimer::default()
    }

    /// On that engine. The timer is one of its handles: as long as hyper has it, the engine is not shut down by itself.
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
            // Another timer's sleep: it cannot be moved, but it can be replaced.
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// So that hyper can wait for it.
impl HyperSleep for Sleep {}
