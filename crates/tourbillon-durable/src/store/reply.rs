//! How a store answers.

use super::StoreError;
use crate::catch_panic::catch_panic;

type ReplyFn<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// The way back to the caller of a store. It is used exactly once: if it is dropped, the caller gets [`StoreError::Closed`].
pub struct Reply<T> {
    call: Option<ReplyFn<T>>,
    /// `None` if the caller waits for as long as it takes.
    is_wanted: Option<Box<dyn Fn() -> bool + Send>>,
}

impl<T> Reply<T> {
    /// Returns a reply that calls `call`, which must not block. The store's thread survives a panic of it.
    pub fn new(call: impl FnOnce(Result<T, StoreError>) + Send + 'static) -> Reply<T> {
        Reply { call: Some(Box::new(call)), is_wanted: None }
    }

    /// Returns a reply as [`new`](Reply::new) does, for a caller that may give up: `is_wanted` says whether it still waits.
    pub fn new_while(
        is_wanted: impl Fn() -> bool + Send + 'static,
        call: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) -> Reply<T> {
        Reply { call: Some(Box::new(call)), is_wanted: Some(Box::new(is_wanted)) }
    }

    /// Returns whether the caller still waits. A store may drop a reply that nobody waits for, and save itself the work, if it only reads.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.as_ref().is_none_or(|is_wanted| is_wanted())
    }

    /// Sends the result to the caller.
    pub fn send(mut self, result: Result<T, StoreError>) {
        if let Some(call) = self.call.take() {
            catch_panic(|| call(result));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            catch_panic(|| call(Err(StoreError::Closed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn q1_a_reply_that_is_dropped_says_that_the_store_is_closed() {
        let (sender, receiver) = channel();
        let reply = |sender: &std::sync::mpsc::Sender<Result<u8, StoreError>>| {
            let sender = sender.clone();
            Reply::new(move |result| sender.send(result).unwrap())
        };
        reply(&sender).send(Ok(1));
        drop(reply(&sender));
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [Ok(1), Err(StoreError::Closed)]);
    }
}
