//! Jobs that need the context of a Tokio runtime.

use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon::scheduler::{Cause, Plan, RunStatus, Scheduler, SchedulerBuildError};

use crate::Count;
use crate::support::{eventually, ms};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Schedules one run that uses Tokio's timer, and returns what it sends.
fn uses_tokio(scheduler: &Scheduler<&'static str>) -> Option<u8> {
    let (send, receive) = channel();
    let job = move |_| {
        let send = send.clone();
        async move {
            tokio::time::sleep(ms(1)).await;
            send.send(7)
        }
    };
    scheduler.schedule_async("async", Plan::once(ms(1)), job).unwrap();
    receive.recv_timeout(Duration::from_secs(60)).ok()
}

#[test]
fn e5_on_tokio_async_jobs_run_on_the_runtime_in_which_the_scheduler_was_built() {
    let runtime = runtime();
    let scheduler = runtime.block_on(async { Scheduler::builder().threads(1).on_tokio().build().unwrap() });
    assert_eq!(uses_tokio(&scheduler), Some(7));
    let given = Scheduler::builder().threads(1).on_tokio_handle(runtime.handle()).build().unwrap();
    assert_eq!(uses_tokio(&given), Some(7));
}

#[test]
fn e5_on_tokio_closures_run_in_the_context_of_the_runtime() {
    let runtime = runtime();
    let scheduler = Scheduler::builder().threads(1).on_tokio_handle(runtime.handle()).build().unwrap();
    let (send, receive) = channel();
    let job = move |_: &_| tokio::runtime::Handle::try_current().map(|handle| _ = send.send(handle.id()));
    scheduler.schedule("sync", Plan::once(ms(1)), job).unwrap();
    assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(runtime.handle().id()));
}

#[test]
fn e5_p6_outside_a_runtime_on_tokio_is_an_error_that_says_what_to_do() {
    let error = Scheduler::<u8>::builder().threads(1).on_tokio().build().unwrap_err();
    assert!(matches!(error, SchedulerBuildError::NoTokioRuntime), "{error:?}");
    assert!(error.to_string().contains("on_tokio_handle"), "{error}");
}

#[test]
fn e7_of_on_tokio_and_spawn_with_the_last_call_counts() {
    let (runtime, spawned) = (runtime(), Count::default());
    let spawn = |counted: Count| {
        move |run| {
            counted.add();
            drop(std::thread::spawn(|| futures_lite::future::block_on(run)));
        }
    };
    let builder = || Scheduler::builder().threads(1);
    let on_tokio = builder().spawn_with(spawn(spawned.clone())).on_tokio_handle(runtime.handle()).build().unwrap();
    assert_eq!((uses_tokio(&on_tokio), spawned.get()), (Some(7), 0));
    let (send, receive) = channel();
    let own = builder().on_tokio_handle(runtime.handle()).spawn_with(spawn(spawned.clone())).build().unwrap();
    let job = move |_| {
        let send = send.clone();
        async move { send.send(tokio::runtime::Handle::try_current().is_ok()) }
    };
    own.schedule_async("async", Plan::once(ms(1)), job).unwrap();
    assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(false), "no runtime is entered");
    assert_eq!(spawned.get(), 1);
    // Without a runtime here, because the last call asks for none.
    assert!(Scheduler::<u8>::builder().threads(1).on_tokio().spawn_with(spawn(spawned)).build().is_ok());
}

#[test]
fn e5_p6_a_job_that_needs_tokio_without_it_is_reported_with_the_way_out() {
    let (send, receive) = channel();
    let builder = Scheduler::builder().threads(1);
    let scheduler = builder
        .on_failure(move |failure| {
            let is_named = matches!(failure.cause, Cause::NoTokioRuntime(_));
            let _ = send.send((is_named, failure.to_string()));
        })
        .build()
        .unwrap();
    let job = |_| async { tokio::time::sleep(ms(1)).await };
    scheduler.schedule_async("async", Plan::every(Duration::from_secs(60)).first_at_once(), job).unwrap();
    let (is_named, text) = receive.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(is_named && text.contains("Builder::on_tokio"), "{text}");
    eventually("the run has ended", || scheduler.stats().running == 0);
    let last = scheduler.report("async").unwrap().last_run.unwrap();
    assert_eq!(last.status, RunStatus::Panicked);
    assert!(last.error.unwrap().contains("on_tokio"));
}

#[test]
fn e5_when_the_runtime_is_gone_async_runs_end_as_aborted() {
    let runtime = runtime();
    let scheduler = Scheduler::builder().threads(1).on_tokio_handle(runtime.handle()).build().unwrap();
    drop(runtime);
    scheduler.schedule_async(0, Plan::every(Duration::from_secs(60)).first_at_once(), |_| async {}).unwrap();
    eventually("the run is aborted", || scheduler.stats().aborted == 1);
    let last = scheduler.report(&0).unwrap().last_run.unwrap();
    assert_eq!((last.status, last.error), (RunStatus::Aborted, None));
}
