//! Whether a store is being closed. Long reads end then, because closing waits for the threads that read.

use std::convert::Infallible;

use async_channel::{Receiver, Sender};
use futures_lite::future::{block_on, or};

use crate::store::error::StoreError;

/// Whether a store is being closed: a channel that is closed with it, so that a thread can wait for it besides something else.
#[derive(Debug)]
pub(super) struct Closing {
    begun: Receiver<Infallible>,
    /// Without a sender the channel would be closed from the beginning.
    _sender: Sender<Infallible>,
}

impl Default for Closing {
    fn default() -> Closing {
        let (sender, begun) = async_channel::bounded(1);
        Closing { begun, _sender: sender }
    }
}

impl Closing {
    /// Has all reads end with [`StoreError::Closed`].
    pub(super) fn begin(&self) {
        self.begun.close();
    }

    /// Returns an error if the store is being closed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.begun.is_closed() { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Sends a value, and waits for room in the channel. Returns whether there is a receiver.
    pub(super) fn send<T>(&self, to: &Sender<T>, value: T) -> Result<bool, StoreError> {
        let sent = async { Ok(to.send(value).await.is_ok()) };
        let closed = async {
            let _nothing_is_sent = self.begun.recv().await;
            Err(StoreError::Closed)
        };
        block_on(or(sent, closed))
    }
}
