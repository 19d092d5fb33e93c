//! Running a story on a set of timers.

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

use super::{IntervalStep, Ms, QueueStep, Step, Story};
use crate::timers::{Missed, Restart, Timers};

/// An event: its virtual time since the start of its runtime, its part and task, and its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    at: Duration,
    part: usize,
    task: usize,
    what: String,
}

/// Runs a story on a set of timers, and returns the events in the order of time, those of one instant in the order of the tasks.
pub(crate) fn run<T: Timers>(story: &Arc<Story>) -> Vec<Event> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut runs: Vec<PartRun<T>> = (0..story.parts.len()).map(|part| PartRun::new(story, part, &log)).collect();
    while runs.iter().any(|run| !run.is_over) {
        runs.iter_mut().filter(|run| !run.is_over).for_each(PartRun::resume);
    }
    drop(runs);
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    log.sort_by_key(|event| (event.part, event.at, event.task));
    log
}

/// A runtime that runs a part of a story.
struct PartRun<T: Timers> {
    story: Arc<Story>,
    runtime: Runtime,
    runner: TaskRunner<T>,
    /// The index of the first step that is not done yet.
    next: usize,
    is_over: bool,
}

impl<T: Timers> PartRun<T> {
    fn new(story: &Arc<Story>, part: usize, log: &Arc<Mutex<Vec<Event>>>) -> PartRun<T> {
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
        let runner = TaskRunner::new(shared, 0);
        PartRun { story: story.clone(), runtime, runner, next: 0, is_over: false }
    }

    /// Continues until the runtime is to be left.
    fn resume(&mut self) {
        let rest = &self.story.parts[self.runner.shared.part].tasks[0][self.next..];
        let now = rest.iter().position(|step| matches!(step, Step::Leave(_))).unwrap_or(rest.len());
        let leaves = rest.get(now);
        let runner = &mut self.runner;
        self.runtime.block_on(async {
            runner.note("enters block_on");
            runner.run(&rest[..now]).await;
            if leaves.is_none() {
                runner.shared.join_all().await;
            }
            runner.note("leaves block_on");
        });
        if let Some(Step::Leave(micros)) = leaves {
            std::thread::sleep(Duration::from_micros(*micros));
        }
        (self.next, self.is_over) = (self.next + now + 1, leaves.is_none());
    }
}

/// The state that the tasks of a runtime share.
struct Shared<T: Timers> {
    story: Arc<Story>,
    part: usize,
    start: T::Instant,
    log: Arc<Mutex<Vec<Event>>>,
    /// By sender and receiver: the order of two senders is not specified.
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

/// Runs the steps of one task.
struct TaskRunner<T: Timers> {
    shared: Arc<Shared<T>>,
    task: usize,
    receivers: Vec<UnboundedReceiver<u32>>,
    sent: u32,
    held: Option<Pin<Box<T::Sleep>>>,
}

impl<T: Timers> TaskRunner<T> {
    fn new(shared: Arc<Shared<T>>, task: usize) -> TaskRunner<T> {
        let receivers = shared.receivers.lock().unwrap()[task].take().expect("a task is spawned once");
        TaskRunner { shared, task, receivers, sent: 0, held: None }
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

    /// Returns the time from now to the first instant, `ms` from now or later, whose milliseconds since the start are this task's number
    /// modulo the number of tasks.
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

    fn run<'a>(&'a mut self, steps: &'a [Step]) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
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
                    self.note(format!("waits for the held sleep, elapsed: {}", T::is_elapsed(&sleep)));
                    sleep.await;
                    self.note("the held sleep has ended");
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
                self.run(steps).await;
                blocked.await.unwrap();
                self.note("a closure has ended beside other steps");
            }
            Step::TimeoutOfBlock { limit, micros } => {
                let result = T::timeout(self.aligned(limit), block(micros)).await;
                self.note(format!("timeout of a closure, ended: {}", result.is_some_and(|result| result.is_ok())));
            }
            Step::File => {
                let exists = tokio::fs::try_exists("/").await.unwrap();
                self.note(format!("a file exists: {exists}"));
            }
            Step::Advance(control, ms) => {
                settle().await;
                T::advance(control, Duration::from_millis(ms)).await;
                settle().await;
                self.note(format!("advanced by {ms}"));
            }
            Step::Outside { ref dropped, micros } => self.outside(dropped, micros).await,
            Step::Leave(_) => unreachable!("the runtime is left between the steps"),
        }
    }

    fn spawn(&self, task: usize) {
        let mut runner = TaskRunner::new(self.shared.clone(), task);
        self.note(format!("spawns {task}"));
        let story = self.shared.story.clone();
        let handle = tokio::spawn(async move {
            runner.note("begins");
            let steps = &story.parts[runner.shared.part].tasks[task];
            runner.run(steps).await;
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
        // The first tick is at an instant of this task, and so are all others, as long as no task advances time.
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

    /// No two items have the same deadline, for their order is not specified.
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
        // A queue that was polled and is empty again waits for nothing.
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

/// Lets the other tasks do all steps that need no time.
///
/// It is not specified which tasks run before `advance` returns, nor at which poll after it a sleep of no time ends: Tokio's driver may
/// not have seen yet that time has moved. So all tasks wait for timers or messages when time is advanced, and again before the task that
/// advances it continues.
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
