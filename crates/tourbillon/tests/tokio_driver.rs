//! `Driver::tokio`: its requirements for a runtime, and its timers when that runtime is dropped.
#![cfg(tourbillon_driver_task)]

mod support;

use std::task::Waker;

use futures_lite::future::block_on;
use support::{ms, poll_with};
use tourbillon::{BuildError, Clock, Driver, Engine, Outcome};

#[test]
fn d41_timers_of_a_tokio_driver_fire_after_its_runtime_is_dropped() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() });
    let mut before = Box::pin(engine.sleep(ms(50)));
    let _ = poll_with(before.as_mut(), Waker::noop());
    runtime.block_on(engine.sleep(ms(1)));
    drop(runtime);
    block_on(before.as_mut());
    assert_eq!(before.outcome(), Some(Outcome::Fired));
    let mut after = Box::pin(engine.sleep(ms(5)));
    block_on(after.as_mut());
    assert_eq!(after.outcome(), Some(Outcome::Fired));
    engine.shutdown();
}

#[test]
fn d41_a_current_thread_runtime_that_is_never_run_again_and_dropped_hands_its_timers_over() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = {
        let _context = runtime.enter();
        Engine::builder().driver(Driver::tokio()).build().unwrap()
    };
    // The driver has not had a single turn yet.
    let mut sleep = Box::pin(engine.sleep(ms(5)));
    let _ = poll_with(sleep.as_mut(), Waker::noop());
    drop(runtime);
    block_on(sleep.as_mut());
    assert_eq!(sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn p6_a_tokio_driver_outside_a_runtime_is_refused_with_a_message() {
    let refused = Engine::builder().driver(Driver::tokio()).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoRuntime), "{refused:?}");
    assert!(refused.to_string().contains("Tokio runtime"), "{refused}");
}

#[test]
fn p6_a_tokio_driver_in_a_runtime_without_io_is_refused_with_a_message() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _context = runtime.enter();
    let refused = Engine::builder().driver(Driver::tokio()).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoRuntime), "{refused:?}");
}

#[test]
fn p6_a_tokio_driver_with_a_manual_clock_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    let refused = Engine::builder().clock(Clock::manual()).driver(Driver::tokio()).build().unwrap_err();
    assert!(matches!(refused, BuildError::ManualClock), "{refused:?}");
}
