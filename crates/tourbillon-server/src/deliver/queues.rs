//! Queues that workers pull from, with a long poll.
//!
//! Each queue that workers wait for has one task. It claims rows in the store for all waiting workers, in one transaction, and then sleeps until
//! the next row is due, a timer is created that is due earlier, or a wait ends. Where other nodes create timers too, it looks at the
//! store several times a second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tourbillon_durable::{Ack, PullRequest, Pulled, Timers, TimersError};

/// How often the store is looked at while workers wait and other nodes may create timers.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How often the store is looked at while workers wait and nobody else creates timers, in case the clock was set.
const LOOK_AGAIN_ALONE: Duration = Duration::from_secs(5);

/// The most rows that are claimed in one transaction.
const MOST_ROWS: usize = 1_000;

type PullResult = Result<Vec<Pulled>, TimersError>;

/// The queues that workers wait for.
#[derive(Clone)]
pub(crate) struct Queues(Arc<QueuesInner>);

struct QueuesInner {
    timers: Timers,
    look_again: Duration,
    waited_for: Mutex<HashMap<String, Arc<Queue>>>,
}

#[derive(Default)]
struct Queue {
    workers: Mutex<Vec<Worker>>,
    changed: Notify,
    /// When the task looks at the store next, in microseconds since 1970.
    next_look: AtomicU64,
}

/// What a worker asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) max: usize,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
}

struct Worker {
    request: PullRequest,
    until: Instant,
    answer: oneshot::Sender<PullResult>,
}

impl Queues {
    pub(crate) fn new(timers: Timers, has_other_writers: bool) -> Queues {
        let look_again = if has_other_writers { LOOK_AGAIN } else { LOOK_AGAIN_ALONE };
        Queues(Arc::new(QueuesInner { timers, look_again, waited_for: Mutex::default() }))
    }

    /// Claims rows of a kind for a worker; waits for the first of them as long as it wants.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn pull(&self, kind: &str, want: Want) -> PullResult {
        let request = PullRequest { max: want.max, lease: want.lease };
        let (answer, answered) = oneshot::channel();
        let worker = Worker { request, until: Instant::now() + want.wait, answer };
        self.add(kind, worker);
        answered.await.unwrap_or(Err(TimersError::Ended))
    }

    /// Tells a queue that one of its rows is due at this time.
    pub(crate) fn notice(&self, kind: &str, due: SystemTime) {
        let Some(queue) = lock(&self.0.waited_for).get(kind).cloned() else { return };
        if micros(due) < queue.next_look.load(Ordering::SeqCst) {
            queue.changed.notify_one();
        }
    }

    /// Returns how many workers wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.0.waited_for).values().map(|queue| lock(&queue.workers).len()).sum()
    }

    fn add(&self, kind: &str, worker: Worker) {
        let mut waited_for = lock(&self.0.waited_for);
        if let Some(queue) = waited_for.get(kind) {
            lock(&queue.workers).push(worker);
            queue.changed.notify_one();
            return;
        }
        let queue = Arc::new(Queue::default());
        lock(&queue.workers).push(worker);
        waited_for.insert(kind.to_owned(), Arc::clone(&queue));
        tokio::spawn(serve(self.clone(), kind.to_owned(), queue));
    }

    /// Ends a queue that nobody waits for. Returns whether it has ended.
    fn end(&self, kind: &str, queue: &Queue) -> bool {
        let mut waited_for = lock(&self.0.waited_for);
        let is_over = lock(&queue.workers).is_empty();
        if is_over {
            waited_for.remove(kind);
        }
        is_over
    }

    /// Gives rows back whose worker has gone away.
    async fn give_back(&self, rows: Vec<Pulled>) {
        let give_back = |pulled: &Pulled| (pulled.receipt(), Ack::Postpone(Duration::ZERO));
        let returns: Vec<_> = rows.iter().map(give_back).collect();
        // What cannot be given back is delivered again when its lease is over.
        let _after_lease = self.0.timers.finish_pulled(returns).await;
    }
}

/// Serves the workers of a queue until none waits.
async fn serve(queues: Queues, kind: String, queue: Arc<Queue>) {
    loop {
        let requests = queue.requests();
        if requests.is_empty() {
            if queues.end(&kind, &queue) {
                return;
            }
            continue;
        }
        // A timer that is created from here on is seen by this look or announced.
        queue.next_look.store(u64::MAX, Ordering::SeqCst);
        let answer = queues.0.timers.pull_all(&kind, &requests).await;
        match answer {
            Err(error) => queue.fail(requests.len(), &error),
            Ok(answer) => {
                let found = answer.pulled.iter().any(|rows| !rows.is_empty());
                let lost = queue.hand_out(answer.pulled);
                if !lost.is_empty() {
                    queues.give_back(lost).await;
                }
                if !found {
                    queue.rest(answer.next_due, queues.0.look_again).await;
                }
            }
        }
    }
}

impl Queue {
    /// Forgets workers that have gone away, and returns what the first of the others ask for.
    fn requests(&self) -> Vec<PullRequest> {
        let mut workers = lock(&self.workers);
        workers.retain(|worker| !worker.answer.is_closed());
        let mut room = MOST_ROWS;
        let requests = workers.iter().map_while(|worker| {
            let max = worker.request.max.min(room);
            room -= max;
            (max > 0).then_some(PullRequest { max, ..worker.request })
        });
        requests.collect()
    }

    /// Hands rows to the workers that were asked for first. Workers that get none are answered if they do not want to wait longer. Returns rows
    /// whose worker has gone away.
    fn hand_out(&self, pulled: Vec<Vec<Pulled>>) -> Vec<Pulled> {
        let mut workers = lock(&self.workers);
        let now = Instant::now();
        let served = pulled.len().min(workers.len());
        let rest = workers.split_off(served);
        let (mut lost, mut still) = (Vec::new(), Vec::new());
        for (worker, rows) in workers.drain(..).zip(pulled) {
            if rows.is_empty() && worker.until > now {
                still.push(worker);
            } else if let Err(Ok(rows)) = worker.answer.send(Ok(rows)) {
                lost.extend(rows);
            }
        }
        still.extend(rest);
        *workers = still;
        lost
    }

    fn fail(&self, count: usize, error: &TimersError) {
        let mut workers = lock(&self.workers);
        let count = count.min(workers.len());
        for worker in workers.drain(..count) {
            let _gone = worker.answer.send(Err(error.clone()));
        }
    }

    /// Sleeps until there is something to do.
    async fn rest(&self, next_due: Option<SystemTime>, look_again: Duration) {
        let until_due = next_due.map(|due| due.duration_since(SystemTime::now()).unwrap_or_default());
        let pause = until_due.unwrap_or(look_again).min(look_again);
        let first_end = lock(&self.workers).iter().map(|worker| worker.until).min();
        let wake = (Instant::now() + pause).min(first_end.unwrap_or_else(|| Instant::now() + pause));
        self.next_look.store(micros(SystemTime::now() + pause), Ordering::SeqCst);
        tokio::select! {
            () = self.changed.notified() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

fn micros(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
