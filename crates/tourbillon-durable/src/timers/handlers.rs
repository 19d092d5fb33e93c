//! Handlers, and where their futures run.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use async_executor::Executor;

use super::delivery::{Ack, Delivery, HandlerResult};
use crate::catch_panic::{catch_panic, dispose};

type HandlerFuture = Pin<Box<dyn Future<Output = Ack> + Send>>;

type HandlerFn = Arc<dyn Fn(Delivery) -> HandlerFuture + Send + Sync>;

/// The handler of a kind. It is there until it is dropped, which may happen on any thread: a panic of its destructor is caught.
#[derive(Clone)]
pub(super) struct Handler(Option<HandlerFn>);

impl Handler {
    pub(super) fn new<H, F>(handler: H) -> Handler
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        Handler(Some(Arc::new(move |delivery| {
            let future = handler(delivery);
            Box::pin(async move { future.await.into_ack() })
        })))
    }

    /// Calls the handler. A panic of it is a failed delivery.
    pub(super) async fn call(self, delivery: Delivery) -> Ack {
        let begun = catch_unwind(AssertUnwindSafe(|| self.0.as_ref().map(|handler| handler(delivery))));
        match begun {
            Ok(future) => CatchPanic(future).await,
            Err(panic) => panicked(panic),
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        catch_panic(|| drop(self.0.take()));
    }
}

/// A future whose panic is a failed delivery, and whose destructor's panic goes no further.
struct CatchPanic(Option<HandlerFuture>);

impl Future for CatchPanic {
    type Output = Ack;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ack> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let poll = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        poll.unwrap_or_else(|panic| Poll::Ready(panicked(panic)))
    }
}

impl Drop for CatchPanic {
    fn drop(&mut self) {
        catch_panic(|| drop(self.0.take()));
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Ack {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
    let error = format!("the handler panicked: {}", text.unwrap_or("no message"));
    dispose(panic);
    Ack::Retry(error)
}

/// Where handlers run.
pub(super) enum HandlerThreads {
    /// Threads of our own. They end when the executor is dropped by the last of its owners.
    Own { executor: Arc<Executor<'static>>, _stop: async_channel::Sender<()> },
    /// A function of the user's, or Tokio.
    Spawn(SpawnFn),
}

pub(super) type SpawnFn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

impl HandlerThreads {
    /// Starts threads for handlers.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(count: usize) -> std::io::Result<HandlerThreads> {
        let executor = Arc::new(Executor::new());
        let (stop, stopped) = async_channel::bounded::<()>(1);
        for _ in 0..count.max(1) {
            let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
            let run = move || {
                let _closed = futures_lite::future::block_on(executor.run(stopped.recv()));
            };
            thread::Builder::new().name("durable-handler".to_owned()).spawn(run)?;
        }
        Ok(HandlerThreads::Own { executor, _stop: stop })
    }

    /// Has a future run. A function of the user's that panics has dropped it.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            HandlerThreads::Own { executor, .. } => executor.spawn(future).detach(),
            HandlerThreads::Spawn(spawn) => catch_panic(|| spawn(Box::pin(future))),
        }
    }
}
