//! The thread of a node: it passes what happens to the core, and does what the core says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use tourbillon::{Outcome, Timer};

use super::TimersError;
use super::clocks::{Alarms, NodeClocks};
use super::delivery::{Ack, Delivery};
use super::events::{Event, Subscriber};
use super::handlers::{Handler, HandlerThreads};
use super::queue::{ReplyTo, reply};
use super::stats::{StatsRecorder, StoreFailing};
use crate::batch::Batcher;
use crate::core::{Action, Core, CoreConfig, DeliveryId, FailingRequest, Input, WriteTag};
use crate::spec::TimerSpec;
use crate::store::{
    ClaimAnswer, CreateAnswer, DueEntry, FinishOp, Ownership, Reply, RescheduleAnswer, RowId, StaleDelivery, Store,
    StoreError, Target, TimerRow, Verdict, WriteAnswer, WriteOp,
};

/// The most rows of workers of which a node knows the kinds; what becomes of others is a hint for all kinds.
const MOST_PULLED: usize = 100_000;

/// What a node is told by other threads.
#[expect(clippy::large_enum_variant, reason = "messages are moved once")]
pub(super) enum Message {
    /// Operations of a client.
    Ask { ops: Vec<WriteOp>, is_group: bool, reply: ReplyTo },
    /// The store has written a part of a batch, or failed; after the first part of each batch it takes another.
    Written { tags: Vec<Tag>, result: Result<Vec<WriteAnswer>, StoreError>, is_first: bool },
    /// The core is to be told something.
    Core(Input),
    /// The handler of a kind.
    Register { kind: String, limit: usize, handler: Option<Handler> },
    /// A handler has ended.
    HandlerDone(DeliveryId, Ack),
    /// Somebody wants to know what happens.
    Subscribe(Subscriber),
    /// The store was paused, or its pause has ended.
    Paused(bool, oneshot::Sender<()>),
    /// A worker wants to know whether the store is paused, as soon as the node has heard of it.
    AskPaused(oneshot::Sender<Result<bool, StoreError>>),
    /// The alarm has gone off.
    Alarm,
    /// The node is to end.
    Shutdown { limit: Duration, done: oneshot::Sender<Result<(), TimersError>> },
    /// The time for the shutdown is over.
    ShutdownLimit,
    /// The store is closed.
    Closed(Result<(), StoreError>),
}

/// What the answer to an operation is for.
pub(super) enum Tag {
    Core(WriteTag),
    /// A place among the answers to a client.
    Client {
        request: u64,
        index: usize,
        about: About,
    },
}

/// What an operation of a client was about, as far as its answer does not say it.
pub(super) enum About {
    Create(Arc<TimerSpec>),
    /// `None` if nobody wants to know.
    Cancel(Option<Target>),
    Finish(FinishOp),
    Extend(RowId),
    Other,
}

/// The way to the thread of a node.
#[derive(Clone)]
pub(super) struct Mailbox(Sender<Message>);

impl Mailbox {
    pub(super) fn new() -> (Mailbox, Receiver<Message>) {
        let (sender, receiver) = channel();
        (Mailbox(sender), receiver)
    }

    pub(super) fn send(&self, message: Message) -> Result<(), TimersError> {
        self.0.send(message).map_err(|_| TimersError::Ended)
    }

    /// Sends a message, unless the node has ended.
    pub(super) fn tell(&self, message: Message) {
        let _ended = self.0.send(message);
    }
}

/// A request of a client that is not answered yet.
struct ClientRequest {
    answers: Vec<Option<Result<WriteAnswer, StoreError>>>,
    missing: usize,
    reply: ReplyTo,
}

/// A delivery that a handler works on, or whose end is being written.
struct RunningDelivery {
    row: Arc<TimerRow>,
    abandoned: Arc<AtomicBool>,
    /// What the handler said.
    ack: Option<Ack>,
}

pub(super) struct NodeLoop {
    core: Core,
    config: CoreConfig,
    store: Arc<dyn Store>,
    mailbox: Mailbox,
    batcher: Batcher<Tag>,
    requests: HashMap<u64, ClientRequest>,
    last_request: u64,
    handlers: HashMap<String, Handler>,
    threads: HandlerThreads,
    running: HashMap<DeliveryId, RunningDelivery>,
    /// Workers that wait until the node has heard whether the store is paused.
    ask_paused: Vec<oneshot::Sender<Result<bool, StoreError>>>,
    /// The kinds of rows that workers have pulled here, as far as they are known.
    pulled: HashMap<RowId, String>,
    subscribers: Vec<Subscriber>,
    stats: Arc<StatsRecorder>,
    clocks: NodeClocks,
    alarms: Alarms,
    shutdown: Option<oneshot::Sender<Result<(), TimersError>>>,
    phase: LoopPhase,
    failure: Arc<OnceLock<StoreError>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoopPhase {
    Running,
    Draining,
    Closing,
    Ended,
}

impl NodeLoop {
    pub(super) fn new(
        config: CoreConfig,
        store: Arc<dyn Store>,
        mailbox: Mailbox,
        threads: HandlerThreads,
        stats: Arc<StatsRecorder>,
        offset: Arc<AtomicI64>,
        (largest_batch, max_skew): (usize, Duration),
    ) -> Result<NodeLoop, TimersError> {
        Ok(NodeLoop {
            core: Core::new(config),
            config,
            batcher: Batcher::new(store.traits().parallel_writes, largest_batch),
            store,
            mailbox,
            requests: HashMap::new(),
            last_request: 0,
            handlers: HashMap::new(),
            threads,
            running: HashMap::new(),
            ask_paused: Vec::new(),
            pulled: HashMap::new(),
            subscribers: Vec::new(),
            stats,
            clocks: NodeClocks { origin: Instant::now(), offset, max_skew },
            alarms: Alarms::new()?,
            shutdown: None,
            phase: LoopPhase::Running,
            failure: Arc::default(),
        })
    }

    /// Returns where the node says why it has ended, if its store fails.
    pub(super) fn failure(&self) -> Arc<OnceLock<StoreError>> {
        Arc::clone(&self.failure)
    }

    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        /// The most messages between two batches.
        const AT_ONCE: usize = 4_096;

        self.tell_core(Input::Tick);
        self.after_messages();
        while self.phase != LoopPhase::Ended {
            let Ok(first) = messages.recv() else { return };
            self.take(first);
            for message in messages.try_iter().take(AT_ONCE) {
                self.take(message);
            }
            self.after_messages();
        }
    }

    fn after_messages(&mut self) {
        self.write_batches();
        let now = self.clocks.now();
        self.alarms.set(self.core.next_wakeup(), now, &self.clocks, &self.mailbox);
        self.stats.change(|stats| {
            stats.rows_in_memory = self.core.rows_in_memory();
            stats.running = self.core.deliveries();
            stats.is_owner = self.core.is_owner();
            stats.is_paused = self.core.is_paused();
            stats.store_failing = self.core.failing().map(|failing| StoreFailing::new(failing, now.steady));
        });
        if self.phase == LoopPhase::Draining && self.core_is_done() && self.batcher.is_idle() {
            self.close();
        }
    }

    fn core_is_done(&self) -> bool {
        !self.core.is_owner() && self.core.deliveries() == 0
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Ask { ops, is_group, reply } => self.ask(ops, is_group, reply),
            Message::Written { tags, result, is_first } => self.written(tags, result, is_first),
            Message::Core(Input::Owned { sent, result }) => self.owned(sent, result),
            Message::Core(input) => self.tell_core(input),
            Message::Subscribe(subscriber) => self.subscribers.push(subscriber),
            Message::Paused(is_paused, done) => {
                self.tell_core(Input::Paused(is_paused));
                self.stats.change(|stats| stats.is_paused = is_paused);
                reply(done, ());
                self.answer_ask_paused(None);
            }
            Message::AskPaused(answer) => {
                self.ask_paused.push(answer);
                self.answer_ask_paused(None);
            }
            Message::Register { kind, limit, handler } => {
                match handler {
                    Some(handler) => drop(self.handlers.insert(kind.clone(), handler)),
                    None => drop(self.handlers.remove(&kind)),
                }
                self.tell_core(Input::Registered { kind, limit });
            }
            Message::HandlerDone(id, ack) => self.handler_done(id, ack),
            Message::Alarm => {
                self.alarms.forget();
                self.tell_core(Input::Tick);
            }
            Message::Shutdown { limit, done } => self.begin_shutdown(limit, done),
            Message::ShutdownLimit => self.close(),
            Message::Closed(result) => self.closed(result),
        }
    }

    fn tell_core(&mut self, input: Input) {
        for action in self.core.handle(self.clocks.now(), input) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let mailbox = self.mailbox.clone();
        match action {
            Action::Write(tag, op) => self.batcher.push(op, Tag::Core(tag)),
            Action::Scan(scan, query) => {
                let kind = query.kind.clone();
                let input = move |result| Input::Scanned { kind, scan, result };
                self.store.due(query, Reply::new(move |result| mailbox.tell(Message::Core(input(result)))));
            }
            Action::Orphans { kind, shards, limit } => {
                let of_kind = kind.clone();
                let input = move |result| Input::OrphansFound { kind: of_kind, result };
                let reply = Reply::new(move |result| mailbox.tell(Message::Core(input(result))));
                self.store.orphans(kind, shards, limit, reply);
            }
            Action::Heartbeat(heartbeat) => {
                let sent = self.clocks.now().steady;
                let input = move |result| Input::Owned { sent, result };
                self.store.heartbeat(heartbeat, Reply::new(move |result| mailbox.tell(Message::Core(input(result)))));
            }
            Action::Deliver(id, row) => self.deliver(id, row),
            Action::Abandon(id) => {
                if let Some(delivery) = self.running.get(&id) {
                    delivery.abandoned.store(true, Ordering::Relaxed);
                }
            }
            Action::StoreFailed(error) => self.fail(&error),
            Action::StoreFails(failing) => self.store_fails(&failing),
            Action::StoreRecovered => {
                eprintln!("tourbillon-durable: the store works again");
                self.tell_subscribers(|| Event::StoreRecovered);
            }
            Action::Drained => {}
        }
    }

    /// Answers workers if the node has heard whether the store is paused, or cannot hear of it because of `error`.
    fn answer_ask_paused(&mut self, error: Option<&StoreError>) {
        let answer = match error {
            _ if self.core.knows_pause() => Ok(self.core.is_paused()),
            Some(error) => Err(error.clone()),
            None => return,
        };
        self.ask_paused.drain(..).for_each(|waiting| reply(waiting, answer.clone()));
    }

    /// Learns the store's clock from the answer to a heartbeat.
    fn owned(&mut self, sent: Duration, result: Result<Ownership, StoreError>) {
        let error = result.as_ref().err().cloned();
        let result = match result {
            Ok(ownership) if self.config.store.has_other_writers() => {
                let offset = self.clocks.offset_of(ownership.now, sent);
                let off = Duration::from_micros(offset.unsigned_abs());
                let is_clock_off = off > self.clocks.max_skew;
                // Also if it is off too far: workers of this node still pull what is due by the store's clock.
                self.clocks.offset.store(offset, Ordering::Relaxed);
                self.stats.change(|stats| (stats.clock_skew, stats.is_clock_off) = (off, is_clock_off));
                if is_clock_off {
                    self.tell_core(Input::PauseHeard { sent, is_paused: ownership.is_paused });
                    let text = format!("the clock of this machine is off by {off:?} from the store's: set it right");
                    Err(StoreError::Unavailable(text))
                } else {
                    Ok(ownership)
                }
            }
            other => other,
        };
        self.tell_core(Input::Owned { sent, result });
        self.answer_ask_paused(error.as_ref());
    }

    fn ask(&mut self, ops: Vec<WriteOp>, is_group: bool, reply: ReplyTo) {
        let is_taken = match self.phase {
            LoopPhase::Running => true,
            // Handlers that are waited for may need their own requests to end.
            LoopPhase::Draining => self.core.deliveries() > 0,
            LoopPhase::Closing | LoopPhase::Ended => false,
        };
        if ops.is_empty() || !is_taken {
            let answers = ops.iter().map(|_| Err(StoreError::Closed)).collect();
            return reply.send(answers);
        }
        // The store may have been paused since the worker has asked. A pause is not over before its caller has its answer.
        if self.core.is_paused() && ops.iter().all(|op| matches!(op, WriteOp::Claim(_))) {
            return reply.send(ops.iter().map(|_| Ok(WriteAnswer::Claim(ClaimAnswer::Lost))).collect());
        }
        self.last_request += 1;
        let request = self.last_request;
        let answers = ops.iter().map(|_| None).collect();
        self.requests.insert(request, ClientRequest { answers, missing: ops.len(), reply });
        let is_watched = !self.subscribers.is_empty();
        let tagged = ops.into_iter().enumerate().map(|(index, op)| {
            let about = About::of(&op, is_watched);
            (op, Tag::Client { request, index, about })
        });
        if is_group {
            self.batcher.push_group(tagged.collect());
        } else {
            tagged.for_each(|(op, tag)| self.batcher.push(op, tag));
        }
    }

    fn write_batches(&mut self) {
        while let Some((ops, tags, groups)) = self.batcher.next_batch_with_groups() {
            let pending = PendingBatch::new(tags, self.mailbox.clone());
            self.store.write_in_parts(ops, groups, Box::new(move |places, result| pending.written(places, result)));
        }
    }

    fn written(&mut self, tags: Vec<Tag>, result: Result<Vec<WriteAnswer>, StoreError>, is_first: bool) {
        if is_first {
            self.batcher.done();
        }
        // The next batch is on its way while this one's answers are passed on.
        self.write_batches();
        let mut answers = result.map(Vec::into_iter);
        for tag in tags {
            let answer = match &mut answers {
                Ok(answers) => answers.next().ok_or(StoreError::Closed),
                Err(error) => Err(error.clone()),
            };
            match tag {
                Tag::Core(tag) => {
                    self.delivery_written(&tag, &answer);
                    self.tell_core(Input::Written(tag, answer));
                }
                Tag::Client { request, index, about } => {
                    self.notice(&about, &answer);
                    self.publish(about, &answer);
                    self.answer_client(request, index, answer);
                }
            }
        }
    }

    /// Tells the core of a row that a client has armed, or may have armed.
    fn notice(&mut self, about: &About, answer: &Result<WriteAnswer, StoreError>) {
        let (kind, entry) = match (about, answer) {
            (About::Create(spec), Ok(WriteAnswer::Create(CreateAnswer::Created { entry, .. }))) => {
                (spec.kind.clone(), *entry)
            }
            (_, Ok(WriteAnswer::Reschedule(RescheduleAnswer::Moved { kind, entry, .. }))) => (kind.clone(), *entry),
            // A worker that says no more leaves its row to the handler, when the lease is over.
            (_, Ok(WriteAnswer::Claim(ClaimAnswer::Claimed { row, next }))) => {
                for entry in next.iter().copied().chain([DueEntry::from(row)]) {
                    self.tell_core(Input::Noticed { kind: row.spec.kind.clone(), entry });
                }
                // Rows that workers have left, or have acknowledged to other nodes, are not kept for ever.
                if self.pulled.len() >= MOST_PULLED {
                    self.pulled.clear();
                }
                self.pulled.insert(row.id, row.spec.kind.clone());
                return;
            }
            (_, Ok(WriteAnswer::Extend(_))) if self.store.traits().has_other_writers() => return,
            // The lease ends at another time now, which the answer does not say.
            (About::Extend(id), Ok(WriteAnswer::Extend(Ok(())))) => {
                let hint = self.pulled.get(id).map_or(Input::Hinted, |kind| Input::HintedKind(kind.clone()));
                return self.tell_core(hint);
            }
            (About::Finish(op), Ok(WriteAnswer::Finish(Ok(armed)))) => {
                let kind = self.pulled.remove(&op.id);
                let Some(entry) = *armed else { return };
                let input = kind.map_or(Input::Hinted, |kind| Input::Noticed { kind, entry });
                return self.tell_core(input);
            }
            (
                _,
                Ok(
                    WriteAnswer::DeadLetter(Some(Some(_)))
                    | WriteAnswer::Claim(ClaimAnswer::GivenUp { next: Some(_), .. }),
                )
                | Err(StoreError::Uncertain(_)),
            ) => {
                return self.tell_core(Input::Hinted);
            }
            _ => return,
        };
        self.tell_core(Input::Noticed { kind, entry });
    }

    fn answer_client(&mut self, request: u64, index: usize, answer: Result<WriteAnswer, StoreError>) {
        let Some(waiting) = self.requests.get_mut(&request) else { return };
        waiting.answers[index] = Some(answer);
        waiting.missing -= 1;
        if waiting.missing == 0
            && let Some(done) = self.requests.remove(&request)
        {
            let answers = done.answers.into_iter().map(|answer| answer.unwrap_or(Err(StoreError::Closed))).collect();
            done.reply.send(answers);
        }
    }

    fn deliver(&mut self, id: DeliveryId, row: TimerRow) {
        let row = Arc::new(row);
        let abandoned = Arc::new(AtomicBool::new(false));
        self.tell_subscribers(|| Event::Claimed { row: Arc::clone(&row) });
        let running = RunningDelivery { row: Arc::clone(&row), abandoned: Arc::clone(&abandoned), ack: None };
        self.running.insert(id, running);
        let Some(handler) = self.handlers.get(&row.spec.kind).cloned() else {
            return self
                .mailbox
                .tell(Message::HandlerDone(id, Ack::RetryAfter(Duration::ZERO, "no handler".to_owned())));
        };
        self.stats.change(|stats| stats.begun += 1);
        let claim = (row.attempt == 1).then(|| self.clocks.now().store.since(row.due));
        let (stats, claimed) = (Arc::clone(&self.stats), Instant::now());
        // Made here, so that it tells of a future that is dropped before its first poll.
        let done = DoneGuard { id, mailbox: Some(self.mailbox.clone()) };
        self.threads.spawn(async move {
            let began = Instant::now();
            let ack = handler.call(Delivery::new(Arc::clone(&row), abandoned)).await;
            stats.record(&row.spec.namespace, claim, began - claimed, began.elapsed());
            done.send(ack);
        });
    }

    fn handler_done(&mut self, id: DeliveryId, ack: Ack) {
        let Some(delivery) = self.running.get_mut(&id) else { return };
        let row = &delivery.row;
        let verdict = match ack.clone() {
            Ack::Done => Verdict::Done,
            Ack::Retry(error) => Verdict::Retry { after: row.retry_delay(super::random(row.id)), error },
            Ack::RetryAfter(after, error) => Verdict::Retry { after, error },
            Ack::Postpone(after) => Verdict::Return { after },
            Ack::GiveUp(error) => Verdict::Dead { error },
        };
        self.stats.change(|stats| stats.count(&ack));
        delivery.ack = Some(ack);
        self.tell_core(Input::HandlerDone(id, verdict));
        // The core writes nothing for a delivery that it has abandoned.
        if !self.core.has_delivery(id) {
            self.running.remove(&id);
        }
    }

    /// Ends a delivery whose end the store has written or refused.
    fn delivery_written(&mut self, tag: &WriteTag, answer: &Result<WriteAnswer, StoreError>) {
        match (tag, answer) {
            (WriteTag::Finish(id), Ok(WriteAnswer::Finish(ended))) => {
                if let Some(RunningDelivery { row, ack: Some(ack), .. }) = self.running.remove(id) {
                    self.tell_subscribers(|| ended_event(row.id, Some(row), &ack, ended));
                }
            }
            (WriteTag::Claim(tag), Ok(WriteAnswer::Claim(ClaimAnswer::GivenUp { is_dead, .. }))) => {
                let id = tag.row_id();
                self.tell_subscribers(|| match is_dead {
                    true => Some(Event::Dead { id, row: None, error: "it was missed, or not acknowledged".to_owned() }),
                    false => Some(Event::Skipped { id, kind: tag.kind().to_owned() }),
                });
            }
            _ => {}
        }
    }

    /// Tells subscribers what an operation of a client has done.
    fn publish(&mut self, about: About, answer: &Result<WriteAnswer, StoreError>) {
        match (about, answer) {
            (About::Create(spec), Ok(WriteAnswer::Create(CreateAnswer::Created { entry, due, .. }))) => {
                let (id, due) = (entry.id.timer, *due);
                self.tell_subscribers(|| Event::Created { id, spec, due: due.to_system() });
            }
            (About::Cancel(Some(target)), Ok(WriteAnswer::Cancel(counts))) => {
                self.tell_subscribers(|| Event::Cancelled { target, counts: *counts });
            }
            (_, Ok(WriteAnswer::Reschedule(RescheduleAnswer::Moved { entry, kind, due }))) => {
                let (id, due) = (entry.id, due.to_system());
                self.tell_subscribers(|| Event::Rescheduled { id, kind: kind.clone(), due });
            }
            (About::Finish(op), Ok(WriteAnswer::Finish(ended))) => self.worker_finished(op, ended),
            (_, Ok(WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. }))) => {
                self.tell_subscribers(|| Event::Claimed { row: Arc::new(row.clone()) });
            }
            _ => {}
        }
    }

    /// Tells subscribers of a delivery that a worker has ended.
    fn worker_finished(&mut self, op: FinishOp, ended: &Result<Option<DueEntry>, StaleDelivery>) {
        let ack = match op.verdict {
            Verdict::Done => Ack::Done,
            Verdict::Retry { after, error } => Ack::RetryAfter(after, error),
            Verdict::Return { after } => Ack::Postpone(after),
            Verdict::Dead { error } => Ack::GiveUp(error),
        };
        self.tell_subscribers(|| ended_event(op.id, None, &ack, ended));
    }

    fn tell_subscribers<E: Into<Option<Event>>>(&mut self, event: impl FnOnce() -> E) {
        if !self.subscribers.is_empty()
            && let Some(event) = event().into()
        {
            self.subscribers.retain(|subscriber| subscriber.tell(event.clone()));
        }
    }

    fn begin_shutdown(&mut self, limit: Duration, done: oneshot::Sender<Result<(), TimersError>>) {
        if self.phase != LoopPhase::Running {
            return reply(done, Err(TimersError::Ended));
        }
        self.phase = LoopPhase::Draining;
        self.shutdown = Some(done);
        let mailbox = self.mailbox.clone();
        let timer = Timer::after(limit);
        timer.on_expiry(move |outcome| {
            if outcome == Outcome::Fired {
                mailbox.tell(Message::ShutdownLimit);
            }
        });
        self.alarms.keep(timer);
        self.tell_core(Input::Drain);
    }

    fn close(&mut self) {
        if matches!(self.phase, LoopPhase::Closing | LoopPhase::Ended) {
            return;
        }
        self.phase = LoopPhase::Closing;
        let mailbox = self.mailbox.clone();
        self.store.close(Reply::new(move |result| mailbox.tell(Message::Closed(result))));
    }

    fn closed(&mut self, result: Result<(), StoreError>) {
        self.phase = LoopPhase::Ended;
        let running = self.core.deliveries();
        let result = match result {
            Err(error) => Err(TimersError::Store(error)),
            Ok(()) if running > 0 => Err(TimersError::StillRunning(running)),
            Ok(()) => Ok(()),
        };
        if let Some(done) = self.shutdown.take() {
            reply(done, result);
        }
    }

    /// Tells of a request that has failed for long. The core goes on making it.
    fn store_fails(&mut self, failing: &FailingRequest) {
        let steady = self.clocks.now().steady;
        let FailingRequest { request, error, since, times } = failing;
        let hint = match error {
            StoreError::Internal(_) => "; an outage does not look like this",
            _ => "",
        };
        let seconds = steady.saturating_sub(*since).as_secs();
        eprintln!(
            "tourbillon-durable: for {seconds} s and {times} times the store has failed to {request}: {error}{hint}"
        );
        self.tell_subscribers(|| Event::StoreFails(StoreFailing::new(failing, steady)));
    }

    /// Ends the node after an error of the store that does not pass.
    fn fail(&mut self, error: &StoreError) {
        eprintln!("tourbillon-durable: {error}");
        let _is_first = self.failure.set(error.clone());
        self.phase = LoopPhase::Ended;
        if let Some(done) = self.shutdown.take() {
            reply(done, Err(TimersError::Store(error.clone())));
        }
    }
}

impl About {
    fn of(op: &WriteOp, is_watched: bool) -> About {
        match op {
            WriteOp::Create(op) => About::Create(Arc::clone(&op.spec)),
            WriteOp::Cancel(op) => About::Cancel(is_watched.then(|| op.target.clone())),
            WriteOp::Finish(op) => About::Finish(op.clone()),
            WriteOp::Extend(op) => About::Extend(op.id),
            _ => About::Other,
        }
    }
}

/// Returns what became of a delivery; `None` if its end was refused.
fn ended_event(
    id: RowId,
    row: Option<Arc<TimerRow>>,
    ack: &Ack,
    ended: &Result<Option<DueEntry>, StaleDelivery>,
) -> Option<Event> {
    let again = (*ended).ok()?;
    Some(match (ack, again) {
        (Ack::Done, _) => Event::Delivered { id, row },
        (Ack::Postpone(_), _) => return None,
        (Ack::Retry(error) | Ack::RetryAfter(_, error) | Ack::GiveUp(error), None) => {
            Event::Dead { id, row, error: error.clone() }
        }
        (Ack::Retry(error) | Ack::RetryAfter(_, error) | Ack::GiveUp(error), Some(entry)) => {
            Event::Failed { id, row, error: error.clone(), next: entry.wake.to_system() }
        }
    })
}

/// The operations of a batch that are not answered yet. If the store drops it, they are answered with [`StoreError::Closed`].
struct PendingBatch {
    tags: Mutex<Vec<Option<Tag>>>,
    is_first: AtomicBool,
    mailbox: Mailbox,
}

impl PendingBatch {
    fn new(tags: Vec<Tag>, mailbox: Mailbox) -> PendingBatch {
        let tags = tags.into_iter().map(Some).collect();
        PendingBatch { tags: Mutex::new(tags), is_first: AtomicBool::new(true), mailbox }
    }

    fn written(&self, places: &[usize], result: Result<Vec<WriteAnswer>, StoreError>) {
        let mut tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        let tags = places.iter().filter_map(|place| tags.get_mut(*place)?.take()).collect();
        let is_first = self.is_first.swap(false, Ordering::Relaxed);
        self.mailbox.tell(Message::Written { tags, result, is_first });
    }
}

impl Drop for PendingBatch {
    fn drop(&mut self) {
        let tags = std::mem::take(self.tags.get_mut().unwrap_or_else(PoisonError::into_inner));
        let tags: Vec<Tag> = tags.into_iter().flatten().collect();
        let is_first = *self.is_first.get_mut();
        if is_first || !tags.is_empty() {
            self.mailbox.tell(Message::Written { tags, result: Err(StoreError::Closed), is_first });
        }
    }
}

/// Reports a handler whose future was dropped before it ended, as one that failed.
struct DoneGuard {
    id: DeliveryId,
    mailbox: Option<Mailbox>,
}

impl DoneGuard {
    fn send(mut self, ack: Ack) {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.tell(Message::HandlerDone(self.id, ack));
        }
    }
}

impl Drop for DoneGuard {
    fn drop(&mut self) {
        if let Some(mailbox) = self.mailbox.take() {
            let ack = Ack::Retry("the executor dropped the handler before it had ended".to_owned());
            mailbox.tell(Message::HandlerDone(self.id, ack));
        }
    }
}
