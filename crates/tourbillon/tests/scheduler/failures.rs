//! Jobs that panic, fail, or never return; and panics in other code of the user.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tourbillon::scheduler::{Cause, Plan, Scheduler, Shutdown};

use crate::support::{eventually, manual, ms};
use crate::{Count, Gate, Story, keep_busy};

/// Returns a scheduler that records its failures.
fn reporting() -> (Story, Arc<Mutex<Vec<String>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&log);
    let story =
        Story::with(|builder| builder.on_failure(move |failure| writes.lock().unwrap().push(failure.to_string())));
    (story, log)
}

#[test]
fn g7_a_job_that_panics_each_time_is_reported_each_time_and_keeps_running() {
    let (story, log) = reporting();
    story
        .scheduler
        .schedule("bad", Plan::every(ms(10)).times(3), |run| -> () { panic!("number {}", run.number()) })
        .unwrap();
    story.add("good", ms(10));
    story.pass(ms(25));
    let report = story.scheduler.report("bad").unwrap();
    assert_eq!((report.runs, report.failed, report.last_failure.as_deref()), (2, 2, Some("panicked: number 2")));
    story.pass(ms(25));
    assert_eq!(
        *log.lock().unwrap(),
        [
            "job \"bad\", run 1, panicked: number 1",
            "job \"bad\", run 2, panicked: number 2",
            "job \"bad\", run 3, panicked: number 3",
        ]
    );
    assert_eq!(story.ms(), [10, 20, 30, 40, 50]);
    assert!(!story.scheduler.contains("bad"));
    assert_eq!((story.scheduler.stats().failed, story.scheduler.stats().running), (3, 0));
}

#[test]
fn g7_an_error_that_a_job_returns_is_reported() {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&causes);
    let story = Story::with(|builder| {
        builder.on_failure(move |failure| {
            let Cause::Error(error) = failure.cause else { panic!("it returned an error") };
            let is_io = error.downcast_ref::<std::io::Error>().is_some();
            writes.lock().unwrap().push((*failure.key, failure.run, error.to_string(), is_io));
        })
    });
    let odd = |run: &tourbillon::scheduler::Run<&'static str>| {
        if run.number() % 2 == 1 { Err(std::io::Error::other("odd")) } else { Ok(()) }
    };
    story.scheduler.schedule("odd", ms(10), odd).unwrap();
    story.scheduler.schedule("text", Plan::once(ms(15)), |_| Err("just words")).unwrap();
    story.pass(ms(30));
    assert_eq!(
        *causes.lock().unwrap(),
        [
            ("odd", 1, "odd".to_owned(), true),
            ("text", 1, "just words".to_owned(), false),
            ("odd", 3, "odd".to_owned(), true)
        ]
    );
    let report = story.scheduler.report("odd").unwrap();
    assert_eq!((report.runs, report.failed, report.last_failure.as_deref()), (3, 2, Some("failed: odd")));
}

#[test]
fn g7_a_panic_payload_need_not_be_text() {
    let (story, log) = reporting();
    story.scheduler.schedule("a", Plan::once(ms(1)), |_| -> () { std::panic::panic_any(7_u32) }).unwrap();
    story.scheduler.schedule("b", Plan::once(ms(2)), |_| -> () { std::panic::panic_any("words") }).unwrap();
    story.scheduler.schedule("c", Plan::once(ms(3)), |_| -> () { std::panic::panic_any("more".to_owned()) }).unwrap();
    story.scheduler.schedule("d", Plan::once(ms(4)), |_| -> () { std::panic::panic_any(PanicsWhenDropped) }).unwrap();
    story.pass(ms(10));
    let log = log.lock().unwrap();
    assert_eq!(log[1..3], ["job \"b\", run 1, panicked: words", "job \"c\", run 1, panicked: more"]);
    assert!(log[0].contains("not text") && log[3].contains("not text") && log.len() == 4);
}

#[test]
fn p6_a_failure_callback_that_panics_harms_no_job() {
    let engine = manual();
    for threads in [0, 1] {
        let builder = Scheduler::builder().engine(&engine).threads(threads);
        let scheduler = builder.on_failure(|_| panic!("the failure callback panics too")).build().unwrap();
        scheduler.schedule("bad", ms(10), |_| -> () { panic!("the job panics") }).unwrap();
        for round in 1..=5 {
            engine.advance(ms(10));
            eventually("the job keeps running", || scheduler.stats().failed == round);
        }
        assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
    }
}

#[test]
fn p6_a_failure_callback_may_call_the_scheduler() {
    let handle: Arc<Mutex<Option<Scheduler<&'static str>>>> = Arc::default();
    let used = Arc::clone(&handle);
    let story = Story::with(|builder| {
        builder.on_failure(move |failure| {
            let scheduler = used.lock().unwrap().clone().unwrap();
            assert!(scheduler.contains(failure.key));
            assert!(scheduler.remove(failure.key));
        })
    });
    *handle.lock().unwrap() = Some(story.scheduler.clone());
    story.scheduler.schedule("bad", ms(10), |_| -> () { panic!("the job panics") }).unwrap();
    story.pass(ms(100));
    assert_eq!((story.scheduler.stats().runs, story.scheduler.len()), (1, 0));
    handle.lock().unwrap().take();
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a destructor panics");
        }
    }
}

/// In each way in which a job can end.
#[test]
fn p6_a_closure_that_panics_when_it_is_dropped_harms_no_other_job() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        let job = || {
            let (bomb, made) = (PanicsWhenDropped, count.clone());
            move |_: &_| {
                let _kept = &bomb;
                made.add();
            }
        };
        scheduler.schedule("removed", ms(10), job()).unwrap();
        let id = scheduler.schedule("removed by id", ms(10), job()).unwrap();
        scheduler.schedule("done", Plan::once(ms(10)), job()).unwrap();
        scheduler.schedule("there at the end", ms(1000), job()).unwrap();
        assert!(scheduler.remove("removed") && scheduler.remove_job(id));
        engine.advance(ms(10));
        eventually("the job has run", || count.get() == 1 && scheduler.stats().running == 0);
        eventually("the job has ended", || scheduler.len() == 1);
        scheduler.schedule("after", ms(10), count.job()).unwrap();
        engine.advance(ms(10));
        eventually("the other job keeps running", || count.get() == 2);
        assert!(scheduler.shutdown(Shutdown::Abort).wait_for(Duration::from_secs(60)));
    }
}

/// A second destructor that panics during the unwinding of a first aborts the process, so each closure must be dropped separately.
#[test]
fn p6_all_closures_may_panic_when_they_are_dropped_together() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor panics, even during another panic");
        }
    }
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
        for key in 0..300 {
            let bomb = Bomb;
            scheduler.schedule(key, ms(10), move |_| _ = &bomb).unwrap();
        }
        assert!(scheduler.shutdown(how).is_over());
    }
}

/// The waker of a run may hold the last reference to the scheduler. Its drop must not panic in the thread that drops the waker.
#[test]
fn p6_a_failure_callback_that_panics_when_it_is_dropped_with_the_last_waker_of_a_run_harms_no_thread() {
    let waker = {
        let (engine, bad) = (manual(), PanicsWhenDropped);
        let builder = Scheduler::builder().engine(&engine).threads(0).on_failure(move |_| _ = &bad);
        let scheduler = builder.build().unwrap();
        let (sender, receiver) = channel();
        let job = move |_| {
            let sender = sender.clone();
            poll_fn(move |context| {
                sender.send(context.waker().clone()).unwrap();
                Poll::Ready(())
            })
        };
        scheduler.schedule_async("once", Plan::once(ms(1)), job).unwrap();
        engine.advance(ms(1));
        let ending = scheduler.shutdown(Shutdown::Drain);
        engine.advance(ms(1));
        assert!(ending.is_over());
        receiver.recv().unwrap()
    };
    drop(waker);
}

#[test]
fn p6_the_closure_of_an_async_job_may_panic_when_it_is_dropped() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let (count, gone) = (Count::default(), Count::default());
        let job = || {
            let (bomb, made) = (Bomb(gone.clone(), PanicsWhenDropped), count.clone());
            move |_| {
                let _kept = &bomb;
                let made = made.clone();
                async move {
                    tourbillon::time::sleep(ms(5)).await;
                    made.add();
                }
            }
        };
        scheduler.schedule_async("last", Plan::once(ms(10)), job()).unwrap();
        scheduler.schedule_async("removed", ms(10), job()).unwrap();
        scheduler.schedule_async("aborted", Plan::once(ms(20)), job()).unwrap();
        engine.advance(ms(10));
        eventually("two runs have begun", || scheduler.stats().running == 2 && engine.stats().pending >= 2);
        assert!(scheduler.remove("removed"));
        engine.advance(ms(5));
        eventually("two runs have ended", || count.get() == 2 && gone.get() == 2);
        engine.advance(ms(5));
        eventually("another run has begun", || scheduler.stats().running == 1);
        let ending = scheduler.shutdown(Shutdown::Abort);
        eventually("the scheduler has ended", || {
            engine.turn();
            ending.is_over() && gone.get() == 3
        });
    }
}

/// Counts its drop, and panics in it.
struct Bomb(Count, #[allow(dead_code, reason = "only its drop matters")] PanicsWhenDropped);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.add();
    }
}

#[test]
fn p6_a_key_that_panics_when_it_is_dropped_harms_no_job() {
    struct Key(u8, PanicsWhenDropped);
    impl PartialEq for Key {
        fn eq(&self, other: &Key) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Key {}
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl std::borrow::Borrow<u8> for Key {
        fn borrow(&self) -> &u8 {
            &self.0
        }
    }
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    for key in 0..3 {
        scheduler
            .schedule(Key(key, PanicsWhenDropped), Plan::every(ms(10)).times(1 + u64::from(key)), count.job())
            .unwrap();
    }
    assert!(scheduler.remove(&2_u8));
    engine.advance(ms(10));
    assert_eq!((count.get(), scheduler.len()), (2, 1));
    let ending = scheduler.shutdown(Shutdown::Abort);
    assert!(ending.is_over());
}

/// An error that panics when it is displayed or dropped.
struct PanicsWhenShownOrDropped {
    panics_when_shown: bool,
    bomb: Option<PanicsWhenDropped>,
}

impl fmt::Debug for PanicsWhenShownOrDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PanicsWhenShownOrDropped")
    }
}

impl fmt::Display for PanicsWhenShownOrDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(!self.panics_when_shown, "an error that panics when it is shown");
        write!(f, "displayed, {}", self.bomb.is_some())
    }
}

impl Error for PanicsWhenShownOrDropped {}

#[test]
fn p6_an_error_that_panics_when_it_is_displayed_or_dropped_harms_no_job() {
    for threads in [0, 1] {
        for is_async in [false, true] {
            let engine = manual();
            let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
            let error = |number: u64| PanicsWhenShownOrDropped {
                panics_when_shown: number % 2 == 1,
                bomb: (number % 4 >= 2).then(|| PanicsWhenDropped),
            };
            if is_async {
                let job =
                    move |run: tourbillon::scheduler::Run<u8>| std::future::ready(Err::<(), _>(error(run.number())));
                scheduler.schedule_async(0, ms(10), job).unwrap();
            } else {
                scheduler.schedule(0, ms(10), move |run| Err::<(), _>(error(run.number()))).unwrap();
            }
            for round in 1..=8 {
                engine.advance(ms(10));
                eventually("the job keeps running", || {
                    scheduler.stats().failed == round && scheduler.stats().running == 0
                });
                let shown = scheduler.report(&0).unwrap().last_failure.unwrap();
                assert_eq!(shown.contains("displayed"), round % 2 == 0, "{shown}");
            }
            assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
        }
    }
}

#[test]
fn g6_a_job_that_never_returns_takes_one_thread_and_no_more() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(2).build().unwrap();
    let (opener, gate) = Gate::new();
    let (begun, count) = (Count::default(), Count::default());
    scheduler.schedule("blocks", ms(10), gate.job(&begun)).unwrap();
    scheduler.schedule("tick", ms(10), count.job()).unwrap();
    for round in 1..=20 {
        engine.advance(ms(10));
        eventually("the other job keeps running", || count.get() == round);
    }
    assert_eq!(begun.get(), 1);
    eventually("its other runs are counted as overlapped", || scheduler.report("blocks").unwrap().overlapped == 19);
    // The job can be removed, and the scheduler shut down, while it blocks.
    assert!(scheduler.remove("blocks"));
    let ending = scheduler.shutdown(Shutdown::Abort);
    assert!(!ending.wait_for(ms(20)) && !ending.is_over());
    assert_eq!(scheduler.stats().running, 1);
    drop(opener);
    ending.wait();
}

#[test]
fn g6_when_every_thread_is_blocked_calls_still_return() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
    let opener = keep_busy(&engine, &scheduler, "blocks");
    scheduler.schedule("tick", ms(1), |_| ()).unwrap();
    engine.advance(ms(5));
    assert!(scheduler.contains("tick") && scheduler.pause("tick") && scheduler.resume("tick"));
    assert_eq!(scheduler.reschedule("tick", ms(2)), Ok(()));
    scheduler.stop();
    scheduler.start();
    assert!(scheduler.remove("tick"));
    engine.shutdown();
    assert!(!scheduler.shutdown(Shutdown::Drain).wait_for(ms(1)));
    drop(opener);
    scheduler.shutdown(Shutdown::Drain).wait();
}
