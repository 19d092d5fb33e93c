//! Handlers, and where their futures run.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use async_executor::Executor;

use super::delivery::{Ack, Delivery, HandlerResult};

type HandlerFuture = Pin<Box<dyn Future<Output = Ack> + Send>>;

/// The handler of a kind.
#[derive(Clone)]
pub(super) struct Handler(Arc<dyn Fn(Delivery) -> HandlerFuture + Send + Sync>);

impl Handler {
    pub(super) fn new<H, F>(handler: H) -> Handler
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        Handler(Arc::new(move |delivery| {
            let future = handler(delivery);
            Box::pin(async move { future.await.into_ack() })
        }))
    }

    /// Calls the handler. A panic of it is a failed delivery.
    pub(super) async fn call(self, delivery: Delivery) -> Ack {
        match catch_unwind(AssertUnwindSafe(|| (self.0)(delivery))) {
            Ok(future) => CatchPanic(future).await,
            Err(panic) => panicked(&*panic),
        }
    }
}

/// A future whose panic is a failed delivery.
struct CatchPanic(HandlerFuture);

impl Future for CatchPanic {
    type Output = Ack;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ack> {
        let poll = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        poll.unwrap_or_else(|panic| Poll::Ready(panicked(&*panic)))
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Ack {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
    Ack::Retry(format!("the handler panicked: {}", text.unwrap_or("no message")))
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

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            HandlerThreads::Own { executor, .. } => executor.spawn(future).detach(),
            HandlerThreads::Spawn(spawn) => spawn(Box::pin(future)),
        }
    }
}
