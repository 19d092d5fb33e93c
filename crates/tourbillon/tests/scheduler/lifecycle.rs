//! Start, stop, shutdown and all that can be called between them, in any order.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Ending, Overlap, Plan, Run, ScheduleErrorKind, Scheduler, Shutdown};

use crate::by_hand::{Task, eventually, manual, ms};
use crate::{Count, Gate, Story, keep_busy, promptly};

#[test]
fn g5_it_can_be_started_and_stopped_any_number_of_times() {
    let story = Story::new();
    assert!(story.scheduler.is_running());
    story.add("tick", ms(10));
    story.scheduler.start();
    story.pass(ms(10));
    story.scheduler.stop();
    story.scheduler.stop();
    assert!(!story.scheduler.is_running());
    story.pass(ms(35));
    assert_eq!(story.ms(), [10]);
    story.scheduler.start();
    story.scheduler.start();
    assert!(story.scheduler.is_running());
    story.pass(ms(15));
    // The times of 20, 30 and 40 went by; the grid is kept.
    assert_eq!(story.ms(), [50, 60]);
    assert_eq!(story.scheduler.report("tick").unwrap().missed, 3);
}

#[test]
fn g5_what_comes_after_the_start_is_in_time_though_something_else_went_by() {
    let story = Story::new();
    story.add("in time", ms(10));
    story.add("went by", Plan::every(ms(20)).first_at(story.instant(ms(5))));
    story.pass(ms(1));
    story.scheduler.stop();
    story.pass(ms(6));
    story.scheduler.start();
    story.pass(ms(20));
    assert_eq!(story.made_at_ms(), [("in time", 10), ("in time", 20), ("went by", 25)]);
}

#[test]
fn g5_runs_that_have_begun_go_on_after_a_stop() {
    let story = Story::new();
    let ended = Count::default();
    let count = ended.clone();
    let job = move |_| {
        let count = count.clone();
        async move {
            tourbillon::time::sleep(ms(20)).await;
            count.add();
        }
    };
    story.scheduler.schedule_async("slow", Plan::once(ms(10)), job).unwrap();
    story.pass(ms(15));
    story.scheduler.stop();
    story.pass(ms(20));
    assert_eq!((ended.get(), story.scheduler.contains("slow")), (1, false));
}

#[test]
fn g5_what_is_scheduled_while_it_is_stopped_runs_after_the_start() {
    let story = Story::new();
    story.scheduler.stop();
    story.add("tick", ms(10));
    story.add("soon", Plan::every(ms(50)).first_at_once());
    assert!(story.scheduler.contains("tick"));
    story.pass(ms(25));
    assert_eq!(story.made(), []);
    story.scheduler.start();
    story.pass(ms(30));
    assert_eq!(story.made_at_ms(), [("tick", 30), ("tick", 40), ("soon", 50), ("tick", 50)]);
}

#[test]
fn g4_g5_the_next_run_is_never_one_that_was_passed_over() {
    let story = Story::new();
    story.add("job", ms(10));
    let next = || story.scheduler.next_run("job").unwrap() - story.instant(ms(0));
    assert_eq!(next(), ms(10));
    story.scheduler.stop();
    story.pass(ms(25));
    assert_eq!(next(), ms(30));
    story.pass(ms(80));
    assert_eq!(next(), ms(110));
    story.scheduler.start();
    assert_eq!(next(), ms(110), "nobody has looked since");
    story.pass(ms(10));
    assert_eq!((story.ms(), next()), (vec![110], ms(120)));
}

#[test]
fn g5_everything_else_works_while_it_is_stopped() {
    let story = Story::new();
    story.add("a", ms(10));
    story.add("b", ms(10));
    story.scheduler.stop();
    assert!(story.scheduler.remove("a") && story.scheduler.pause("b"));
    assert_eq!(story.scheduler.reschedule("b", ms(7)), Ok(()));
    assert!(story.scheduler.resume("b"));
    assert_eq!((story.scheduler.len(), story.scheduler.keys()), (1, vec!["b"]));
    story.scheduler.start();
    story.pass(ms(20));
    assert_eq!(story.made_at_ms(), [("b", 7), ("b", 14)]);
}

#[test]
fn g4_an_idle_scheduler_is_over_at_once() {
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
fn g4_after_shutdown_there_is_nothing_and_nothing_can_be_scheduled() {
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
fn d32_scheduling_after_shutdown_gives_back_key_and_job() {
    let story = Story::new();
    let _ending = story.scheduler.shutdown(Shutdown::Drain);
    let count = Count::default();
    let error = story.scheduler.schedule("late", Plan::every(ms(10)).first_at_once(), count.job()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ShutDown, "late"));
    // The job is whole: another scheduler takes it.
    let other = Story::new();
    other.scheduler.schedule(error.key, ms(10), error.job).unwrap();
    other.pass(ms(10));
    assert_eq!(count.get(), 1);
}

#[test]
fn g4_drain_ends_what_has_begun_and_abort_drops_it() {
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

/// One thread, which is busy; what was due is in line, or has no room there.
#[test]
fn g4_drain_makes_all_that_was_due_and_abort_none_of_it() {
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
fn g4_the_end_is_told_to_all_who_wait_for_it() {
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
        promptly("one who waits for the end", move || waiter.join().unwrap());
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

/// In each way in which a closure can wait for it.
#[test]
fn d22_a_job_that_waits_for_its_own_end_does_not_wait() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        for threads in [0, 1, 2] {
            let engine = manual();
            let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
            let told = Arc::new(Mutex::new(Vec::new()));
            let tells = Arc::clone(&told);
            scheduler
                .schedule("ends it", Plan::once(ms(1)), move |run| {
                    let ending = run.scheduler().unwrap().shutdown(how);
                    let before = ending.is_over();
                    let waited = ending.wait_for(Duration::from_secs(3600));
                    ending.wait();
                    tells.lock().unwrap().push((before, waited));
                })
                .unwrap();
            let (engine, told) = promptly("a job that waits for its own end", move || {
                engine.advance(ms(1));
                eventually("the job has returned", || !told.lock().unwrap().is_empty());
                (engine, told)
            });
            assert_eq!(*told.lock().unwrap(), [(false, false)], "{how:?}, {threads} threads");
            let ending = scheduler.shutdown(how);
            eventually("it ends", || {
                engine.turn();
                ending.is_over()
            });
        }
    }
}

/// A scheduler that shuts itself down, and waits for its end.
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

    /// Time passes until it has waited, which it does not do for itself.
    fn is_told(&self, engine: &Engine, what: &str) {
        let (engine, waited) = (engine.clone(), self.waited.clone());
        promptly(what, move || {
            eventually("it has waited", || {
                engine.advance(ms(1));
                waited.get() == 1
            });
        });
        self.scheduler.lock().unwrap().take();
    }
}

/// What a job holds.
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
fn d22_who_is_told_of_a_failure_may_wait_for_the_end_of_the_scheduler() {
    for threads in [0, 1] {
        let (engine, ends) = (manual(), Ends::default());
        let told = ends.clone();
        let builder = Scheduler::builder().engine(&engine).threads(threads).on_failure(move |_| told.wait());
        let scheduler = builder.build().unwrap();
        *ends.scheduler.lock().unwrap() = Some(scheduler.clone());
        scheduler.schedule("bad", Plan::once(ms(1)), |_| Err::<(), _>(std::io::Error::other("bad"))).unwrap();
        scheduler.schedule("good", Plan::once(ms(1)), |_| ()).unwrap();
        ends.is_told(&engine, "a report that waits for the end");
    }
}

#[test]
fn d22_what_a_job_holds_or_returns_may_wait_for_the_end_of_the_scheduler_when_it_is_dropped() {
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
            ends.is_told(&engine, "what is dropped waits for the end");
        }
    }
}

#[test]
fn d22_a_run_elsewhere_may_wait_for_the_end_of_the_scheduler_when_it_is_dropped() {
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
    promptly("an executor that drops what waits for the end", move || drop(run));
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
        eventually("it has ended", || {
            engine.turn();
            count.get() == 1 && scheduler.shutdown(Shutdown::Drain).is_over()
        });
    }
}

#[test]
fn d28_when_the_last_handle_is_dropped_it_ends() {
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
        eventually("a clone keeps it", || count.get() == 1 && other.stats().running == 0);
        drop(other);
        engine.advance(ms(100));
        eventually("all is gone", || Arc::strong_count(&alive) == 1);
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn d28_a_job_cannot_reach_a_scheduler_that_nobody_has() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
    let (opener, gate) = Gate::new();
    let told = Arc::new(Mutex::new(None));
    let (tells, begun) = (Arc::clone(&told), Count::default());
    let first = begun.clone();
    scheduler
        .schedule("late", Plan::once(ms(1)), move |run| {
            first.add();
            gate.wait();
            *tells.lock().unwrap() = Some(run.scheduler().is_some());
        })
        .unwrap();
    engine.advance(ms(1));
    eventually("it has begun", || begun.get() == 1);
    drop(scheduler);
    drop(opener);
    eventually("it has asked", || told.lock().unwrap().is_some());
    assert_eq!(*told.lock().unwrap(), Some(false));
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
        eventually("it has run", || count.get() == 1);
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
        eventually("it has run", || count.get() == 1 && scheduler.stats().running == 0);
        engine.shutdown();
        eventually("it is over", || scheduler.shutdown(Shutdown::Drain).is_over());
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
                // A sleep of an engine that is shut down is over.
                tourbillon::time::sleep(Duration::from_secs(3600)).await;
                made.add();
            }
        };
        scheduler.schedule_async("slow", Plan::once(ms(10)), job).unwrap();
        engine.advance(ms(10));
        eventually("it has begun", || scheduler.stats().running == 1);
        engine.shutdown();
        let ending = scheduler.shutdown(Shutdown::Drain);
        eventually("it ends", || ending.is_over());
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

#[test]
fn p7_a_capacity_is_kept_and_what_finds_no_room_comes_back() {
    let story = Story::with(|builder| builder.capacity(2));
    story.add("a", Plan::once(ms(10)));
    story.add("b", ms(10));
    let error = story.scheduler.schedule("c", ms(10), story.writes()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::Full { capacity: 2 }, "c"));
    // A key that is there is the more helpful answer.
    assert_eq!(story.scheduler.schedule("a", ms(10), |_| ()).unwrap_err().kind, ScheduleErrorKind::Duplicate);
    story.pass(ms(10));
    story.scheduler.schedule(error.key, ms(10), error.job).unwrap();
    assert_eq!(story.scheduler.len(), 2);
    let none = Story::with(|builder| builder.capacity(0));
    assert_eq!(none.scheduler.schedule("a", ms(1), |_| ()).unwrap_err().kind, ScheduleErrorKind::Full { capacity: 0 });
}

#[test]
fn p7_an_engine_that_is_full_does_not_break_a_scheduler() {
    let engine = Engine::builder().clock(tourbillon::Clock::manual()).capacity(1).build().unwrap();
    let taken = engine.try_sleep(Duration::from_secs(3600)).unwrap();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    scheduler.schedule("tick", Plan::every(ms(10)).times(2), count.job()).unwrap();
    engine.advance(ms(15));
    // Late at most: a timer that has no room may be told of its deadline, or of room.
    assert!(count.get() <= 1);
    drop(taken);
    engine.advance(ms(10));
    assert_eq!((count.get(), scheduler.contains("tick")), (2, false));
}

/// What can be called between others.
#[derive(Clone, Copy, Debug)]
enum Call {
    Start,
    Stop,
    Schedule,
    ScheduleAsync,
    Remove,
    Pause,
    Resume,
    Reschedule,
    Drain,
    Abort,
}

const CALLS: [Call; 10] = [
    Call::Start,
    Call::Stop,
    Call::Schedule,
    Call::ScheduleAsync,
    Call::Remove,
    Call::Pause,
    Call::Resume,
    Call::Reschedule,
    Call::Drain,
    Call::Abort,
];

fn make(call: Call, scheduler: &Scheduler<u8>) -> Option<Ending<u8>> {
    match call {
        Call::Start => scheduler.start(),
        Call::Stop => scheduler.stop(),
        Call::Schedule => _ = scheduler.schedule(0, Plan::every(ms(1)).first_at_once(), |_| ()),
        Call::ScheduleAsync => {
            _ = scheduler.schedule_async(0, Plan::every(ms(1)).times(2), |_| tourbillon::time::sleep(ms(2)));
        }
        Call::Remove => _ = scheduler.remove(&0),
        Call::Pause => _ = scheduler.pause(&0),
        Call::Resume => _ = scheduler.resume(&0),
        Call::Reschedule => _ = scheduler.reschedule(&0, Plan::every(ms(2)).times(3)),
        Call::Drain => return Some(scheduler.shutdown(Shutdown::Drain)),
        Call::Abort => return Some(scheduler.shutdown(Shutdown::Abort)),
    }
    None
}

/// The calls that this number stands for.
fn calls(mut number: usize, length: u32) -> impl Iterator<Item = Call> {
    (0..length).map(move |_| {
        let call = CALLS[number % CALLS.len()];
        number /= CALLS.len();
        call
    })
}

/// After any story it can be ended, and then is over; and what it counts makes sense.
fn end(engine: &Engine, scheduler: &Scheduler<u8>, story: impl std::fmt::Debug) {
    let ending = scheduler.shutdown(Shutdown::Drain);
    engine.advance(ms(20));
    assert!(ending.is_over(), "{story:?}");
    let stats = scheduler.stats();
    assert_eq!((stats.jobs, stats.waiting, stats.running, stats.failed), (0, 0, 0, 0), "{story:?}");
}

#[test]
fn d22_every_sequence_of_five_calls_returns_and_can_be_ended() {
    promptly("some sequence of calls", || {
        let engine = manual();
        for number in 0..CALLS.len().pow(5) {
            let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
            for (index, call) in calls(number, 5).enumerate() {
                make(call, &scheduler);
                // Time passes after some of them.
                if (number + index) % 2 == 0 {
                    engine.advance(Duration::from_micros(1500));
                }
            }
            end(&engine, &scheduler, calls(number, 5).collect::<Vec<_>>());
        }
    });
}

#[test]
fn d22_every_sequence_of_four_calls_from_within_a_job_returns() {
    promptly("some sequence of calls", || {
        let engine = manual();
        for number in 0..CALLS.len().pow(4) {
            let scheduler: Scheduler<u8> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
            let count = Count::default();
            let made = count.clone();
            // Under the key that the calls are about, so that the job does it all to itself.
            let job = move |run: &tourbillon::scheduler::Run<u8>| {
                let Some(scheduler) = run.scheduler() else { return };
                for call in calls(number, 4) {
                    if let Some(ending) = make(call, &scheduler) {
                        ending.wait();
                    }
                }
                made.add();
            };
            scheduler.schedule(0, Plan::every(ms(1)).times(2), job).unwrap();
            engine.advance(ms(1));
            assert_eq!(count.get(), 1);
            engine.advance(ms(5));
            end(&engine, &scheduler, calls(number, 4).collect::<Vec<_>>());
        }
    });
}

#[test]
fn d22_every_sequence_of_three_calls_returns_while_a_thread_works() {
    promptly("some sequence of calls", || {
        let engine = manual();
        for number in 0..CALLS.len().pow(3) {
            let scheduler: Scheduler<u8> = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
            for call in calls(number, 3) {
                make(call, &scheduler);
                engine.advance(ms(1));
            }
            let ending = scheduler.shutdown(Shutdown::Abort);
            assert!(ending.wait_for(Duration::from_secs(30)), "{:?}", calls(number, 3).collect::<Vec<_>>());
        }
    });
}

#[test]
fn p6_a_jobs_destructor_that_waits_for_the_end_does_not_wait_for_itself() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        promptly("the shutdown", move || {
            struct Waits(Arc<Mutex<Option<Scheduler<&'static str>>>>);

            impl Drop for Waits {
                fn drop(&mut self) {
                    let scheduler = self.0.lock().unwrap().take();
                    scheduler.into_iter().for_each(|scheduler| scheduler.shutdown(Shutdown::Abort).wait());
                }
            }

            // Without threads nobody else could reach the end while the destructor waits.
            let story = Story::new();
            let waits = Waits(Arc::new(Mutex::new(Some(story.scheduler.clone()))));
            let job = move |_: &Run<&'static str>| assert!(waits.0.lock().is_ok());
            story.scheduler.schedule("waits", ms(1), job).unwrap();
            let ending = story.scheduler.shutdown(how);
            story.turn();
            assert!(ending.is_over());
        });
    }
}
