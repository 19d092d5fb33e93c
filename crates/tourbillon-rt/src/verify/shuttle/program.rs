//! Random programs: what a task, a local task or a `block_on` does in a schedule.
//!
//! A program waits for flags, for timers and for the programs that it has begun, and for nothing else. Threads outside of the runtimes,
//! or tasks that do nothing else, raise the flags. So no two programs wait for each other, and each program ends unless a runtime loses a
//! wake-up or leaves a task without a thread.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::Span;

use super::world::{ProgramWorld, WaitFlag, one_of};
use crate::clock;
use crate::{JoinError, JoinHandle, spawn, spawn_blocking, spawn_local, time};

/// The next action of a program.
#[derive(Clone, Copy)]
enum Action {
    /// The program waits for a flag.
    WaitFlag,
    /// The program lets other tasks run.
    GiveWay,
    /// The program waits for a timer.
    Sleep,
    /// The program waits for the first of a flag and a timer.
    Timeout,
    /// The program waits for a timer, and the thread that fires the timer blocks in a `block_on`.
    BlockingWaker,
    /// The program starts a thread by `spawn_blocking`, and waits for it at the end.
    Blocking,
    /// The program begins another as a task, and waits for it at the end.
    Task,
    /// The program begins another as a local task, and waits for it at the end.
    Local,
    /// The program aborts the last that it has begun.
    Abort,
    /// The program blocks in a `block_on` of any of the runtimes, which runs another.
    BlockOn,
}

/// A program that is a task or a local task, and how it may end.
struct BegunProgram {
    handle: JoinHandle<()>,
    may_be_cancelled: bool,
}

/// Returns a program whose nested programs are at most `depth` levels deep. It has to be polled inside of a runtime.
pub(super) fn program(world: ProgramWorld, depth: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let running = world.begin();
    Box::pin(async move {
        let _running = running;
        let mut begun: Vec<BegunProgram> = Vec::new();
        for _ in 0..1 + one_of(3) {
            let nested = || program(world.clone(), depth - 1);
            match Action::choose(&world, depth) {
                Action::WaitFlag => flag(&world).await,
                Action::GiveWay => give_way().await,
                Action::Sleep => sleep(&world, |sleep| sleep).await,
                Action::Timeout => drop(time::timeout(millis(), flag(&world)).await),
                Action::BlockingWaker => {
                    sleep(&world, |sleep| block_when_woken(&world, raised_outside(&world), sleep)).await
                }
                Action::Blocking => begun.push(BegunProgram { handle: spawn_blocking(|| ()), may_be_cancelled: false }),
                Action::Task => {
                    begun.push(BegunProgram { handle: spawn(nested()), may_be_cancelled: world.options.aborts })
                }
                // The thread that runs it may leave the runtime before it ends.
                Action::Local => begun.push(BegunProgram { handle: spawn_local(nested()), may_be_cancelled: true }),
                Action::Abort => begun.iter().next_back().into_iter().for_each(|program| program.handle.abort()),
                Action::BlockOn => {
                    let runtime = world.runtime();
                    runtime.into_iter().for_each(|runtime| runtime.block_on(nested()));
                }
            }
        }
        for program in begun {
            program.join().await;
        }
    })
}

impl Action {
    fn choose(world: &ProgramWorld, depth: usize) -> Action {
        use Action::{Abort, BlockOn, Blocking, BlockingWaker, GiveWay, Local, Sleep, Task, Timeout, WaitFlag};
        let waits = [WaitFlag, WaitFlag, GiveWay, Sleep, Timeout, Blocking];
        let nests = [Task, Task, Local, Local, BlockOn, BlockOn];
        let actions = waits.iter().chain(nests.iter().filter(|_| depth > 0));
        let actions = actions.chain([Abort].iter().filter(|_| world.options.aborts));
        let actions = actions.chain([BlockingWaker].iter().filter(|_| world.options.blocking_wakers));
        let actions: Vec<_> = actions.copied().collect();
        actions[one_of(actions.len())]
    }
}

impl BegunProgram {
    async fn join(self) {
        let result = self.handle.await;
        let is_cancelled = result.as_ref().is_err_and(JoinError::is_cancelled);
        assert!(result.is_ok() || (is_cancelled && self.may_be_cancelled), "{result:?}");
    }
}

/// Returns a flag that is raised by a thread outside of the runtimes or by a task, some time.
fn flag(world: &ProgramWorld) -> WaitFlag {
    if one_of(4) > 0 {
        return raised_outside(world);
    }
    let flag = WaitFlag::default();
    let raises = flag.clone();
    drop(spawn(async move { raises.raise() }));
    flag
}

/// Returns a flag that is raised by a thread outside of the runtimes, some time.
fn raised_outside(world: &ProgramWorld) -> WaitFlag {
    let flag = WaitFlag::default();
    world.raise_later(&flag);
    flag
}

/// Sleeps for a while, wrapped by `wrap`, and checks that the sleep was not shorter (P1).
async fn sleep<F: Future>(world: &ProgramWorld, wrap: impl FnOnce(time::Sleep) -> F) {
    let duration = millis();
    let due = clock::now() + Span::from(duration);
    wrap(time::sleep(duration)).await;
    // A runtime that ends before its tasks stops their timers.
    assert!(world.options.aborts || clock::now() >= due, "it ended at {:?}, and was due at {due:?}", clock::now());
}

/// Returns a few milliseconds.
pub(super) fn millis() -> Duration {
    Duration::from_millis(one_of(4) as u64)
}

/// Lets other tasks run once.
pub(super) async fn give_way() {
    let mut has_waited = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Blocks the thread that wakes it until the flag is raised, and then wakes a task.
struct BlocksFirst {
    world: ProgramWorld,
    flag: WaitFlag,
    task: Waker,
}

impl Wake for BlocksFirst {
    fn wake(self: Arc<Self>) {
        if let Some(runtime) = self.world.runtime() {
            runtime.block_on(self.flag.clone());
        }
        self.task.wake_by_ref();
    }
}

/// Awaits a sleep with a waker that blocks until the flag is raised.
pub(super) async fn block_when_woken(world: &ProgramWorld, flag: WaitFlag, sleep: time::Sleep) {
    let mut sleep = pin!(sleep);
    poll_fn(|context| {
        let blocks = BlocksFirst { world: world.clone(), flag: flag.clone(), task: context.waker().clone() };
        sleep.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(blocks)))).map(drop)
    })
    .await;
}
