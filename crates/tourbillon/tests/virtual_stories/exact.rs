//! Stories in whole milliseconds: both systems must give the same log, instant for instant.
//!
//! A story has one or two runtimes, stepped alternately on one thread, and each of them some tasks. A task's timers are due at
//! instants that no other task's timers of the runtime have (see [`Teller::aligned`]): the order in which tasks run
//! at one instant is not specified, and without ties no event depends on it. Hence logs are compared with the events of one
//! instant sorted by task.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::random::Random;
use crate::timers::{Missed, Restart, Timers, Whose};

/// A story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Whether the runtimes have an I/O driver below their timers.
    has_io: bool,
    pub(crate) parts: Vec<Part>,
}

/// What happens in one runtime.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The first is what `block_on` runs; the others are spawned by [`Step::Spawn`].
    pub(crate) tasks: Vec<Vec<Step>>,
}

/// Milliseconds. A deadline is this long from now, and up to as many milliseconds later as there are tasks.
type Ms = u64;

/// What a task does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Sleep(Ms),
    SleepUntil(Ms),
    /// Sleeps that are over already: of no duration, and until an instant in the past.
    SleepOver,
    /// Arms a sleep that the task keeps beside its next steps.
    Hold(Ms),
    /// Waits for the sleep that it has kept, if there is one.
    AwaitHeld,
    /// Arms a sleep, waits, sets it to another deadline, and waits for it.
    Reset {
        first: Ms,
        wait: Ms,
        second: Ms,
    },
    /// Arms a sleep, waits, and drops it.
    Cancel {
        first: Ms,
        wait: Ms,
    },
    /// Waits for the first of two sleeps, and then for the other or drops it.
    Either {
        one: Ms,
        other: Ms,
        both: bool,
    },
    TimeoutOfSleep {
        limit: Ms,
        sleep: Ms,
    },
    TimeoutOfMessage {
        from: usize,
        limit: Ms,
    },
    TimeoutOfReady {
        limit: Ms,
    },
    Interval {
        after: Ms,
        period: Ms,
        missed: Missed,
        steps: Vec<IntervalStep>,
    },
    Queue(Vec<QueueStep>),
    Send {
        to: usize,
    },
    Yield(u32),
    Spawn(usize),
    /// Waits for a closure that blocks a thread of the runtime's pool for so many microseconds.
    Block(u64),
    /// Starts the closure, does other steps, and waits for it.
    BlockBeside(u64, Vec<Step>),
    /// Waits for the closure with a timeout, which cannot end while the closure runs.
    TimeoutOfBlock {
        limit: Ms,
        micros: u64,
    },
    /// Asks for something that `tokio::fs` knows.
    File,
    Advance(Whose, Ms),
    /// Arms some sleeps and drops them, puts items into a queue and removes them, then waits for a thread that the runtime does not know: no time may pass.
    Outside {
        dropped: Vec<Ms>,
        micros: u64,
    },
    /// Leaves `block_on`. The other runtime, if there is one, goes on, and so many microseconds pass.
    Leave(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum IntervalStep {
    Tick,
    Wait(Ms),
    Reset,
    ResetAtOnce,
    ResetAfter(Ms),
    ResetAt(Ms),
}

#[derive(Clone, Debug)]
pub(crate) enum QueueStep {
    Insert(Ms),
    InsertAt(Ms),
    /// The item is one of those in the queue: this one modulo their number.
    Remove(usize),
    Reset(usize, Ms),
    Wait(Ms),
    /// Waits for an item, at most so long.
    Next(Ms),
}

/// Which steps a story has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Time moves by itself alone.
    Auto,
    /// Some tasks wait for threads of the blocking pool.
    Blocking,
    /// One task advances time.
    Advance,
    /// Two runtimes take turns, and each is left alone at times.
    TwoRuntimes,
    /// One task, which also waits for threads that the runtime does not know.
    Outside,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Auto, Kind::Blocking, Kind::Advance, Kind::TwoRuntimes, Kind::Outside];
}

/// Makes up a story.
pub(crate) fn make_up(kind: Kind, random: &mut Random) -> Story {
    let parts = if kind == Kind::TwoRuntimes { 2 } else { 1 };
    let has_io = random.below(2) == 0;
    Story { has_io, parts: (0..parts).map(|_| make_up_part(kind, random)).collect() }
}

fn make_up_part(kind: Kind, random: &mut Random) -> Part {
    let count = if kind == Kind::Outside { 1 } else { 2 + random.below(4) as usize };
    // The task that `block_on` runs is polled before others that are ready, a spawned one in its turn.
    let advancer = match kind {
        Kind::Advance | Kind::TwoRuntimes => Some(random.below(2) as usize),
        _ => None,
    };
    let mut tasks: Vec<Vec<Step>> = Vec::new();
    for task in 0..count {
        let steps = 1 + random.below(8);
        let role = Role {
            advances: advancer == Some(task),
            // When time is advanced, timers of several tasks are due at once. Those tasks run in the order of their deadlines, but
            // for the task that advances and that of `block_on`. What these two send and hear may not depend on it.
            talks: advancer.is_none_or(|advancer| task > advancer),
        };
        tasks.push((0..steps).map(|_| make_up_step(kind, count, role, random)).collect());
    }
    for task in 1..count {
        let spawner = random.below(task as u64) as usize;
        let place = match random.below(2) {
            0 => 0,
            _ => random.below(tasks[spawner].len() as u64 + 1) as usize,
        };
        tasks[spawner].insert(place, Step::Spawn(task));
    }
    if kind == Kind::TwoRuntimes {
        for _ in 0..1 + random.below(3) {
            let place = random.below(tasks[0].len() as u64 + 1) as usize;
            tasks[0].insert(place, Step::Leave(random.one_of([0, 0, 300, 1_200])));
        }
    }
    Part { tasks }
}

/// What a task may do.
#[derive(Clone, Copy)]
struct Role {
    advances: bool,
    talks: bool,
}

fn make_up_step(kind: Kind, tasks: usize, role: Role, random: &mut Random) -> Step {
    match (kind, random.below(8)) {
        (Kind::Blocking, 0) => return Step::Block(50 + random.below(600)),
        (Kind::Blocking, 1) => {
            let steps = 1 + random.below(2);
            let beside = (0..steps).map(|_| make_up_step(Kind::Auto, tasks, role, random)).collect();
            return Step::BlockBeside(50 + random.below(600), beside);
        }
        (Kind::Blocking, 2) => {
            return match random.below(3) {
                0 => Step::File,
                _ => Step::TimeoutOfBlock { limit: any_ms(random), micros: 50 + random.below(600) },
            };
        }
        (Kind::Outside, 0..3) => {
            let dropped = (0..random.below(4)).map(|_| any_ms(random)).collect();
            return Step::Outside { dropped, micros: random.below(600) };
        }
        _ => {}
    }
    if role.advances && random.below(2) == 0 {
        return Step::Advance(random.one_of([Whose::Own, Whose::Tokio]), any_ms(random));
    }
    match random.below(23) {
        0..2 => Step::Sleep(any_ms(random)),
        2 => Step::SleepUntil(any_ms(random)),
        3 => Step::SleepOver,
        4..6 => Step::Reset { first: any_ms(random), wait: any_ms(random), second: any_ms(random) },
        6 => Step::Cancel { first: any_ms(random), wait: any_ms(random) },
        7..9 => Step::Either { one: any_ms(random), other: any_ms(random), both: random.below(2) == 0 },
        9 => Step::TimeoutOfSleep { limit: any_ms(random), sleep: any_ms(random) },
        10..12 if role.talks => {
            Step::TimeoutOfMessage { from: random.below(tasks as u64) as usize, limit: any_ms(random) }
        }
        10..12 => Step::Sleep(any_ms(random)),
        12 => Step::TimeoutOfReady { limit: any_ms(random) },
        13..15 => Step::Interval {
            after: any_ms(random),
            period: 1 + any_ms(random),
            missed: random.one_of([Missed::Burst, Missed::Delay, Missed::Skip]),
            steps: (0..2 + random.below(8)).map(|_| make_up_interval_step(random)).collect(),
        },
        15..17 => Step::Queue((0..2 + random.below(10)).map(|_| make_up_queue_step(random)).collect()),
        17..19 if role.talks => Step::Send { to: random.below(tasks as u64) as usize },
        // While a timer is armed, a thread that the runtime does not know is not waited for: time moves.
        19 if kind != Kind::Outside => Step::Hold(any_ms(random)),
        20..22 if kind != Kind::Outside => Step::AwaitHeld,
        _ => Step::Yield(1 + random.below(3) as u32),
    }
}

fn make_up_interval_step(random: &mut Random) -> IntervalStep {
    match random.below(10) {
        0..5 => IntervalStep::Tick,
        5 => IntervalStep::Wait(any_ms(random)),
        6 => IntervalStep::Reset,
        7 => IntervalStep::ResetAtOnce,
        8 => IntervalStep::ResetAfter(any_ms(random)),
        _ => IntervalStep::ResetAt(any_ms(random)),
    }
}

fn make_up_queue_step(random: &mut Random) -> QueueStep {
    match random.below(10) {
        0..3 => QueueStep::Insert(any_ms(random)),
        3 => QueueStep::InsertAt(any_ms(random)),
        4 => QueueStep::Remove(random.below(100) as usize),
        5 => QueueStep::Reset(random.below(100) as usize, any_ms(random)),
        6 => QueueStep::Wait(any_ms(random)),
        _ => QueueStep::Next(any_ms(random)),
    }
}

/// Of every order of magnitude that a wheel has levels for.
fn any_ms(random: &mut Random) -> Ms {
    let bound = random.one_of([3, 30, 30, 300, 300, 3_000, 100_000, 50_000_000]);
    random.below(bound)
}

/// Something that happened: at which virtual time since the start of its runtime, in which part and task, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    at: Duration,
    part: usize,
    task: usize,
    what: String,
}

/// Tells a story to timers, and returns what happened: in the order of time, and at one instant in that of the tasks.
pub(crate) fn tell<T: Timers>(story: &Arc<Story>) -> Vec<Event> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut runs: Vec<Run<T>> = (0..story.parts.len()).map(|part| Run::new(story, part, &log)).collect();
    while runs.iter().any(|run| !run.is_over) {
        runs.iter_mut().filter(|run| !run.is_over).for_each(Run::go_on);
    }
    drop(runs);
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    log.sort_by_key(|event| (event.part, event.at, event.task));
    log
}

/// A runtime in which a part of a story is being told.
struct Run<T: Timers> {
    story: Arc<Story>,
    runtime: Runtime,
    teller: Teller<T>,
    /// The first step that is not done yet.
    next: usize,
    is_over: bool,
}

impl<T: Timers> Run<T> {
    fn new(story: &Arc<Story>, part: usize, log: &Arc<Mutex<Vec<Event>>>) -> Run<T> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        if story.has_io {
            builder.enable_io();
        }
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let count = story.parts[part].tasks.len();
        let mut receivers: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut senders: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for sender in &mut senders {
            for receiver in &mut receivers {
                let (send, receive) = unbounded_channel();
                sender.push(send);
                receiver.push(receive);
            }
        }
        let start = runtime.block_on(async { T::now() });
        let shared = Arc::new(Shared {
            story: story.clone(),
            part,
            start,
            log: log.clone(),
            senders,
            receivers: Mutex::new(receivers.into_iter().map(Some).collect()),
            spawned: Mutex::new(Vec::new()),
        });
        let teller = Teller::new(shared, 0);
        Run { story: story.clone(), runtime, teller, next: 0, is_over: false }
    }

    /// Goes on until the runtime is to be left.
    fn go_on(&mut self) {
        let rest = &self.story.parts[self.teller.shared.part].tasks[0][self.next..];
        let now = rest.iter().position(|step| matches!(step, Step::Leave(_))).unwrap_or(rest.len());
        let leaves = rest.get(now);
        let teller = &mut self.teller;
        self.runtime.block_on(async {
            teller.note("comes");
            teller.tell(&rest[..now]).await;
            if leaves.is_none() {
                teller.shared.join_all().await;
            }
            teller.note("leaves");
        });
        if let Some(Step::Leave(micros)) = leaves {
            std::thread::sleep(Duration::from_micros(*micros));
        }
        (self.next, self.is_over) = (self.next + now + 1, leaves.is_none());
    }
}

/// What the tasks of a runtime share.
struct Shared<T: Timers> {
    story: Arc<Story>,
    part: usize,
    start: T::Instant,
    log: Arc<Mutex<Vec<Event>>>,
    /// By sender and receiver: which of two senders comes first is not specified.
    senders: Vec<Vec<UnboundedSender<u32>>>,
    receivers: Mutex<Vec<Option<Vec<UnboundedReceiver<u32>>>>>,
    spawned: Mutex<Vec<JoinHandle<()>>>,
}

impl<T: Timers> Shared<T> {
    /// Waits for all tasks, and for those that they spawn.
    async fn join_all(&self) {
        loop {
            let task = self.spawned.lock().unwrap().pop();
            match task {
                Some(task) => task.await.unwrap(),
                None => return,
            }
        }
    }
}

/// Tells the steps of one task.
struct Teller<T: Timers> {
    shared: Arc<Shared<T>>,
    task: usize,
    receivers: Vec<UnboundedReceiver<u32>>,
    sent: u32,
    held: Option<Pin<Box<T::Sleep>>>,
}

impl<T: Timers> Teller<T> {
    fn new(shared: Arc<Shared<T>>, task: usize) -> Teller<T> {
        let receivers = shared.receivers.lock().unwrap()[task].take().expect("a task is spawned once");
        Teller { shared, task, receivers, sent: 0, held: None }
    }

    fn note(&self, what: impl Into<String>) {
        let at = self.elapsed();
        let event = Event { at, part: self.shared.part, task: self.task, what: what.into() };
        self.shared.log.lock().unwrap().push(event);
    }

    fn elapsed(&self) -> Duration {
        T::between(self.shared.start, T::now())
    }

    fn since_start(&self, instant: T::Instant) -> u128 {
        T::between(self.shared.start, instant).as_millis()
    }

    /// How long it is from now to the first instant, `ms` from now or later, whose milliseconds since the start are this
    /// task's number modulo that of the tasks.
    fn aligned(&self, ms: Ms) -> Duration {
        let now = self.elapsed();
        let millis = now.as_millis() as u64;
        assert_eq!(now, Duration::from_millis(millis), "time is moved in whole milliseconds");
        let (tasks, task) = (self.shared.story.parts[self.shared.part].tasks.len() as u64, self.task as u64);
        let earliest = millis + ms.max(1);
        let due = earliest + (task + tasks - earliest % tasks) % tasks;
        Duration::from_millis(due - millis)
    }

    fn until(&self, ms: Ms) -> T::Instant {
        T::after(T::now(), self.aligned(ms))
    }

    fn tell<'a>(&'a mut self, steps: &'a [Step]) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            for step in steps {
                self.step(step).await;
            }
        })
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep(ms) => {
                T::sleep(self.aligned(ms)).await;
                self.note("slept");
            }
            Step::SleepUntil(ms) => {
                T::sleep_until(self.until(ms)).await;
                self.note("slept until");
            }
            Step::SleepOver => {
                T::sleep(Duration::ZERO).await;
                self.note("slept for no time");
                T::sleep_until(self.shared.start).await;
                self.note("slept until the past");
            }
            Step::Hold(ms) => {
                let mut sleep = Box::pin(T::sleep(self.aligned(ms)));
                arm(sleep.as_mut()).await;
                self.held = Some(sleep);
            }
            Step::AwaitHeld => {
                if let Some(sleep) = self.held.take() {
                    self.note(format!("waits for what it holds, elapsed: {}", T::is_elapsed(&sleep)));
                    sleep.await;
                    self.note("slept as held");
                }
            }
            Step::Reset { first, wait, second } => self.reset(first, wait, second).await,
            Step::Cancel { first, wait } => {
                let mut sleep = Box::pin(T::sleep(self.aligned(first)));
                arm(sleep.as_mut()).await;
                T::sleep(self.aligned(wait)).await;
                self.note(format!("drops a sleep, elapsed: {}", T::is_elapsed(&sleep)));
            }
            Step::Either { one, other, both } => self.either(one, other, both).await,
            Step::TimeoutOfSleep { limit, sleep } => {
                let sleep = T::sleep(self.aligned(sleep));
                let result = T::timeout(self.aligned(limit), sleep).await;
                self.note(format!("timeout of a sleep: {result:?}"));
            }
            Step::TimeoutOfMessage { from, limit } => {
                let limit = self.until(limit);
                let result = T::timeout_at(limit, self.receivers[from].recv()).await;
                self.note(format!("timeout of a message from {from}: {result:?}"));
            }
            Step::TimeoutOfReady { limit } => {
                let result = T::timeout(self.aligned(limit), std::future::ready(7)).await;
                self.note(format!("timeout of a value: {result:?}"));
                let result = T::timeout(Duration::ZERO, std::future::pending::<()>()).await;
                self.note(format!("timeout of no time: {result:?}"));
            }
            Step::Interval { after, period, missed, ref steps } => self.interval(after, period, missed, steps).await,
            Step::Queue(ref steps) => self.queue(steps).await,
            Step::Send { to } => {
                self.sent += 1;
                let _sent = self.shared.senders[self.task][to].send(self.sent);
                self.note(format!("sends {} to {to}", self.sent));
            }
            Step::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
                self.note("yielded");
            }
            Step::Spawn(task) => self.spawn(task),
            Step::Block(micros) => {
                block(micros).await.unwrap();
                self.note("blocked");
            }
            Step::BlockBeside(micros, ref steps) => {
                let blocked = block(micros);
                self.tell(steps).await;
                blocked.await.unwrap();
                self.note("blocked beside");
            }
            Step::TimeoutOfBlock { limit, micros } => {
                let result = T::timeout(self.aligned(limit), block(micros)).await;
                self.note(format!("timeout of a closure, ended: {}", result.is_some_and(|result| result.is_ok())));
            }
            Step::File => {
                let exists = tokio::fs::try_exists("/").await.unwrap();
                self.note(format!("a file exists: {exists}"));
            }
            Step::Advance(whose, ms) => {
                settle().await;
                T::advance(whose, Duration::from_millis(ms)).await;
                settle().await;
                self.note(format!("advanced by {ms}"));
            }
            Step::Outside { ref dropped, micros } => self.outside(dropped, micros).await,
            Step::Leave(_) => unreachable!("the runtime is left between the steps"),
        }
    }

    fn spawn(&self, task: usize) {
        let mut teller = Teller::new(self.shared.clone(), task);
        self.note(format!("spawns {task}"));
        let story = self.shared.story.clone();
        let handle = tokio::spawn(async move {
            teller.note("begins");
            let steps = &story.parts[teller.shared.part].tasks[task];
            teller.tell(steps).await;
        });
        self.shared.spawned.lock().unwrap().push(handle);
    }

    async fn reset(&self, first: Ms, wait: Ms, second: Ms) {
        let mut sleep = pin!(T::sleep(self.aligned(first)));
        arm(sleep.as_mut()).await;
        T::sleep(self.aligned(wait)).await;
        let deadline = self.since_start(T::deadline(&sleep));
        self.note(format!("resets a sleep until {deadline}, elapsed: {}", T::is_elapsed(&sleep)));
        T::reset(sleep.as_mut(), self.until(second));
        sleep.as_mut().await;
        self.note(format!("slept until {}", self.since_start(T::deadline(&sleep))));
    }

    async fn either(&self, one: Ms, other: Ms, both: bool) {
        let (mut one, mut other) = (pin!(T::sleep(self.aligned(one))), pin!(T::sleep(self.aligned(other))));
        let is_one = poll_fn(|cx| {
            let (one, other) = (one.as_mut().poll(cx), other.as_mut().poll(cx));
            match (one, other) {
                (Poll::Ready(()), Poll::Ready(())) => Poll::Ready(None),
                (Poll::Ready(()), Poll::Pending) => Poll::Ready(Some(true)),
                (Poll::Pending, Poll::Ready(())) => Poll::Ready(Some(false)),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        });
        let is_one = is_one.await;
        self.note(format!("the first of two sleeps: {is_one:?}"));
        match is_one {
            Some(true) if both => other.await,
            Some(false) if both => one.await,
            _ => return,
        }
        self.note("the second of two sleeps");
    }

    async fn interval(&self, after: Ms, period: Ms, missed: Missed, steps: &[IntervalStep]) {
        // From an instant of its own on, all ticks are at such ones, as long as no task advances it.
        T::sleep(self.aligned(0)).await;
        let tasks = self.shared.story.parts[self.shared.part].tasks.len() as u64;
        let period = Duration::from_millis(period.next_multiple_of(tasks));
        let mut interval = T::interval_at(self.until(after), period, missed);
        for step in steps {
            match *step {
                IntervalStep::Tick => {
                    let tick = T::tick(&mut interval).await;
                    self.note(format!("tick of {}", self.since_start(tick)));
                }
                IntervalStep::Wait(ms) => T::sleep(self.aligned(ms)).await,
                IntervalStep::Reset => T::restart(&mut interval, Restart::FromNow),
                IntervalStep::ResetAtOnce => T::restart(&mut interval, Restart::AtOnce),
                IntervalStep::ResetAfter(ms) => T::restart(&mut interval, Restart::After(self.aligned(ms))),
                IntervalStep::ResetAt(ms) => T::restart(&mut interval, Restart::At(self.until(ms))),
            }
        }
        drop(interval);
        T::sleep(self.aligned(0)).await;
    }

    /// No two items have the same deadline, as the order of those is not specified.
    async fn queue(&self, steps: &[QueueStep]) {
        let tasks = self.shared.story.parts[self.shared.part].tasks.len() as u64;
        let mut queue = T::queue();
        let (mut keys, mut deadlines) = (BTreeMap::new(), BTreeSet::new());
        let mut timeout = |ms| {
            let (now, mut timeout) = (self.elapsed(), self.aligned(ms));
            while !deadlines.insert(now + timeout) {
                timeout += Duration::from_millis(tasks);
            }
            timeout
        };
        for (item, step) in (0..).zip(steps) {
            let pick = |index: usize| keys.iter().nth(index % keys.len().max(1)).map(|(item, key)| (*item, *key));
            match *step {
                QueueStep::Insert(ms) => {
                    keys.insert(item, T::insert(&mut queue, item, timeout(ms)));
                }
                QueueStep::InsertAt(ms) => {
                    let when = T::after(T::now(), timeout(ms));
                    keys.insert(item, T::insert_at(&mut queue, item, when));
                }
                QueueStep::Remove(index) => {
                    if let Some((item, key)) = pick(index) {
                        keys.remove(&item);
                        self.note(format!("removed {}", T::remove(&mut queue, key)));
                    }
                }
                QueueStep::Reset(index, ms) => {
                    if let Some((item, key)) = pick(index) {
                        T::postpone(&mut queue, key, timeout(ms));
                        self.note(format!("postponed {item}"));
                    }
                }
                QueueStep::Wait(ms) => T::sleep(self.aligned(ms)).await,
                QueueStep::Next(limit) => {
                    let next = T::timeout(self.aligned(limit), T::next(&mut queue)).await;
                    self.note(format!("next item in time: {next:?}"));
                    if let Some(Some(item)) = next {
                        keys.remove(&item);
                    }
                }
            }
        }
        while let Some(item) = T::next(&mut queue).await {
            self.note(format!("next item: {item}"));
        }
    }

    async fn outside(&self, dropped: &[Ms], micros: u64) {
        let mut sleeps: Vec<_> = dropped.iter().map(|ms| Box::pin(T::sleep(self.aligned(*ms)))).collect();
        for sleep in &mut sleeps {
            arm(sleep.as_mut()).await;
        }
        // A queue that has been waited for and is empty again waits for nothing.
        let mut queue = T::queue();
        let keys: Vec<_> =
            (0..).zip(dropped).map(|(item, ms)| T::insert(&mut queue, item, self.aligned(*ms))).collect();
        let next = poll_fn(|cx| Poll::Ready(T::poll_expired(&mut queue, cx))).await;
        assert_eq!(next.is_pending(), !dropped.is_empty());
        for key in keys {
            T::remove(&mut queue, key);
        }
        drop(sleeps);
        let (send, receive) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            let _sent = send.send(());
        });
        receive.await.unwrap();
        thread.join().unwrap();
        drop(queue);
        self.note("a thread has answered");
    }
}

/// Polls a sleep once, so that it is armed.
async fn arm(mut sleep: Pin<&mut impl Future<Output = ()>>) {
    poll_fn(|cx| {
        assert!(sleep.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Lets the other tasks do all that they can do without time.
///
/// Which tasks run before `advance` returns is not specified, nor at which poll after it a sleep of no time ends: Tokio's driver
/// may not have seen yet that time has moved. So all tasks wait for timers or messages when time is advanced, and again
/// before the task that advances it goes on.
async fn settle() {
    // As often as a task can yield in all of its steps.
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

/// Blocks a thread of the runtime's pool.
fn block(micros: u64) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || std::thread::sleep(Duration::from_micros(micros)))
}

/// Takes out of a story, one by one, the steps without which `fails` is still true.
pub(crate) fn shrink(story: &Story, fails: impl Fn(&Story) -> bool) -> Story {
    let mut story = story.clone();
    loop {
        let smaller = smaller(&story).find(|story| fails(story));
        match smaller {
            Some(smaller) => story = smaller,
            None => return story,
        }
    }
}

/// The stories with one step less. A task whose spawning is left out stays, so that the instants of the others do not change.
fn smaller(story: &Story) -> impl Iterator<Item = Story> {
    let mut all = Vec::new();
    for (part, Part { tasks }) in story.parts.iter().enumerate() {
        for (task, steps) in tasks.iter().enumerate() {
            for (step, of) in steps.iter().enumerate() {
                let mut without = story.clone();
                without.parts[part].tasks[task].remove(step);
                all.push(without);
                let mut with = |of| {
                    let mut other = story.clone();
                    other.parts[part].tasks[task][step] = of;
                    all.push(other);
                };
                match of {
                    Step::Interval { after, period, missed, steps } => {
                        for steps in one_less(steps) {
                            with(Step::Interval { after: *after, period: *period, missed: *missed, steps });
                        }
                    }
                    Step::Queue(steps) => one_less(steps).for_each(|steps| with(Step::Queue(steps))),
                    Step::BlockBeside(micros, steps) => {
                        one_less(steps).for_each(|steps| with(Step::BlockBeside(*micros, steps)));
                    }
                    _ => {}
                }
            }
        }
    }
    all.into_iter()
}

fn one_less<S: Clone>(steps: &[S]) -> impl Iterator<Item = Vec<S>> {
    (0..steps.len()).map(|left_out| [&steps[..left_out], &steps[left_out + 1..]].concat())
}
