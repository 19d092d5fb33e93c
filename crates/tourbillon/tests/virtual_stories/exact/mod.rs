//! Stories in whole milliseconds: both systems must give the same log, instant for instant.
//!
//! A story has one or two runtimes, stepped alternately on one thread, and each of them some tasks. A task's timers are due at instants
//! that no other task's timers of the runtime have (see [`TaskRunner::aligned`]): the order in which tasks run at one instant is not
//! specified, and without ties no event depends on it. So logs are compared with the events of one instant sorted by task.

mod make_up;
mod run;
mod shrink;

pub(crate) use make_up::make_up;
pub(crate) use run::{Event, run};
pub(crate) use shrink::shrink;

use crate::timers::{Control, Missed};

/// One or two runtimes and the steps of their tasks.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Whether the runtimes have an I/O driver below their timers.
    has_io: bool,
    pub(crate) parts: Vec<Part>,
}

/// The part of a story that runs in one runtime.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// `block_on` runs the first; [`Step::Spawn`] spawns the others.
    pub(crate) tasks: Vec<Vec<Step>>,
}

/// Milliseconds. A deadline is this long from now, and up to as many milliseconds later as there are tasks.
type Ms = u64;

/// A step of a task.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Sleep(Ms),
    SleepUntil(Ms),
    /// Sleeps that have elapsed already: of no duration, and until an instant in the past.
    SleepOver,
    /// Arms a sleep that the task holds during its next steps.
    Hold(Ms),
    /// Waits for the sleep that the task holds, if there is one.
    AwaitHeld,
    /// Arms a sleep, waits, resets it to another deadline, and waits for it.
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
    /// Waits for a closure that blocks a thread of the runtime's pool for this many microseconds.
    Block(u64),
    /// Starts the closure, does other steps, and waits for it.
    BlockBeside(u64, Vec<Step>),
    /// Waits for the closure with a timeout, which cannot end while the closure runs.
    TimeoutOfBlock {
        limit: Ms,
        micros: u64,
    },
    /// Makes a query through `tokio::fs`.
    File,
    Advance(Control, Ms),
    /// Arms some sleeps and drops them, inserts items into a queue and removes them, then waits for a thread that the runtime does not
    /// know: no time may pass.
    Outside {
        dropped: Vec<Ms>,
        micros: u64,
    },
    /// Leaves `block_on`. The other runtime, if there is one, continues, and this many microseconds pass.
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
    /// The item is one of those in the queue: this number modulo their count.
    Remove(usize),
    Reset(usize, Ms),
    Wait(Ms),
    /// Waits for an item, at most this long.
    Next(Ms),
}

/// The steps that a story may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Time moves by itself only.
    Auto,
    /// Some tasks wait for threads of the blocking pool.
    Blocking,
    /// One task advances time.
    Advance,
    /// Two runtimes take turns, and each is suspended at times.
    TwoRuntimes,
    /// One task, which also waits for threads that the runtime does not know.
    Outside,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Auto, Kind::Blocking, Kind::Advance, Kind::TwoRuntimes, Kind::Outside];
}
