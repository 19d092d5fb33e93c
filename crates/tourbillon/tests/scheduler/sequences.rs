//! Every sequence of a few calls returns, and the scheduler can be shut down after it.

use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Ending, Plan, Scheduler, Shutdown};

use crate::support::{manual, ms};
use crate::{Count, promptly};

/// A call in the middle of a sequence.
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

/// Returns the calls that a number encodes.
fn calls(mut number: usize, length: u32) -> impl Iterator<Item = Call> {
    (0..length).map(move |_| {
        let call = CALLS[number % CALLS.len()];
        number /= CALLS.len();
        call
    })
}

/// Shuts the scheduler down after any sequence, and checks that it ends and that its counts add up.
fn shut_down(engine: &Engine, scheduler: &Scheduler<u8>, sequence: impl std::fmt::Debug) {
    let ending = scheduler.shutdown(Shutdown::Drain);
    engine.advance(ms(20));
    assert!(ending.is_over(), "{sequence:?}");
    let stats = scheduler.stats();
    assert_eq!((stats.jobs, stats.waiting, stats.running, stats.failed), (0, 0, 0, 0), "{sequence:?}");
}

#[test]
fn d22_every_sequence_of_five_calls_returns_and_can_be_ended() {
    promptly("some sequence of calls", || {
        let engine = manual();
        for number in 0..CALLS.len().pow(5) {
            let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
            for (index, call) in calls(number, 5).enumerate() {
                make(call, &scheduler);
                // Time passes after some of the calls.
                if (number + index) % 2 == 0 {
                    engine.advance(Duration::from_micros(1500));
                }
            }
            shut_down(&engine, &scheduler, calls(number, 5).collect::<Vec<_>>());
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
            // Under the key that the calls use, so that the job acts on itself.
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
            shut_down(&engine, &scheduler, calls(number, 4).collect::<Vec<_>>());
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
