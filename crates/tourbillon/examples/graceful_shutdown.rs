//! A graceful shutdown: the program accepts no new work, finishes the work that has begun, and aborts the work that does not end in
//! time. Every wait for a timer receives exactly one outcome.
//!
//!     cargo run -p tourbillon --example graceful_shutdown

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler, Shutdown};
use tourbillon::time::sleep;
use tourbillon::{ArmError, Engine, NamedTimers, Outcome, Timer};

type Failed = Box<dyn std::error::Error>;

const MS: Duration = Duration::from_millis(1);

fn main() -> Result<(), Failed> {
    // The program's own engine: other engines in the process go on.
    let engine = Engine::builder().build()?;
    let (sender, outcomes) = channel();
    let jobs = Jobs::start(&engine)?;
    let leases = start_leases(&engine, &sender)?;
    let keep_alive = Timer::on(&engine);
    keep_alive.expires_after(60_000 * MS);
    keep_alive.on_expiry(move |outcome| sender.send(outcome).unwrap());
    let blocked = thread::spawn(move || keep_alive.wait_blocking());

    thread::sleep(200 * MS);
    assert_eq!(leases.cancel("client 0"), 10, "a client that has left before");
    println!("the signal to end has come");

    jobs.end();

    // The leases end now, before they expire; each callback is called once, with `Stopped`.
    let stopped = leases.shutdown();
    println!("leases: {stopped} stopped");
    assert_eq!(stopped, 80);
    let refused = leases.start("client 10", 10 * MS, |_| unreachable!("it is not started"));
    println!("one more lease: {}", refused.unwrap_err());
    assert_eq!(refused, Err(ArmError::Stopped));

    // Ends all other waits on the engine.
    engine.shutdown();
    assert_eq!(blocked.join().expect("it does not panic"), Outcome::Stopped);

    // The channel ends when the last callback has been called and dropped.
    let outcomes: Vec<_> = outcomes.iter().collect();
    let count = |outcome| outcomes.iter().filter(|other| **other == outcome).count();
    let counts = [Outcome::Fired, Outcome::Cancelled, Outcome::Stopped].map(count);
    println!("{} callbacks: {counts:?} fired, cancelled, stopped", outcomes.len());
    assert_eq!(counts, [10, 10, 80 + 1], "each has exactly one outcome");
    Ok(())
}

/// Starts ten leases for each of ten clients; those of the last client are short.
fn start_leases(engine: &Engine, outcomes: &Sender<Outcome>) -> Result<NamedTimers, ArmError> {
    let leases = NamedTimers::on(engine);
    for client in 0..10 {
        let lasts = if client == 9 { 50 * MS } else { 3_600_000 * MS };
        for _ in 0..10 {
            let outcomes = outcomes.clone();
            leases.start(&format!("client {client}"), lasts, move |outcome| outcomes.send(outcome).unwrap())?;
        }
    }
    Ok(leases)
}

/// Jobs that end after a while, uploads, and jobs that never end, streams.
struct Jobs {
    scheduler: Scheduler<String>,
    uploads: Arc<Count>,
    streams: Arc<Count>,
}

/// How many runs have begun and ended. The difference was aborted.
#[derive(Default)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Jobs {
    fn start(engine: &Engine) -> Result<Jobs, Failed> {
        let scheduler = Scheduler::builder().engine(engine).threads(2).build()?;
        let jobs = Jobs { scheduler, uploads: Arc::default(), streams: Arc::default() };
        for job in 0..10 {
            let uploads = Arc::clone(&jobs.uploads);
            jobs.scheduler.schedule_async(format!("upload {job}"), Plan::once(Duration::ZERO), move |_| {
                Arc::clone(&uploads).watch(sleep(400 * MS))
            })?;
        }
        for job in 0..3 {
            let streams = Arc::clone(&jobs.streams);
            jobs.scheduler.schedule_async(format!("stream {job}"), Plan::once(Duration::ZERO), move |_| {
                Arc::clone(&streams).watch(std::future::pending())
            })?;
        }
        Ok(jobs)
    }

    /// Drains for a second, and aborts the runs that are left.
    fn end(&self) {
        let Jobs { scheduler, uploads, streams } = self;
        let ending = scheduler.shutdown(Shutdown::Drain);
        let refused = scheduler.schedule("one more".to_owned(), 10 * MS, |_| ()).unwrap_err();
        println!("one more job: {refused}");
        assert_eq!(refused.kind, ScheduleErrorKind::ShutDown);

        let is_over = ending.wait_for(1000 * MS);
        println!("drained: uploads {:?}, streams {:?}", uploads.get(), streams.get());
        assert_eq!(uploads.get(), (10, 10), "runs that had begun were finished");
        assert!(!is_over, "some never end");

        scheduler.shutdown(Shutdown::Abort).wait();
        println!("aborted: {} runs", scheduler.stats().aborted);
        assert_eq!(streams.get(), (3, 0));
        assert_eq!(scheduler.stats().aborted, 3);
    }
}

impl Count {
    async fn watch(self: Arc<Count>, run: impl Future<Output = ()>) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        run.await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> (u64, u64) {
        (self.begun.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst))
    }
}
