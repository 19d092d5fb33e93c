//! A runtime for hyper: connections ([`TcpStream`] is a `hyper::rt::Read` and `Write`), and an executor for its tasks.
//!
//! The timer for hyper is `tourbillon::adapters::hyper::TourbillonTimer`, with the feature `hyper` of that crate: on a worker its timers
//! are the worker's own.
//!
//! ```no_run
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use hyper::server::conn::http1;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use tourbillon::adapters::hyper::TourbillonTimer;
//! use tourbillon_rt::{net::TcpListener, spawn};
//!
//! async fn serve(listener: TcpListener) -> std::io::Result<()> {
//!     loop {
//!         let (stream, _) = listener.accept().await?;
//!         let hello = service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
//!         let mut http = http1::Builder::new();
//!         http.timer(TourbillonTimer::new()).header_read_timeout(Duration::from_secs(5));
//!         spawn(http.serve_connection(stream, hello));
//!     }
//! }
//! ```

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Executor, Read, ReadBufCursor};
use rustix::net::RecvFlags;

use crate::executor::spawn;
use crate::net::TcpStream;
use crate::net::tcp_stream::{send, send_vectored};
use crate::reactor::IoProgress;

/// Spawns hyper's tasks on the runtime of the calling thread.
#[derive(Clone, Copy, Default, Debug)]
#[non_exhaustive]
pub struct RuntimeExecutor;

impl RuntimeExecutor {
    /// Returns an executor.
    #[must_use]
    pub fn new() -> RuntimeExecutor {
        RuntimeExecutor
    }
}

impl<F> Executor<F> for RuntimeExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        spawn(future);
    }
}

impl Read for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        TcpStream::poll_read(&self, context, |stream| {
            // SAFETY: the caller must not make an initialized byte uninitialized. Only the kernel writes to `room`, and it writes
            // initialized bytes.
            let room = unsafe { buffer.as_mut() };
            let of = room.len();
            let ((read, _), count) = rustix::net::recv(stream, &mut *room, RecvFlags::empty())?;
            debug_assert_eq!(read.len(), count);
            // SAFETY: the first `count` bytes must be initialized. `recv` has returned `count`: the kernel has written that many.
            unsafe { buffer.advance(count) };
            Ok(IoProgress { value: (), exhausted: 0 < count && count < of })
        })
    }
}

impl hyper::rt::Write for TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        TcpStream::poll_write(&self, context, |stream| send(stream, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_write(&self, context, |stream| send_vectored(stream, buffers))
    }
}
