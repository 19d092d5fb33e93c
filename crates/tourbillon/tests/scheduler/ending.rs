//! Shutdown, and the other ways in which a scheduler ends.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Overlap, Plan, ScheduleErrorKind, Scheduler, Shutdown};

use crate::support::{Task, eventually, manual, ms};
use crate::{Count, Gate, Story, keep_busy, promptly};

#[test]
fn g4_an_idle_scheduler_shuts_down_at_once() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let story = Story::new();
        story.add("tick", ms(10));
        story.pass(ms(25));
        let ending = story.scheduler.shutdown(how);
        assert!(ending.is_over() && ending.wait_for(Duration::ZERO));
        ending.wait();
        assert!(Task::new().poll(pin!(ending)).is_ready());
        story.pass(ms(100));
        assert_eq!(story.ms(), [10, 20]);
        assert!(!story.scheduler.is_running());
    }
}

#[test]
fn g4_after_shutdown_no_job_is_left_and_none_can_be_scheduled() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let story = Story::new();
        story.add("tick", ms(10));
        let id = story.scheduler.schedule("other", ms(10), |_| ()).unwrap();
        let _ending = story.scheduler.shutdown(how);
        let scheduler = &story.scheduler;
        assert!(!scheduler.contains("tick") && !scheduler.remove("tick") && !scheduler.remove_job(id));
        assert!(!scheduler.pause("tick") && !scheduler.resume("tick"));
        assert_eq!((scheduler.len(), scheduler.keys(), scheduler.stats().jobs), (0, vec![], 0));
        assert_eq!(
            (scheduler.remaining("tick"), scheduler.next_run("tick"), scheduler.report("tick")),
            (None, None, None)
        );
        assert_eq!(scheduler.reschedule("tick", ms(5)), Err(ScheduleErrorKind::ShutDown));
        scheduler.start();
        assert!(!scheduler.is_running());
        scheduler.stop();
    }
}

#[test]
fn d32_scheduling_after_shutdown_returns_key_and_job() {
    let story = Story::new();
    let _ending = story.scheduler.shutdown(Shutdown::Drain);
    let count = Count::default();
    let error = story.scheduler.schedule("late", Plan::every(ms(10)).first_at_once(), count.job()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ShutDown, "late"));
    // The returned job is intact: another scheduler takes it.
    let other = Story::new();
    other.scheduler.schedule(error.key, ms(10), error.job).unwrap();
    other.pass(ms(10));
    assert_eq!(count.get(), 1);
}

#[test]
fn g4_drain_finishes_the_runs_that_have_begun_and_abort_drops_them() {
    for (how, ended, aborted) in [(Shutdown::Drain, 1, 0), (Shutdown::Abort, 0, 1)] {
        let story = Story::new();
        let count = Count::default();
        let made = count.clone();
        let job = move |_| {
            let made = made.clone();
            async move {
                tourbillon::time::sleep(ms(20)).await;
                made.add();
            }
        };
        story.scheduler.schedule_async("slow", ms(10), job).unwrap();
        story.pass(ms(15));
        let ending = story.scheduler.shutdown(how);
        let task = Task::new();
        let mut ending = pin!(ending);
        let at_once = task.poll(ending.as_mut()).is_ready();
        assert!(how == Shutdown::Abort || !at_once, "{how:?}");
        story.pass(ms(100));
        assert!(task.poll(ending.as_mut()).is_ready(), "{how:?}");
        assert!(at_once || task.wakes() == 1, "{how:?}");
        assert_eq!((count.get(), story.scheduler.stats().aborted), (ended, aborted), "{how:?}");
        assert_eq!((story.scheduler.stats().running, story.scheduler.stats().runs), (0, 1), "{how:?}");
    }
}

#[test]
fn g4_drain_can_be_followed_by_abort_and_not_the_other_way() {
    let story = Story::new();
    story.add_slow("slow", ms(10), Duration::from_secs(3600));
    story.pass(ms(10));
    let ending = story.scheduler.shutdown(Shutdown::Drain);
    story.pass(ms(100));
    assert!(!ending.is_over());
    let again = story.scheduler.shutdown(Shutdown::Drain);
    story.turn();
    assert!(!again.is_over());
    let _third = story.scheduler.shutdown(Shutdown::Abort);
    story.turn();
    assert!(ending.is_over() && again.is_over());
    let fourth = story.scheduler.shutdown(Shutdown::Drain);
    assert!(fourth.is_over());
    assert_eq!(story.scheduler.stats().aborted, 1);
}

/// One thread, which is busy; the due runs are in its queue, or find no room there.
#[test]
fn g4_drain_makes_all_due_runs_and_abort_none_of_them() {
    for (how, queue) in [(Shutdown::Drain, 1000), (Shutdown::Drain, 3), (Shutdown::Abort, 1000)] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(1).queue(queue).build().unwrap();
        let (opener, gate) = Gate::new();
        let (begun, count) = (Count::default(), Count::default());
        scheduler.schedule(0, Plan::once(ms(10)), gate.job(&begun)).unwrap();
        (1..=200).for_each(|key| _ = scheduler.schedule(key, Plan::once(ms(10)), count.job()).unwrap());
        (201..=300).for_each(|key| _ = scheduler.schedule(key, Plan::once(ms(11)), count.job()).unwrap());
        engine.advance(ms(10));
        eventually("the thread is busy", || begun.get() == 1);
        let ending = scheduler.shutdown(how);
        assert!(!ending.is_over() && !ending.wait_for(ms(1)));
        engine.advance(ms(100));
        drop(opener);
        ending.wait();
        assert_eq!(count.get(), if how == Shutdown::Drain { 200 } else { 0 }, "{how:?}, {queue}");
        let stats = scheduler.stats();
        assert_eq!((stats.running, stats.waiting), (0, 0));
    }
}

#[test]
fn g4_drain_makes_the_run_that_waits_behind_another() {
    let story = Story::with(|builder| builder.overlap(Overlap::QueueOne));
    story.add_slow("slow", ms(10), ms(15));
    story.pass(ms(22));
    let ending = story.scheduler.shutdown(Shutdown::Drain);
    story.pass(ms(100));
    assert!(ending.is_over());
    assert_eq!(story.ms(), [10, 25]);
}

#[test]
fn g4_the_end_is_reported_to_every_waiter() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(2).build().unwrap();
    let opener = keep_busy(&engine, &scheduler, "blocks");
    let waiters: Vec<_> = (0..4)
        .map(|number| {
            let ending = scheduler.shutdown(Shutdown::Drain);
            std::thread::spawn(move || match number {
                0 => ending.wait(),
                1 => assert!(ending.wait_for(Duration::from_secs(60))),
                2 => assert!(ending.wait_for(Duration::MAX)),
                _ => futures_lite::future::block_on(ending),
            })
        })
        .collect();
    drop(opener);
    for waiter in waiters {
        promptly("a thread that waits for the end", move || waiter.join().unwrap());
    }
}

#[test]
fn p7_polling_an_ending_again_and_again_keeps_one_waker() {
    let story = Story::new();
    story.add_slow("slow", ms(10), Duration::from_secs(1));
    story.pass(ms(10));
    let mut ending = pin!(story.scheduler.shutdown(Shutdown::Drain));
    let task = Task::new();
    for _ in 0..1000 {
        assert!(task.poll(ending.as_mut()).is_pending());
    }
    assert_eq!(task.wakers_held(), 1);
    story.pass(Duration::from_secs(1));
    assert_eq!((task.wakes(), task.wakers_held()), (1, 0));
    assert!(task.poll(ending.as_mut()).is_ready());
}

#[test]
fn p7_an_ending_keeps_the_waker_that_polled_it_last_and_none_when_it_is_dropped() {
    let story = Story::new();
    story.add_slow("slow", ms(10), Duration::from_secs(1));
    story.pass(ms(10));
    let mut endings = [story.scheduler.shutdown(Shutdown::Drain), story.scheduler.shutdown(Shutdown::Drain)];
    let tasks = [Task::new(), Task::new(), Task::new()];
    for task in &tasks {
        assert!(endings.iter_mut().all(|ending| task.poll(Pin::new(ending)).is_pending()));
    }
    assert_eq!(tasks.each_ref().map(Task::wakers_held), [0, 0, 2]);
    let [dropped, mut waiting] = endings;
    drop(dropped);
    assert_eq!(tasks[2].wakers_held(), 1);
    story.pass(Duration::from_secs(1));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 1]);
    assert!(tasks[0].poll(Pin::new(&mut waiting)).is_ready());
}

/// In each way in which a closure can wait for the end.
#[test]
fn d22_a_job_that_waits_for_its_own_end_does_not_wait() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        for threads in [0, 1, 2] {
            let engine = manual();
            let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
            let results = Arc::new(Mutex::new(Vec::new()));
            let writer = Arc::clone(&results);
            scheduler
                .schedule("ends it", Plan::once(ms(1)), move |run| {
                    let ending = run.scheduler().unwrap().shutdown(how);
                    let before = ending.is_over();
                    let waited = ending.wait_for(Duration::from_secs(3600));
                    ending.wait();
                    writer.lock().unwrap().push((before, waited));
                })
                .unwrap();
            let (engine, results) = promptly("a job that waits for its own end", move || {
                engine.advance(ms(1));
                eventually("the job has returned", || !results.lock().unwrap().is_empty());
                (engine, results)
            });
            assert_eq!(*results.lock().unwrap(), [(false, false)], "{how:?}, {threads} threads");
            let ending = scheduler.shutdown(how);
            eventually("the scheduler ends", || {
                engine.turn();
                ending.is_over()
            });
        }
    }
}

/// Shuts its scheduler down and waits for the end, from inside a callback or a destructor.
#[derive(Clone, Default)]
struct Ends {
    scheduler: Arc<Mutex<Option<Scheduler<&'static str>>>>,
    waited: Count,
}

impl Ends {
    fn wait(&self) {
        let scheduler = self.scheduler.lock().unwrap().clone();
        scheduler.unwrap().shutdown(Shutdown::Drain).wait();
        self.waited.add();
    }

    /// Advances time until `wait` has returned, which it does at once because it cannot wait for itself.
    fn assert_waits(&self, engine: &Engine, what: &str) {
        let (engine, waited) = (engine.clone(), self.waited.clone());
        promptly(what, move || {
            eventually("the wait has returned", || {
                engine.advance(ms(1));
                waited.get() == 1
            });
        });
        self.scheduler.lock().unwrap().take();
    }
}

/// A value that a job holds or returns; its destructor waits for the end.
struct WaitsWhenDropped(Ends);

impl Drop for WaitsWhenDropped {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl fmt::Debug for WaitsWhenDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what a job returns")
    }
}

impl fmt::Display for WaitsWhenDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for WaitsWhenDropped {}

#[test]
fn d22_a_failure_callback_may_wait_for_the_end_of_the_scheduler() {
    for threads in [0, 1] {
        let (engine, ends) = (manual(), Ends::default());
        let waits = ends.clone();
        let builder = Scheduler::builder().engine(&engine).threads(threads).on_failure(move |_| waits.wait());
        let scheduler = builder.build().unwrap();
        *ends.scheduler.lock().unwrap() = Some(scheduler.clone());
        scheduler.schedule("bad", Plan::once(ms(1)), |_| Err::<(), _>(std::io::Error::other("bad"))).unwrap();
        scheduler.schedule("good", Plan::once(ms(1)), |_| ()).unwrap();
        ends.assert_waits(&engine, "a report that waits for the end");
    }
}

#[test]
fn d22_a_value_that_a_job_holds_or_returns_may_wait_for_the_end_of_the_scheduler_when_it_is_dropped() {
    for threads in [0, 1] {
        for returns_it in [false, true] {
            let (engine, ends) = (manual(), Ends::default());
            let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
            *ends.scheduler.lock().unwrap() = Some(scheduler.clone());
            let held = Mutex::new(Some(WaitsWhenDropped(ends.clone())));
            let job = move |_: &tourbillon::scheduler::Run<&'static str>| {
                let returned = held.lock().unwrap().take_if(|_| returns_it);
                returned.map_or(Ok(()), Err)
            };
            scheduler.schedule("ends it", Plan::once(ms(1)), job).unwrap();
            scheduler.schedule("good", Plan::once(ms(1)), |_| ()).unwrap();
            ends.assert_waits(&engine, "a destructor that waits for the end");
        }
    }
}

#[test]
fn d22_a_run_on_another_executor_may_wait_for_the_end_of_the_scheduler_when_it_is_dropped() {
    let (engine, ends) = (manual(), Ends::default());
    let (sender, receiver) = channel();
    let spawn = move |run| sender.send(run).unwrap();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).spawn_with(spawn).build().unwrap();
    *ends.scheduler.lock().unwrap() = Some(scheduler.clone());
    let held = Arc::new(Mutex::new(Some(WaitsWhenDropped(ends.clone()))));
    let job = move |_| {
        let held = held.lock().unwrap().take();
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    };
    scheduler.schedule_async("ends it", Plan::once(ms(1)), job).unwrap();
    engine.advance(ms(1));
    let run = receiver.recv().unwrap();
    promptly("an executor that drops a run that waits for the end", move || drop(run));
    assert_eq!(ends.waited.get(), 1);
    ends.scheduler.lock().unwrap().take();
}

#[test]
fn d22_an_async_job_that_awaits_its_own_end_does_not_wait() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        let made = count.clone();
        let job = move |run: tourbillon::scheduler::Run<&'static str>| {
            let made = made.clone();
            async move {
                let ending = run.scheduler().unwrap().shutdown(Shutdown::Drain);
                ending.await;
                made.add();
            }
        };
        scheduler.schedule_async("ends it", Plan::once(ms(1)), job).unwrap();
        engine.advance(ms(1));
        eventually("the scheduler has ended", || {
            engine.turn();
            count.get() == 1 && scheduler.shutdown(Shutdown::Drain).is_over()
        });
    }
}

#[test]
fn d28_when_the_last_handle_is_dropped_the_scheduler_ends() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        let alive = Arc::new(());
        let (tick, kept) = (count.clone(), Arc::clone(&alive));
        scheduler
            .schedule("tick", ms(10), move |_| {
                let _kept = &kept;
                tick.add();
            })
            .unwrap();
        let other = scheduler.clone();
        drop(scheduler);
        engine.advance(ms(10));
        eventually("a clone keeps the scheduler alive", || count.get() == 1 && other.stats().running == 0);
        drop(other);
        engine.advance(ms(100));
        eventually("all jobs are dropped", || Arc::strong_count(&alive) == 1);
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn d28_a_job_cannot_reach_a_scheduler_without_handles() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
    let (opener, gate) = Gate::new();
    let results = Arc::new(Mutex::new(None));
    let (writer, begun) = (Arc::clone(&results), Count::default());
    let first = begun.clone();
    scheduler
        .schedule("late", Plan::once(ms(1)), move |run| {
            first.add();
            gate.wait();
            *writer.lock().unwrap() = Some(run.scheduler().is_some());
        })
        .unwrap();
    engine.advance(ms(1));
    eventually("the job has begun", || begun.get() == 1);
    drop(scheduler);
    drop(opener);
    eventually("the job has tried", || results.lock().unwrap().is_some());
    assert_eq!(*results.lock().unwrap(), Some(false));
}

#[test]
fn d22_a_job_that_drops_the_last_handle_ends_its_scheduler() {
    let engine = manual();
    for threads in [0, 1] {
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let last = Arc::new(Mutex::new(None));
        let (handle, count) = (Arc::clone(&last), Count::default());
        let made = count.clone();
        scheduler
            .schedule("drops it", ms(1), move |_| {
                drop(handle.lock().unwrap().take());
                made.add();
            })
            .unwrap();
        *last.lock().unwrap() = Some(scheduler);
        engine.advance(ms(1));
        eventually("the job has run", || count.get() == 1);
        engine.advance(ms(50));
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn d28_when_the_engine_is_shut_down_the_scheduler_ends() {
    for threads in [0, 1, 2] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        scheduler.schedule("tick", ms(10), count.job()).unwrap();
        engine.advance(ms(10));
        eventually("the job has run", || count.get() == 1 && scheduler.stats().running == 0);
        engine.shutdown();
        eventually("the scheduler has ended", || scheduler.shutdown(Shutdown::Drain).is_over());
        let error = scheduler.schedule("other", ms(10), |_| ()).unwrap_err();
        assert_eq!(error.kind, ScheduleErrorKind::ShutDown);
        assert_eq!((count.get(), scheduler.len()), (1, 0));
    }
}

#[test]
fn d28_async_runs_of_an_engine_that_is_shut_down_end_too() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        let made = count.clone();
        let job = move |_| {
            let made = made.clone();
            async move {
                // A sleep ends when its engine is shut down.
                tourbillon::time::sleep(Duration::from_secs(3600)).await;
                made.add();
            }
        };
        scheduler.schedule_async("slow", Plan::once(ms(10)), job).unwrap();
        engine.advance(ms(10));
        eventually("the run has begun", || scheduler.stats().running == 1);
        engine.shutdown();
        let ending = scheduler.shutdown(Shutdown::Drain);
        eventually("the scheduler ends", || ending.is_over());
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn d32_a_scheduler_on_an_engine_that_is_shut_down_refuses_jobs() {
    let engine = manual();
    engine.shutdown();
    for threads in [0, 1] {
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let error = scheduler.schedule("late", ms(10), |_| ()).unwrap_err();
        assert_eq!(error.kind, ScheduleErrorKind::ShutDown);
        assert!(!scheduler.is_running());
    }
}
