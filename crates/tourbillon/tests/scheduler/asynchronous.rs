//! Jobs whose runs are futures.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Overlap, Plan, Run, Scheduler, Shutdown};
use tourbillon::time::sleep;

use crate::support::{eventually, manual, ms};
use crate::{Count, Story};

type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns a scheduler that hands its runs to the test, which polls them, and those runs.
fn polled_by_hand(engine: &Engine) -> (Arc<Mutex<Vec<BoxedTask>>>, Scheduler<u8>) {
    let line: Arc<Mutex<Vec<BoxedTask>>> = Arc::default();
    let spawned = Arc::clone(&line);
    let builder = Scheduler::builder().engine(engine).threads(0);
    let scheduler = builder.spawn_with(move |task| spawned.lock().unwrap().push(task)).build().unwrap();
    (line, scheduler)
}

/// Returns a scheduler whose runs are Tokio tasks, and their runtime.
fn on_tokio(engine: &Engine) -> (tokio::runtime::Runtime, Scheduler<u8>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let builder = Scheduler::builder().engine(engine).threads(1).on_failure(|failure| println!("{failure}"));
    let scheduler = builder.spawn_with(move |task| drop(handle.spawn(task))).build().unwrap();
    (runtime, scheduler)
}

/// Counts its drop.
struct Dropped(Count);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

#[test]
fn g6_a_run_that_waits_takes_no_thread() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
    let ended = Count::default();
    for key in 0..100 {
        let ended = ended.clone();
        let job = move |_| {
            let ended = ended.clone();
            async move {
                sleep(ms(50)).await;
                ended.add();
            }
        };
        scheduler.schedule_async(key, Plan::once(ms(10)), job).unwrap();
    }
    engine.advance(ms(10));
    eventually("all runs wait", || scheduler.stats().running == 100 && engine.stats().pending >= 100);
    engine.advance(ms(50));
    eventually("all runs have ended", || ended.get() == 100 && scheduler.stats().running == 0);
    assert!(scheduler.is_empty());
}

#[test]
fn g9_a_run_knows_its_key_number_time_and_scheduler() {
    let story = Story::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (writes, origin) = (Arc::clone(&log), story.instant(ms(0)));
    let job = move |run: Run<&'static str>| {
        let writes = Arc::clone(&writes);
        async move {
            sleep(ms(3)).await;
            let is_there = run.scheduler().is_some_and(|scheduler| scheduler.contains(run.key()));
            writes.lock().unwrap().push((*run.key(), run.number(), run.due() - origin, is_there));
        }
    };
    let id = story.scheduler.schedule_async("tick", Plan::every(ms(10)).times(2), job).unwrap();
    story.pass(ms(50));
    assert_eq!(*log.lock().unwrap(), [("tick", 1, ms(10), true), ("tick", 2, ms(20), true)]);
    assert!(!story.scheduler.remove_job(id));
}

/// Panics at the poll after this many.
struct Panics(u32);

impl Future for Panics {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        assert!(self.0 > 0, "polled to the end");
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[test]
fn g7_a_panic_in_the_closure_or_before_or_after_an_await_is_reported() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&log);
    let story = Story::with(|builder| {
        builder.on_failure(move |failure| {
            writes.lock().unwrap().push((*failure.key, failure.run, failure.cause.to_string()));
        })
    });
    let plan = || Plan::every(ms(10)).times(2);
    story.scheduler.schedule_async("closure", plan(), |_| -> std::future::Ready<()> { panic!("at once") }).unwrap();
    story.scheduler.schedule_async("before", plan(), |_| Panics(0)).unwrap();
    story.scheduler.schedule_async("after", plan(), |_| Panics(3)).unwrap();
    let fails = |_| async {
        sleep(ms(1)).await;
        Err(std::io::Error::other("returned"))
    };
    story.scheduler.schedule_async("error", plan(), fails).unwrap();
    story.pass(ms(15));
    {
        let mut log = log.lock().unwrap();
        log.sort_unstable();
        let polled = "panicked: polled to the end".to_owned();
        assert_eq!(
            *log,
            [
                ("after", 1, polled.clone()),
                ("before", 1, polled),
                ("closure", 1, "panicked: at once".to_owned()),
                ("error", 1, "failed: returned".to_owned())
            ]
        );
    }
    story.pass(ms(15));
    assert_eq!(log.lock().unwrap().len(), 8);
    let stats = story.scheduler.stats();
    assert_eq!((stats.failed, stats.running, stats.jobs), (8, 0, 0));
}

#[test]
fn g4_abort_drops_the_futures_and_counts_them() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let (dropped, ended) = (Count::default(), Count::default());
        for key in 0..10 {
            let (dropped, ended) = (dropped.clone(), ended.clone());
            let job = move |_| {
                let (guard, ended) = (Dropped(dropped.clone()), ended.clone());
                async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                    ended.add();
                }
            };
            scheduler.schedule_async(key, Plan::once(ms(10)), job).unwrap();
        }
        engine.advance(ms(10));
        eventually("all runs have begun", || scheduler.stats().running == 10);
        let ending = scheduler.shutdown(Shutdown::Abort);
        eventually("all runs have ended", || {
            engine.turn();
            ending.is_over()
        });
        assert_eq!((dropped.get(), ended.get(), scheduler.stats().aborted), (10, 0, 10));
    }
}

#[test]
fn g4_a_run_outlives_the_removal_of_its_job() {
    let story = Story::new();
    let ended = Count::default();
    let made = ended.clone();
    let job = move |run: Run<&'static str>| {
        let made = made.clone();
        async move {
            sleep(ms(20)).await;
            assert!(!run.scheduler().unwrap().contains(run.key()));
            made.add();
        }
    };
    story.scheduler.schedule_async("slow", ms(10), job).unwrap();
    story.pass(ms(15));
    assert!(story.scheduler.remove("slow"));
    assert_eq!(story.scheduler.stats().running, 1);
    story.pass(ms(100));
    assert_eq!((ended.get(), story.scheduler.stats().running, story.scheduler.stats().runs), (1, 0, 1));
}

#[test]
fn d20_the_end_of_an_older_run_does_not_affect_a_newer_job_of_that_key() {
    let story = Story::new();
    story.add_slow("key", Plan::every(ms(10)).times(1), ms(50));
    story.pass(ms(15));
    assert!(story.scheduler.remove("key"));
    story.add("key", Plan::every(ms(10)).times(7));
    story.pass(ms(100));
    assert_eq!(story.ms(), [10, 25, 35, 45, 55, 65, 75, 85]);
}

#[test]
fn g4_a_paused_scheduler_keeps_polling_the_runs_that_have_begun() {
    let story = Story::new();
    story.add_slow("slow", Plan::every(ms(10)).times(1), ms(20));
    story.pass(ms(10));
    story.scheduler.stop();
    story.scheduler.pause("slow");
    story.pass(ms(20));
    assert_eq!((story.scheduler.stats().running, story.scheduler.len()), (0, 0));
}

#[test]
fn g6_runs_can_be_handed_to_an_executor() {
    let engine = manual();
    let (line, scheduler) = polled_by_hand(&engine);
    let ended = Count::default();
    let made = ended.clone();
    let job = move |_: Run<u8>| {
        let made = made.clone();
        async move { made.add() }
    };
    scheduler.schedule_async(0, Plan::every(ms(10)).overlap(Overlap::Parallel), job).unwrap();
    engine.advance(ms(30));
    assert_eq!((line.lock().unwrap().len(), ended.get(), scheduler.stats().running), (3, 0, 3));
    let tasks = std::mem::take(&mut *line.lock().unwrap());
    for (index, task) in tasks.into_iter().enumerate() {
        // Their executor drops one without polling it.
        if index != 1 {
            futures_lite::future::block_on(task);
        }
    }
    let stats = scheduler.stats();
    assert_eq!((ended.get(), stats.running, stats.aborted, stats.failed), (2, 0, 1, 0));
}

#[test]
fn p6_an_executor_that_panics_or_drops_a_run_harms_no_other_run() {
    for panics in [false, true] {
        let engine = manual();
        let scheduler = Scheduler::builder()
            .engine(&engine)
            .threads(0)
            .spawn_with(move |task| {
                drop(task);
                assert!(!panics, "no room here");
            })
            .build()
            .unwrap();
        scheduler.schedule_async(0, ms(10), |_| async {}).unwrap();
        engine.advance(ms(50));
        let stats = scheduler.stats();
        assert_eq!((stats.runs, stats.running, stats.aborted), (5, 0, 5));
        assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
    }
}

#[test]
fn p6_a_future_that_panics_when_it_is_dropped_harms_no_other_run() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("a future that panics when it is dropped");
            }
        }
    }
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let job = |_| {
            let bomb = Bomb;
            async move {
                let _bomb = &bomb;
                sleep(ms(1)).await;
                std::mem::forget(bomb);
            }
        };
        let pending = |_| {
            let bomb = Bomb;
            async move {
                let _bomb = bomb;
                std::future::pending::<()>().await;
            }
        };
        scheduler.schedule_async(0, Plan::every(ms(10)), job).unwrap();
        scheduler.schedule_async(1, Plan::once(ms(10)), pending).unwrap();
        engine.advance(ms(10));
        eventually("both runs have begun", || scheduler.stats().runs == 2 && engine.stats().pending >= 2);
        engine.advance(ms(5));
        eventually("one run has ended", || scheduler.stats().running == 1);
        let ending = scheduler.shutdown(Shutdown::Abort);
        eventually("all runs have ended", || {
            engine.turn();
            ending.is_over()
        });
    }
}

#[test]
fn g6_on_tokio_a_run_has_the_context_of_the_runtime() {
    let engine = manual();
    let (runtime, scheduler) = on_tokio(&engine);
    let ended = Count::default();
    let made = ended.clone();
    let job = move |run: Run<u8>| {
        let made = made.clone();
        async move {
            // Both calls need a runtime.
            tokio::task::yield_now().await;
            tokio::spawn(async {}).await.unwrap();
            made.add();
            assert!(run.number() < 2, "the second fails");
        }
    };
    scheduler.schedule_async(0, Plan::every(ms(10)).times(2), job).unwrap();
    for round in 1..=2 {
        engine.advance(ms(10));
        eventually("the run has ended", || ended.get() == round && scheduler.stats().running == 0);
    }
    assert_eq!(scheduler.stats().failed, 1);
    // A runtime that is dropped drops its tasks.
    scheduler.schedule_async(1, Plan::once(ms(10)), |_| std::future::pending::<()>()).unwrap();
    engine.advance(ms(10));
    eventually("the run has begun", || scheduler.stats().running == 1);
    drop(runtime);
    eventually("the run is dropped", || scheduler.stats().running == 0 && scheduler.stats().aborted == 1);
    assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
}

#[test]
fn d22_a_job_on_another_executor_that_waits_for_its_own_end_does_not_wait() {
    let engine = manual();
    let (_runtime, scheduler) = on_tokio(&engine);
    let ended = Count::default();
    let made = ended.clone();
    let job = move |run: Run<u8>| {
        let made = made.clone();
        async move {
            let ending = run.scheduler().unwrap().shutdown(Shutdown::Drain);
            assert!(!ending.wait_for(Duration::from_secs(3600)));
            ending.await;
            made.add();
        }
    };
    scheduler.schedule_async(0, Plan::once(ms(1)), job).unwrap();
    engine.advance(ms(1));
    eventually("the job has returned", || ended.get() == 1);
    assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
}

#[test]
fn p10_a_waker_may_call_the_scheduler() {
    // An executor whose wakers call the scheduler.
    struct CallsScheduler(Arc<Mutex<Option<Scheduler<u8>>>>);
    impl std::task::Wake for CallsScheduler {
        fn wake(self: Arc<Self>) {
            let scheduler = self.0.lock().unwrap().clone();
            assert!(scheduler.is_none_or(|scheduler| scheduler.stats().runs == 1));
        }
    }
    let engine = manual();
    let (line, scheduler) = polled_by_hand(&engine);
    scheduler.schedule_async(0, Plan::once(ms(1)), |_| std::future::pending::<()>()).unwrap();
    engine.advance(ms(1));
    let handle = Arc::new(Mutex::new(Some(scheduler.clone())));
    let waker = std::task::Waker::from(Arc::new(CallsScheduler(Arc::clone(&handle))));
    let mut task = line.lock().unwrap().pop().unwrap();
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(task.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let ending = scheduler.shutdown(Shutdown::Abort);
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert!(ending.is_over());
    handle.lock().unwrap().take();
}
