//! A program that ends in good order: no new work, then what has begun is finished, then what does not end in time is ended.
//!
//!     cargo run -p tourbillon --example graceful_shutdown

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler, Shutdown};
use tourbillon::time::sleep;

const MS: Duration = Duration::from_millis(1);

/// How runs of the jobs came out. The difference is what was aborted.
#[derive(Default)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Count {
    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> (u64, u64) {
        (self.begun.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An engine of the program's own: others in the process keep theirs.
    let engine = Engine::builder().build()?;
    let (uploads, streams) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let scheduler = start_jobs(&engine, &uploads, &streams)?;

    thread::sleep(100 * MS);
    println!("the signal to end has come");
    end_jobs(&scheduler, &uploads, &streams);
    engine.shutdown();
    println!("{:?}", engine.stats());
    Ok(())
}

/// Jobs that each end sooner or later: some in 50 ms, some in 200 ms, some not at all.
fn start_jobs(engine: &Engine, uploads: &Arc<Count>, streams: &Arc<Count>) -> std::io::Result<Scheduler<String>> {
    let scheduler = Scheduler::builder().engine(engine).threads(2).build()?;
    for job in 0..10 {
        let uploads = Arc::clone(uploads);
        let upload = move |_| {
            let uploads = Arc::clone(&uploads);
            async move {
                uploads.begin();
                sleep(200 * MS).await;
                uploads.end();
            }
        };
        let plan = Plan::every(60_000 * MS).first_at_once();
        scheduler.schedule_async(format!("upload {job}"), plan, upload).expect("it is its only key");
    }
    for job in 0..3 {
        let streams = Arc::clone(streams);
        let stream = move |_| {
            let streams = Arc::clone(&streams);
            async move {
                streams.begin();
                std::future::pending::<()>().await;
                streams.end();
            }
        };
        let plan = Plan::once(Duration::ZERO);
        scheduler.schedule_async(format!("stream {job}"), plan, stream).expect("it is its only key");
    }
    Ok(scheduler)
}

/// Drains for as long as an operator has patience, and aborts what is left.
fn end_jobs(scheduler: &Scheduler<String>, uploads: &Count, streams: &Count) {
    let ending = scheduler.shutdown(Shutdown::Drain);
    let refused = scheduler.schedule("one more".to_owned(), 10 * MS, |_| ()).unwrap_err();
    println!("one more job: {refused}");
    assert_eq!(refused.kind, ScheduleErrorKind::ShutDown);

    let is_over = ending.wait_for(1000 * MS);
    println!(
        "drained: uploads {:?}, streams {:?}, {} running",
        uploads.get(),
        streams.get(),
        scheduler.stats().running
    );
    assert_eq!(uploads.get(), (10, 10), "what had begun was finished");
    assert!(!is_over, "some never end");

    scheduler.shutdown(Shutdown::Abort).wait();
    println!("aborted: uploads {:?}, streams {:?}, {} runs", uploads.get(), streams.get(), scheduler.stats().aborted);
    assert_eq!(streams.get(), (3, 0));
    assert_eq!(scheduler.stats().aborted, 3);
}
