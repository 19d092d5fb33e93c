//! Deliveries that a worker asks for, and acknowledges later, perhaps to another node.
//!
//! A pull claims rows in the store itself, without a handler and without the owner of their shards: every node can pull every due row of a
//! store. The rows belong to the worker until their lease is over, whatever happens to nodes meanwhile.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_channel::oneshot;

use super::node_loop::Message;
use super::{Ack, Timers, TimersError};
use crate::store::{
    ClaimAnswer, ClaimOp, DueCursor, DueEntry, DueQuery, ExtendOp, FinishOp, RowId, ShardId, TimerRow, Verdict,
    WriteAnswer, WriteOp, pull_fence,
};
use crate::time::StoreTime;

/// The most rows that one request of a pull gets.
const MOST_PULLED: usize = 10_000;

/// What one worker asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PullRequest {
    /// The most rows. A pull returns at most 10,000 for each request.
    pub max: usize,
    /// How long the worker may take before they are delivered again.
    pub lease: Duration,
}

/// What [`Timers::pull_all`] has found.
#[derive(Clone, Debug, Default)]
pub struct PullAnswer {
    /// The rows of each request, in the order of the requests.
    pub pulled: Vec<Vec<Pulled>>,
    /// When the next row of the kind is due, if the store knows it and all that were due have been pulled; [`StoreTime::MAX`](crate::StoreTime::MAX) if there is
    /// none.
    pub next_due: Option<SystemTime>,
}

/// A row that a worker has pulled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pulled {
    /// The row. Its `wake` is the end of the lease.
    pub row: TimerRow,
}

/// Names a pulled delivery. The fence is random, so that nobody but the worker can have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receipt {
    /// The row.
    pub id: RowId,
    /// The number of the delivery.
    pub attempt: u32,
    /// The fence.
    pub fence: u64,
}

impl Pulled {
    /// Returns what names this delivery.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt { id: self.row.id, attempt: self.row.attempt, fence: self.row.epoch }
    }
}

impl Timers {
    /// Claims up to `max` due rows of a kind, at most 10,000, for a worker, which [acknowledges](Timers::finish_pulled) each of them within the lease. A row
    /// that is not acknowledged in time is delivered again.
    ///
    /// This works on every node of a store, for every row. It does not wait for rows that are not due yet.
    ///
    /// # Errors
    /// The store failed. Rows that were claimed before it failed are delivered again when their lease is over.
    pub async fn pull(&self, kind: &str, max: usize, lease: Duration) -> Result<Vec<Pulled>, TimersError> {
        let answer = self.pull_all(kind, &[PullRequest { max, lease }]).await?;
        Ok(answer.pulled.into_iter().next().unwrap_or_default())
    }

    /// Claims due rows of a kind for many workers in one transaction, if the store takes that many in one. The first workers get the rows that
    /// have been due for longest. In a [paused](Timers::pause) store there are none. Right after it was opened a node has to hear first whether the store
    /// is paused: then a pull waits for the answer of the store.
    ///
    /// # Errors
    /// The store failed. Rows that were claimed before it failed are delivered again when their lease is over.
    pub async fn pull_all(&self, kind: &str, requests: &[PullRequest]) -> Result<PullAnswer, TimersError> {
        /// How often rows that others were quicker to claim are replaced by further ones.
        const MOST_ROUNDS: usize = 4;

        let mut answer = PullAnswer { pulled: vec![Vec::new(); requests.len()], next_due: None };
        if self.is_paused().await? {
            return Ok(answer);
        }
        let mut after = None;
        for _ in 0..MOST_ROUNDS {
            let places: Vec<usize> = answer.open_places(requests).collect();
            if places.is_empty() {
                break;
            }
            let page = self.due_rows(kind, after, places.len()).await?;
            answer.next_due = page.next_wake.map(StoreTime::to_system);
            after = page.entries.last().map(|last| (last.wake, last.id));
            let entries = page.entries.len();
            let is_complete = self.claim_for(requests, &places, page.entries, &mut answer).await?;
            if is_complete || entries == 0 || !page.has_more {
                break;
            }
        }
        Ok(answer)
    }

    /// Returns whether the store is paused. Until its first heartbeat is answered, a node does not know it.
    async fn is_paused(&self) -> Result<bool, TimersError> {
        if !self.inner.stats.is_paused() {
            return Ok(false);
        }
        let (sender, receiver) = oneshot::channel();
        self.send(Message::AskPaused(sender))?;
        receiver.await.map_err(|_| self.ended())?.map_err(|error| self.store_failed(error))
    }

    async fn due_rows(
        &self,
        kind: &str,
        after: Option<DueCursor>,
        limit: usize,
    ) -> Result<crate::store::DuePage, TimersError> {
        let shards = (0..self.inner.store.traits().shards).map(ShardId).collect();
        let query = DueQuery { kind: kind.to_owned(), shards, after, until: self.store_now(), limit };
        self.read(|store, reply| store.due(query, reply)).await
    }

    /// Claims rows for the requests that `places` names. Returns whether each of them was claimed.
    async fn claim_for(
        &self,
        requests: &[PullRequest],
        places: &[usize],
        entries: Vec<DueEntry>,
        answer: &mut PullAnswer,
    ) -> Result<bool, TimersError> {
        let claims = entries.iter().zip(places).map(|(entry, place)| {
            let (fence, token) = (pull_fence(random()), random());
            let lease = requests[*place].lease;
            WriteOp::Claim(ClaimOp { id: entry.id, version: entry.version, epoch: fence, token, lease })
        });
        let claims: Vec<WriteOp> = claims.collect();
        if claims.is_empty() {
            return Ok(true);
        }
        let mut is_complete = true;
        for (claimed, place) in self.ask_all(claims).await?.into_iter().zip(places) {
            match claimed? {
                WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. }) => {
                    self.record_pull(&row);
                    answer.pulled[*place].push(Pulled { row });
                }
                WriteAnswer::Claim(_) => is_complete = false,
                _ => return Err(TimersError::confused()),
            }
        }
        Ok(is_complete)
    }

    /// Ends pulled deliveries. The answers say in the order of the receipts whether each was still the current one (V5).
    ///
    /// # Errors
    /// The node has ended. Errors of the store are in the results.
    pub async fn finish_pulled(
        &self,
        acks: impl IntoIterator<Item = (Receipt, Ack)>,
    ) -> Result<Vec<Result<bool, TimersError>>, TimersError> {
        let mut ops = Vec::new();
        for (receipt, ack) in acks {
            let Receipt { id, attempt, fence } = receipt;
            let verdict = self.verdict(id, ack).await?;
            ops.push(WriteOp::Finish(FinishOp { id, attempt, epoch: fence, verdict }));
        }
        let answers = self.ask_all(ops).await?;
        let current = answers.into_iter().map(|answer| match answer? {
            WriteAnswer::Finish(result) => Ok(result.is_ok()),
            _ => Err(TimersError::confused()),
        });
        Ok(current.collect())
    }

    /// Gives pulled deliveries a lease of this length from now on. The answers say in the order of the receipts whether each was still the
    /// current one (V5).
    ///
    /// # Errors
    /// The node has ended. Errors of the store are in the results.
    pub async fn extend_pulled(
        &self,
        receipts: impl IntoIterator<Item = Receipt>,
        lease: Duration,
    ) -> Result<Vec<Result<bool, TimersError>>, TimersError> {
        let extend = |receipt: Receipt| {
            WriteOp::Extend(ExtendOp { id: receipt.id, attempt: receipt.attempt, epoch: receipt.fence, lease })
        };
        let answers = self.ask_all(receipts.into_iter().map(extend).collect()).await?;
        let current = answers.into_iter().map(|answer| match answer? {
            WriteAnswer::Extend(result) => Ok(result.is_ok()),
            _ => Err(TimersError::confused()),
        });
        Ok(current.collect())
    }

    /// Returns what is written for an answer of a worker. The wait before a retry is that of the timer's own policy.
    async fn verdict(&self, id: RowId, ack: Ack) -> Result<Verdict, TimersError> {
        self.inner.stats.change(|stats| stats.count(&ack));
        Ok(match ack {
            Ack::Done => Verdict::Done,
            Ack::Retry(error) => {
                let rows = self.get(id.timer).await?;
                let row = rows.iter().find(|row| row.id == id);
                Verdict::Retry { after: row.map_or(Duration::ZERO, |row| row.retry_delay(random())), error }
            }
            Ack::RetryAfter(after, error) => Verdict::Retry { after, error },
            Ack::Postpone(after) => Verdict::Return { after },
            Ack::GiveUp(error) => Verdict::Dead { error },
        })
    }

    fn record_pull(&self, row: &TimerRow) {
        let claim = (row.attempt == 1).then(|| self.store_now().since(row.due));
        self.inner.stats.change(|stats| stats.begun += 1);
        self.inner.stats.record_claim(&row.spec.namespace, claim);
    }

    /// Returns the time of the store's clock, as well as it is known here.
    fn store_now(&self) -> StoreTime {
        let system = StoreTime::try_from(SystemTime::now()).unwrap_or_default();
        let offset = self.inner.clock_offset.load(Ordering::Relaxed);
        StoreTime::from_micros(system.as_micros().saturating_add_signed(offset))
    }
}

impl PullAnswer {
    /// Returns the index of a request for each row that is missing.
    fn open_places(&self, requests: &[PullRequest]) -> impl Iterator<Item = usize> {
        let missing =
            requests.iter().zip(&self.pulled).map(|(request, pulled)| request.max.min(MOST_PULLED) - pulled.len());
        missing.enumerate().flat_map(|(place, missing)| std::iter::repeat_n(place, missing))
    }
}

/// Returns 64 random bits that cannot be guessed.
fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}
