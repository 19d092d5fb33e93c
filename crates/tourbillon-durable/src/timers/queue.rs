//! The queue of operations that wait for the store. It is bounded, and creates cannot fill the part of cancels (O2).

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use futures_channel::oneshot;

use super::node_loop::Message;
use super::places::{Places, Taken};
use super::{Timers, TimersError};
use crate::batch::{BATCH_BYTES, is_urgent, payload_bytes};
use crate::catch_panic::catch_panic;
use crate::store::{StoreError, WriteAnswer, WriteOp};

/// Places for operations. An operation has its place until the store has answered it.
pub(super) struct RequestQueue {
    /// For cancels and what ends deliveries.
    urgent: Arc<Places>,
    /// For all others.
    other: Arc<Places>,
    /// The most operations that are sent together, unless they are a group.
    largest_part: usize,
}

/// Operations that were sent.
struct Sent {
    count: usize,
    /// `None` if the node had ended.
    answers: Option<oneshot::Receiver<Answers>>,
}

/// The answers to the operations of a client.
pub(super) type Answers = Vec<Result<WriteAnswer, StoreError>>;

/// Where answers go, and the places in the queue that are free then, even if nobody waits for the answers any more.
pub(super) struct ReplyTo {
    answers: oneshot::Sender<Answers>,
    places: Taken,
}

/// Answers a caller, unless it has gone. Its waker may panic: the thread that answers goes on.
pub(super) fn reply<T>(to: oneshot::Sender<T>, answer: T) {
    catch_panic(|| drop(to.send(answer)));
}

impl ReplyTo {
    pub(super) fn send(self, answers: Answers) {
        drop(self.places);
        reply(self.answers, answers);
    }
}

impl RequestQueue {
    pub(super) fn new(capacity: usize, largest_part: usize) -> RequestQueue {
        let (urgent, other) = (Places::new(capacity), Places::new(capacity));
        let largest_part = largest_part.clamp(1, other.capacity());
        RequestQueue { urgent, other, largest_part }
    }

    /// Returns how many operations wait.
    pub(super) fn len(&self) -> usize {
        self.urgent.taken() + self.other.taken()
    }
}

/// Returns the next operations that are sent together.
fn next_part(ops: &mut Peekable<IntoIter<WriteOp>>, largest: usize) -> Vec<WriteOp> {
    let (mut part, mut bytes) = (Vec::with_capacity(largest.min(ops.len())), 0);
    while part.len() < largest
        && let Some(op) = ops.next_if(|op| bytes == 0 || bytes + payload_bytes(op) <= BATCH_BYTES)
    {
        bytes += payload_bytes(&op);
        part.push(op);
    }
    part
}

impl Timers {
    pub(super) async fn ask(&self, op: WriteOp) -> Result<WriteAnswer, TimersError> {
        let mut answers = self.answers(self.send_ops(vec![op], false).await).await?;
        answers.pop().unwrap_or(Err(TimersError::Ended))
    }

    /// Has operations written, in parts if they are many. Later parts are sent before earlier ones are answered, as far as there are places.
    pub(super) async fn ask_all(
        &self,
        ops: Vec<WriteOp>,
    ) -> Result<Vec<Result<WriteAnswer, TimersError>>, TimersError> {
        let largest = self.inner.queue.largest_part;
        if ops.len() <= largest && ops.iter().map(payload_bytes).sum::<usize>() <= BATCH_BYTES {
            return self.answers(self.send_ops(ops, false).await).await;
        }
        let count = ops.len();
        let mut ops = ops.into_iter().peekable();
        let mut parts = Vec::with_capacity(count.div_ceil(largest));
        while ops.peek().is_some() {
            parts.push(self.send_ops(next_part(&mut ops, largest), false).await);
        }
        let mut answers = Vec::with_capacity(count);
        let mut is_any_answered = false;
        for part in parts {
            let count = part.count;
            match self.answers(part).await {
                Ok(of_part) => {
                    is_any_answered = true;
                    answers.extend(of_part);
                }
                // What was answered counts nevertheless.
                Err(error) => answers.extend(std::iter::repeat_n(Err(error), count)),
            }
        }
        if is_any_answered { Ok(answers) } else { Err(self.ended()) }
    }

    /// Has all operations written in one transaction, in their order.
    pub(super) async fn ask_group(
        &self,
        ops: Vec<WriteOp>,
    ) -> Result<Vec<Result<WriteAnswer, TimersError>>, TimersError> {
        self.answers(self.send_ops(ops, true).await).await
    }

    /// Sends operations to the node, and waits first until there are places for all of them: a group that is larger than the queue has it alone.
    async fn send_ops(&self, ops: Vec<WriteOp>, is_group: bool) -> Sent {
        let count = ops.len();
        let queue = &self.inner.queue;
        let places = if ops.iter().all(is_urgent) { &queue.urgent } else { &queue.other };
        let places = places.take(count).await;
        let (answers, receiver) = oneshot::channel();
        let sent = self.send(Message::Ask { ops, is_group, reply: ReplyTo { answers, places } });
        Sent { count, answers: sent.is_ok().then_some(receiver) }
    }

    async fn answers(&self, sent: Sent) -> Result<Vec<Result<WriteAnswer, TimersError>>, TimersError> {
        let receiver = sent.answers.ok_or_else(|| self.ended())?;
        let answers = receiver.await.map_err(|_| self.ended())?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| self.store_failed(error))).collect())
    }
}
