//! The thread of a node: it passes what happens to the core, and does what the core says.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use futures_channel::oneshot;
use tourbillon::{Clock, Engine, Outcome, Timer};

use super::TimersError;
use super::delivery::{Ack, Delivery};
use super::handlers::{Handler, HandlerThreads};
use super::stats::StatsRecorder;
use crate::batch::Batcher;
use crate::core::{Action, Core, CoreConfig, DeliveryId, Input, Now, WriteTag};
use crate::store::{
    ClaimAnswer, CreateAnswer, Ownership, Reply, RescheduleAnswer, Store, StoreError, TimerRow, Verdict, WriteAnswer,
    WriteOp,
};
use crate::time::StoreTime;

/// What a node is told by other threads.
#[expect(clippy::large_enum_variant, reason = "messages are moved once")]
pub(super) enum Message {
    /// Operations of a client.
    Ask(Vec<WriteOp>, oneshot::Sender<Vec<Result<WriteAnswer, StoreError>>>),
    /// The store has written a batch, or failed.
    Written(Vec<Tag>, Result<Vec<WriteAnswer>, StoreError>),
    /// The core is to be told something.
    Core(Input),
    /// The handler of a kind.
    Register { kind: String, limit: usize, handler: Option<Handler> },
    /// A handler has ended.
    HandlerDone(DeliveryId, Ack),
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
        kind: Option<String>,
    },
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
    reply: oneshot::Sender<Vec<Result<WriteAnswer, StoreError>>>,
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
    abandoned: HashMap<DeliveryId, Arc<AtomicBool>>,
    /// The policies of running deliveries, for their retries.
    running: HashMap<DeliveryId, Arc<TimerRow>>,
    stats: Arc<StatsRecorder>,
    clocks: NodeClocks,
    alarms: Alarms,
    shutdown: Option<oneshot::Sender<Result<(), TimersError>>>,
    phase: LoopPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoopPhase {
    Running,
    Draining,
    Closing,
    Ended,
}

/// The clocks of a node.
struct NodeClocks {
    origin: Instant,
    /// What is added to the system's clock to have the store's, in microseconds. Only the node's thread changes it.
    offset: Arc<AtomicI64>,
    max_skew: Duration,
}

/// Two timers that wake the node: by the store's clock, which may be set, and by the steady one.
struct Alarms {
    by_store: (Timer, Option<StoreTime>),
    steady: (Timer, Option<Duration>),
    shutdown: Option<Timer>,
    _wall: Engine,
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
            abandoned: HashMap::new(),
            running: HashMap::new(),
            stats,
            clocks: NodeClocks { origin: Instant::now(), offset, max_skew },
            alarms: Alarms::new()?,
            shutdown: None,
            phase: LoopPhase::Running,
        })
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
            Message::Ask(ops, reply) => self.ask(ops, reply),
            Message::Written(tags, result) => self.written(tags, result),
            Message::Core(Input::Owned { sent, result }) => self.owned(sent, result),
            Message::Core(input) => self.tell_core(input),
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
                if let Some(flag) = self.abandoned.get(&id) {
                    flag.store(true, Ordering::Relaxed);
                }
            }
            Action::StoreFailed(error) => self.fail(&error),
            Action::Drained => {}
        }
    }

    /// Learns the store's clock from the answer to a heartbeat.
    fn owned(&mut self, sent: Duration, result: Result<Ownership, StoreError>) {
        let result = match result {
            Ok(ownership) if self.config.store.has_other_writers => {
                let offset = self.clocks.offset_of(ownership.now, sent);
                let off = Duration::from_micros(offset.unsigned_abs());
                if off > self.clocks.max_skew {
                    let text = format!("the clock of this machine is off by {off:?} from the store's: set it right");
                    Err(StoreError::Unavailable(text))
                } else {
                    self.clocks.offset.store(offset, Ordering::Relaxed);
                    Ok(ownership)
                }
            }
            other => other,
        };
        self.tell_core(Input::Owned { sent, result });
    }

    fn ask(&mut self, ops: Vec<WriteOp>, reply: oneshot::Sender<Vec<Result<WriteAnswer, StoreError>>>) {
        if ops.is_empty() || self.phase != LoopPhase::Running {
            let answers = ops.iter().map(|_| Err(StoreError::Closed)).collect();
            return drop(reply.send(answers));
        }
        self.last_request += 1;
        let request = self.last_request;
        let answers = ops.iter().map(|_| None).collect();
        self.requests.insert(request, ClientRequest { answers, missing: ops.len(), reply });
        for (index, op) in ops.into_iter().enumerate() {
            let kind = match &op {
                WriteOp::Create(op) => Some(op.spec.kind.clone()),
                _ => None,
            };
            self.batcher.push(op, Tag::Client { request, index, kind });
        }
    }

    fn write_batches(&mut self) {
        while let Some((ops, tags)) = self.batcher.next_batch() {
            let mailbox = self.mailbox.clone();
            self.store.write(ops, Reply::new(move |result| mailbox.tell(Message::Written(tags, result))));
        }
    }

    fn written(&mut self, tags: Vec<Tag>, result: Result<Vec<WriteAnswer>, StoreError>) {
        self.batcher.done();
        // The next batch is on its way while this one's answers are passed on.
        self.write_batches();
        let mut answers = result.map(Vec::into_iter);
        for tag in tags {
            let answer = match &mut answers {
                Ok(answers) => answers.next().ok_or(StoreError::Closed),
                Err(error) => Err(error.clone()),
            };
            match tag {
                Tag::Core(tag) => self.tell_core(Input::Written(tag, answer)),
                Tag::Client { request, index, kind } => {
                    self.notice(kind, &answer);
                    self.answer_client(request, index, answer);
                }
            }
        }
    }

    /// Tells the core of a row that a client has armed, or may have armed.
    fn notice(&mut self, kind: Option<String>, answer: &Result<WriteAnswer, StoreError>) {
        let (kind, entry) = match (kind, answer) {
            (Some(kind), Ok(WriteAnswer::Create(CreateAnswer::Created { entry, .. }))) => (kind, *entry),
            (_, Ok(WriteAnswer::Reschedule(RescheduleAnswer::Moved { kind, entry, .. }))) => (kind.clone(), *entry),
            (_, Ok(WriteAnswer::Claim(ClaimAnswer::Claimed { row, next: Some(entry) }))) => {
                (row.spec.kind.clone(), *entry)
            }
            (
                _,
                Ok(
                    WriteAnswer::DeadLetter(Some(Some(_)))
                    | WriteAnswer::Finish(Ok(Some(_)))
                    | WriteAnswer::Claim(ClaimAnswer::GivenUp { next: Some(_) }),
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
            let _dropped = done.reply.send(answers);
        }
    }

    fn deliver(&mut self, id: DeliveryId, row: TimerRow) {
        let row = Arc::new(row);
        self.running.insert(id, Arc::clone(&row));
        let Some(handler) = self.handlers.get(&row.spec.kind).cloned() else {
            return self
                .mailbox
                .tell(Message::HandlerDone(id, Ack::RetryAfter(Duration::ZERO, "no handler".to_owned())));
        };
        let abandoned = Arc::new(AtomicBool::new(false));
        self.abandoned.insert(id, Arc::clone(&abandoned));
        self.stats.change(|stats| stats.begun += 1);
        let claim = (row.attempt == 1).then(|| self.clocks.now().store.since(row.due));
        let (mailbox, stats, claimed) = (self.mailbox.clone(), Arc::clone(&self.stats), Instant::now());
        self.threads.spawn(async move {
            let done = DoneGuard { id, mailbox: Some(mailbox) };
            let began = Instant::now();
            let ack = handler.call(Delivery::new(Arc::clone(&row), abandoned)).await;
            stats.record(&row.spec.namespace, claim, began - claimed, began.elapsed());
            done.send(ack);
        });
    }

    fn handler_done(&mut self, id: DeliveryId, ack: Ack) {
        self.abandoned.remove(&id);
        let Some(row) = self.running.remove(&id) else { return };
        self.stats.change(|stats| stats.count(&ack));
        let verdict = match ack {
            Ack::Done => Verdict::Done,
            Ack::Retry(error) => {
                let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), row.id);
                Verdict::Retry { after: row.retry_delay(random), error }
            }
            Ack::RetryAfter(after, error) => Verdict::Retry { after, error },
            Ack::Postpone(after) => Verdict::Return { after },
            Ack::GiveUp(error) => Verdict::Dead { error },
        };
        self.tell_core(Input::HandlerDone(id, verdict));
    }

    fn begin_shutdown(&mut self, limit: Duration, done: oneshot::Sender<Result<(), TimersError>>) {
        if self.phase != LoopPhase::Running {
            let _dropped = done.send(Err(TimersError::Ended));
            return;
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
            let _dropped = done.send(result);
        }
    }

    /// Ends the node after an error of the store that does not pass.
    fn fail(&mut self, error: &StoreError) {
        eprintln!("tourbillon-durable: {error}");
        self.phase = LoopPhase::Ended;
        if let Some(done) = self.shutdown.take() {
            let _dropped = done.send(Err(TimersError::Store(error.clone())));
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

impl NodeClocks {
    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn now(&self) -> Now {
        let system = StoreTime::try_from(SystemTime::now()).unwrap_or_default();
        let store = StoreTime::from_micros(system.as_micros().saturating_add_signed(self.offset()));
        Now { store, steady: self.origin.elapsed() }
    }

    /// Returns the difference of the clocks, if the store read its clock halfway between `sent` and now.
    fn offset_of(&self, store: StoreTime, sent: Duration) -> i64 {
        let system = StoreTime::try_from(SystemTime::now()).unwrap_or_default();
        let half = self.origin.elapsed().saturating_sub(sent) / 2;
        let read_at = system.saturating_sub(half);
        store.as_micros() as i64 - read_at.as_micros() as i64
    }

    /// Returns the time of the system's clock when the store's shows `time`.
    fn system_time(&self, time: StoreTime) -> SystemTime {
        StoreTime::from_micros(time.as_micros().saturating_add_signed(-self.offset())).to_system()
    }
}

impl Alarms {
    fn new() -> Result<Alarms, TimersError> {
        let wall = Engine::builder().clock(Clock::wall()).build();
        let wall = wall.map_err(|error| TimersError::Thread(error.to_string()))?;
        Ok(Alarms { by_store: (Timer::on(&wall), None), steady: (Timer::new(), None), shutdown: None, _wall: wall })
    }

    /// Sets the alarms, unless they are set so already.
    fn set(&mut self, wakeup: crate::core::Wakeup, now: Now, clocks: &NodeClocks, mailbox: &Mailbox) {
        if self.by_store.1 != wakeup.store {
            self.by_store.1 = wakeup.store;
            self.by_store.0.cancel();
            if let Some(at) = wakeup.store {
                self.by_store.0.expires_at_wall(clocks.system_time(at));
                ring(&self.by_store.0, mailbox);
            }
        }
        if self.steady.1 != wakeup.steady {
            self.steady.1 = wakeup.steady;
            self.steady.0.cancel();
            if let Some(at) = wakeup.steady {
                self.steady.0.expires_after(at.saturating_sub(now.steady));
                ring(&self.steady.0, mailbox);
            }
        }
    }

    /// Has both alarms set again: one of them has gone off.
    fn forget(&mut self) {
        (self.by_store.1, self.steady.1) = (None, None);
        self.by_store.0.cancel();
        self.steady.0.cancel();
    }

    /// Keeps the timer of a shutdown: a timer that is dropped cancels its waits.
    fn keep(&mut self, timer: Timer) {
        self.shutdown = Some(timer);
    }
}

fn ring(timer: &Timer, mailbox: &Mailbox) {
    let mailbox = mailbox.clone();
    timer.on_expiry(move |outcome| {
        if outcome == Outcome::Fired {
            mailbox.tell(Message::Alarm);
        }
    });
}
