//! Stories with durations below a millisecond, set-up before time is paused, and time that is resumed for a while.
//!
//! Tokio rounds deadlines up to its ticks of a millisecond, and moves paused time by whole ticks, so that logs differ here. Each timer
//! must satisfy: it does not end early; it ends less than two milliseconds late, one for the deadline that is rounded up, one for a clock
//! between two ticks; and timers end in the order of their deadlines.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::random::Random;
use crate::timers::{Control, Missed, Timers};

/// A story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Whether time is paused from the start, before any timer is made.
    starts_paused: bool,
    root: Vec<RootStep>,
    tasks: Vec<Vec<Step>>,
}

/// A step of the task that `block_on` runs.
#[derive(Clone, Debug)]
enum RootStep {
    Spawn(usize),
    /// Pauses time, unless it is paused.
    Pause(Control),
    /// Resumes time, if it is paused, for at least this long.
    Resume(Control, Duration),
    /// Advances time, if it is paused.
    Advance(Control, Duration),
    /// Sleeps, if time is paused.
    Sleep(Duration),
    Yield,
}

/// A step of a spawned task.
#[derive(Clone, Debug)]
enum Step {
    Sleep(Duration),
    SleepUntil(Duration),
    Timeout {
        limit: Duration,
        sleep: Duration,
    },
    /// Arms a sleep, and resets it to another deadline.
    Reset {
        first: Duration,
        second: Duration,
    },
    Interval {
        after: Duration,
        period: Duration,
        ticks: u32,
    },
    Queue(Vec<Duration>),
}

/// Makes up a story in which time is paused from the start, or one in which it runs at first and is resumed at times.
pub(crate) fn make_up(starts_paused: bool, random: &mut Random) -> Story {
    let count = 2 + random.below(6) as usize;
    let tasks =
        (0..count).map(|_| (0..1 + random.below(6)).map(|_| make_up_step(random)).collect()).collect::<Vec<_>>();
    let mut root = Vec::new();
    for task in 0..count {
        root.push(RootStep::Spawn(task));
        if random.below(2) == 0 {
            root.push(RootStep::Yield);
        }
    }
    let control = |random: &mut Random| random.one_of([Control::Own, Control::Tokio]);
    if !starts_paused {
        // Tasks that are spawned before the pause arm their timers while time runs.
        let place = random.below(root.len() as u64 + 1) as usize;
        root.insert(place, RootStep::Pause(control(random)));
    }
    for _ in 0..random.below(8) {
        let step = match random.below(6) {
            0..3 => RootStep::Advance(control(random), any_duration(random)),
            3 => RootStep::Sleep(any_duration(random)),
            4 if !starts_paused => {
                root.push(RootStep::Resume(control(random), random.duration(Duration::from_micros(1_500))));
                RootStep::Pause(control(random))
            }
            _ => RootStep::Yield,
        };
        root.push(step);
    }
    Story { starts_paused, root, tasks }
}

fn make_up_step(random: &mut Random) -> Step {
    match random.below(9) {
        0..3 => Step::Sleep(any_duration(random)),
        3 => Step::SleepUntil(any_duration(random)),
        4 => Step::Timeout { limit: any_duration(random), sleep: any_duration(random) },
        5 => Step::Reset { first: any_duration(random), second: any_duration(random) },
        6 => Step::Interval {
            after: any_duration(random),
            period: any_duration(random) + Duration::from_nanos(1),
            ticks: 1 + random.below(4) as u32,
        },
        _ => Step::Queue((0..1 + random.below(5)).map(|_| any_duration(random)).collect()),
    }
}

fn any_duration(random: &mut Random) -> Duration {
    let bound = random.one_of([1_000, 1_000_000, 3_000_000, 30_000_000, 1_000_000_000, 100_000_000_000_000]);
    Duration::from_nanos(random.below(bound))
}

/// The events of a story.
#[derive(Debug)]
pub(crate) struct Observed {
    fired: Vec<Fired>,
    /// Periods in which virtual time did not stop at each deadline: it was advanced, or it ran.
    passed: Vec<(Duration, Duration)>,
}

/// A timer that has fired. Times are since the start of the story.
#[derive(Debug)]
struct Fired {
    /// `None` for the task of `block_on`, which is polled before other tasks that are ready.
    task: Option<usize>,
    /// The earliest and the latest deadline that the timer can have.
    deadline: Duration,
    at_most: Duration,
    at: Duration,
    /// How many timers had fired when the first poll found this one pending; `None` if that poll found it elapsed, and for items of
    /// queues.
    armed: Option<usize>,
    is_of_queue: bool,
}

impl Observed {
    /// Checks every timer. Timers whose deadlines are less than `tick` apart may fire in any order, and a queue rounds its
    /// deadlines to ticks of its own.
    pub(crate) fn check(&self, tick: Duration) -> Result<(), String> {
        for fired in &self.fired {
            if fired.at < fired.deadline {
                return Err(format!("early: {fired:?}"));
            }
            let late = Duration::from_millis(2) + if fired.is_of_queue { tick } else { Duration::ZERO };
            let mut due = fired.at_most;
            for &(from, to) in &self.passed {
                if from < due + late {
                    due = due.max(to);
                }
            }
            if fired.at >= due + late {
                return Err(format!("late: {fired:?}, due at {due:?}"));
            }
        }
        for (number, fired) in self.fired.iter().enumerate() {
            // A timer that its first poll finds elapsed proves nothing about the order: its task may have been late.
            if fired.task.is_none() || fired.armed.is_none() {
                continue;
            }
            for other in &self.fired[number + 1..] {
                let was_pending = other.task.is_some() && other.armed.is_some_and(|armed| armed <= number);
                if was_pending && other.at_most + tick < fired.deadline {
                    return Err(format!("out of order: {fired:?} before {other:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Runs a story on a set of timers.
pub(crate) fn run<T: Timers>(story: &Arc<Story>) -> Observed {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(story.starts_paused).build().unwrap();
    runtime.block_on(run_root::<T>(story))
}

async fn run_root<T: Timers>(story: &Arc<Story>) -> Observed {
    let shared = Arc::new(Shared::<T> { start: T::now(), fired: Mutex::new(Vec::new()) });
    let mut passed = Vec::new();
    let mut runs_since = (!story.starts_paused).then_some(Duration::ZERO);
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for step in &story.root {
        match *step {
            RootStep::Spawn(task) => {
                let (shared, story) = (shared.clone(), story.clone());
                tasks.push(tokio::spawn(async move { shared.run(task, &story.tasks[task]).await }));
            }
            RootStep::Pause(control) => {
                if let Some(from) = runs_since.take() {
                    T::pause(control);
                    passed.push((from, shared.elapsed()));
                }
            }
            RootStep::Resume(control, at_least) if runs_since.is_none() => {
                runs_since = Some(shared.elapsed());
                T::resume(control);
                shared.sleep_in_root(at_least).await;
            }
            RootStep::Advance(control, duration) if runs_since.is_none() => {
                let from = shared.elapsed();
                T::advance(control, duration).await;
                assert_eq!(shared.elapsed(), from + duration);
                passed.push((from, from + duration));
            }
            RootStep::Sleep(duration) if runs_since.is_none() => shared.sleep_in_root(duration).await,
            RootStep::Resume(..) | RootStep::Advance(..) | RootStep::Sleep(_) | RootStep::Yield => {
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(runs_since.is_none(), "a story must end in paused time");
    for task in tasks {
        task.await.unwrap();
    }
    let fired = std::mem::take(&mut *shared.fired.lock().unwrap());
    Observed { fired, passed }
}

struct Shared<T: Timers> {
    start: T::Instant,
    /// In the order in which the tasks saw the timers fire.
    fired: Mutex<Vec<Fired>>,
}

impl<T: Timers> Shared<T> {
    fn elapsed(&self) -> Duration {
        self.since_start(T::now())
    }

    fn since_start(&self, instant: T::Instant) -> Duration {
        T::between(self.start, instant)
    }

    async fn run(&self, task: usize, steps: &[Step]) {
        for step in steps {
            let now = T::now();
            match *step {
                Step::Sleep(duration) => {
                    let timer = T::sleep(duration);
                    self.watch(Made { task: Some(task), now, deadline: T::after(now, duration) }, timer).await;
                }
                Step::SleepUntil(duration) => {
                    let timer = T::sleep_until(T::after(now, duration));
                    self.watch(Made { task: Some(task), now, deadline: T::after(now, duration) }, timer).await;
                }
                Step::Timeout { limit, sleep } => {
                    let timer = T::timeout(limit, T::sleep(sleep));
                    self.watch(Made { task: Some(task), now, deadline: T::after(now, limit.min(sleep)) }, timer).await;
                }
                Step::Reset { first, second } => {
                    let mut sleep = pin!(T::sleep(first));
                    let _is_over = poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await;
                    T::reset(sleep.as_mut(), T::after(now, second));
                    self.watch(Made { task: Some(task), now, deadline: T::after(now, second) }, sleep).await;
                }
                Step::Interval { after, period, ticks } => {
                    let first = T::after(now, after);
                    let mut interval = T::interval_at(first, period, Missed::Burst);
                    for tick in 0..ticks {
                        let deadline = T::after(first, period * tick);
                        let made = Made { task: Some(task), now: T::now(), deadline };
                        let at = self.watch(made, T::tick(&mut interval)).await;
                        assert_eq!(T::between(first, at), period * tick, "a tick returns the time at which it was due");
                    }
                }
                Step::Queue(ref timeouts) => {
                    let mut queue = T::queue();
                    for (item, &timeout) in (0..).zip(timeouts) {
                        T::insert_at(&mut queue, item, T::after(now, timeout));
                    }
                    while let Some(item) = T::next(&mut queue).await {
                        let deadline = self.since_start(T::after(now, timeouts[item as usize]));
                        let at = self.elapsed();
                        let fired =
                            Fired { task: Some(task), deadline, at_most: deadline, at, armed: None, is_of_queue: true };
                        self.fired.lock().unwrap().push(fired);
                    }
                }
            }
        }
    }

    async fn sleep_in_root(&self, duration: Duration) {
        let now = T::now();
        let made = Made { task: None, now, deadline: T::after(now, duration) };
        self.watch(made, T::sleep(duration)).await;
    }

    /// Waits for a timer that was just made, and records when it has fired.
    async fn watch<R>(&self, made: Made<T::Instant>, timer: impl Future<Output = R> + Send) -> R {
        let deadline = self.since_start(made.deadline);
        // If time runs, the timer was made a little later than the clock was read.
        let at_most = deadline + T::between(made.now, T::now());
        let mut timer = pin!(timer);
        let (mut armed, mut is_first) = (None, true);
        let result = poll_fn(|cx| {
            let poll = Pin::as_mut(&mut timer).poll(cx);
            if is_first && poll.is_pending() {
                armed = Some(self.fired.lock().unwrap().len());
            }
            is_first = false;
            poll
        })
        .await;
        let at = self.elapsed();
        self.fired.lock().unwrap().push(Fired { task: made.task, deadline, at_most, at, armed, is_of_queue: false });
        result
    }
}

/// The task, the time and the deadline with which a timer was made.
struct Made<Instant> {
    /// `None` for the task of `block_on`.
    task: Option<usize>,
    /// The time at which the timer was made.
    now: Instant,
    /// Its deadline, if time has been paused since then.
    deadline: Instant,
}
