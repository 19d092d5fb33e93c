//! Batches of requests.

use super::{Created, Rescheduled, Timers, TimersError};
use crate::batch::payload_bytes;
use crate::id::TimerId;
use crate::spec::{FirstDue, NewTimer};
use crate::store::{CancelCounts, CancelOp, DeadLetterOp, RescheduleOp, RowId, Target, TimerRow, WriteAnswer, WriteOp};

/// The most requests of one [batch](Timers::batch).
pub const LARGEST_BATCH: usize = 1_000;

/// The most bytes of payload in one [batch](Timers::batch), all its timers together: 64 MiB.
pub const LARGEST_BATCH_PAYLOAD: usize = 64 << 20;

/// One request of a [batch](Timers::batch).
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most requests are creates")]
pub enum Request {
    /// [`Timers::create`].
    Create(NewTimer),
    /// [`Timers::cancel_target`].
    Cancel(Target),
    /// [`Timers::reschedule`].
    Reschedule {
        /// The timer.
        target: Target,
        /// When it is due now.
        when: FirstDue,
        /// Only if it still has this version.
        if_version: Option<u64>,
    },
    /// [`Timers::replay`].
    Replay(RowId),
    /// [`Timers::discard`].
    Discard(RowId),
    /// [`Timers::get`], after the changes of the batch.
    Get(TimerId),
    /// [`Timers::get_key`], after the changes of the batch.
    GetKey {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
    },
}

/// The answer to one request of a [batch](Timers::batch).
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// To a create.
    Created(Created),
    /// To a cancel.
    Cancelled(CancelCounts),
    /// To a reschedule.
    Rescheduled(Rescheduled),
    /// To a replay or a discard: whether there was such a dead letter.
    DeadLetter(bool),
    /// To a get, by id or key.
    Found(Vec<TimerRow>),
}

impl Timers {
    /// Does many things of any kind in one request. All changes are made in their order, in one transaction: all of them are durable or none. Reads are
    /// answered after the changes. The answers are in the order of the requests; a request that fails by itself, such as a create with a conflicting
    /// key, does not stop the others.
    ///
    /// # Errors
    /// There are more than [`LARGEST_BATCH`] requests or [`LARGEST_BATCH_PAYLOAD`] bytes of payload, or a timer to be created is invalid: then nothing
    /// is done. If the store failed, the error is in each answer.
    pub async fn batch(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Result<Answer, TimersError>>, TimersError> {
        let requests: Vec<Request> = requests.into_iter().collect();
        if requests.len() > LARGEST_BATCH {
            return Err(TimersError::BatchTooLarge(requests.len()));
        }
        let mut parts = Vec::with_capacity(requests.len());
        let mut ops = Vec::new();
        for request in requests {
            parts.push(match request {
                Request::Get(id) => Part::Get(id),
                Request::GetKey { namespace, key } => Part::GetKey(namespace, key),
                change => {
                    ops.push(self.op_of(change)?);
                    Part::Change
                }
            });
        }
        let bytes: usize = ops.iter().map(payload_bytes).sum();
        if bytes > LARGEST_BATCH_PAYLOAD {
            return Err(TimersError::BatchPayloadTooLarge(bytes));
        }
        let mut changed = if ops.is_empty() { Vec::new() } else { self.ask_group(ops).await? }.into_iter();
        let mut answers = Vec::with_capacity(parts.len());
        for part in parts {
            answers.push(match part {
                Part::Get(id) => self.get(id).await.map(Answer::Found),
                Part::GetKey(namespace, key) => {
                    self.get_key(namespace, key).await.map(|row| Answer::Found(row.into_iter().collect()))
                }
                Part::Change => {
                    changed.next().unwrap_or(Err(TimersError::Ended)).and_then(|answer| self.answer_of(answer))
                }
            });
        }
        Ok(answers)
    }

    /// Gives many timers another due time, in one request. The results are in the order of the targets.
    ///
    /// # Errors
    /// The node has ended. Errors of single timers are in the results.
    pub async fn reschedule_all(
        &self,
        changes: impl IntoIterator<Item = (Target, FirstDue)>,
    ) -> Result<Vec<Result<Rescheduled, TimersError>>, TimersError> {
        let op = |(target, when)| WriteOp::Reschedule(RescheduleOp { target, when, if_version: None });
        let answers = self.ask_all(changes.into_iter().map(op).collect()).await?;
        Ok(answers.into_iter().map(|answer| super::rescheduled(answer?)).collect())
    }

    fn op_of(&self, change: Request) -> Result<WriteOp, TimersError> {
        Ok(match change {
            Request::Create(timer) => self.create_op(timer)?,
            Request::Cancel(target) => WriteOp::Cancel(CancelOp { target }),
            Request::Reschedule { target, when, if_version } => {
                WriteOp::Reschedule(RescheduleOp { target, when, if_version })
            }
            Request::Replay(id) => WriteOp::DeadLetter(DeadLetterOp { id, replay: true }),
            Request::Discard(id) => WriteOp::DeadLetter(DeadLetterOp { id, replay: false }),
            Request::Get(_) | Request::GetKey { .. } => unreachable!("a read is no change"),
        })
    }

    fn answer_of(&self, answer: WriteAnswer) -> Result<Answer, TimersError> {
        Ok(match answer {
            WriteAnswer::Cancel(counts) => Answer::Cancelled(counts),
            WriteAnswer::DeadLetter(found) => Answer::DeadLetter(found.is_some()),
            answer @ WriteAnswer::Reschedule(_) => Answer::Rescheduled(super::rescheduled(answer)?),
            answer => Answer::Created(self.created(answer)?),
        })
    }
}

/// Where the answer to a request comes from.
enum Part {
    Change,
    Get(TimerId),
    GetKey(String, String),
}
