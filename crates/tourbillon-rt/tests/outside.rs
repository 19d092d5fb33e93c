//! Calls outside a runtime (D62), and guards that are dropped in the order in which they were made (D82).

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use support::{in_time, ms, on_each_backend, this_program};
use tourbillon_rt::{Handle, JoinError, Runtime, spawn, spawn_local, time, try_spawn, try_spawn_local};

/// Set for a test that runs as the child.
const CHILD: &str = "TOURBILLON_OUTSIDE_CHILD";

/// Runs the test with this name in a child process and returns its standard error.
fn standard_error_of(test: &str) -> String {
    let mut command = this_program();
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, "1").stdout(Stdio::piped());
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    error
}

fn is_a_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn d62_a_task_that_is_lost_because_there_is_no_runtime_is_reported_once_with_its_place() {
    if is_a_child() {
        spawn(async {});
        spawn_local(async {});
        return;
    }
    let error =
        standard_error_of("d62_a_task_that_is_lost_because_there_is_no_runtime_is_reported_once_with_its_place");
    let reports: Vec<_> = error.lines().filter(|line| line.contains("a task was lost")).collect();
    assert_eq!(reports.len(), 2, "{error}");
    assert!(reports[0].contains("`spawn`") && reports[1].contains("`spawn_local`"), "{error}");
    for report in reports {
        assert!(report.contains("outside.rs:"), "it names the caller's place: {report}");
    }
}

#[test]
fn d62_a_lost_task_whose_handle_was_awaited_is_not_reported_again() {
    if is_a_child() {
        assert!(matches!(block_on(spawn(async {})), Err(JoinError::NoRuntime)));
        assert!(matches!(block_on(spawn_local(async {})), Err(JoinError::NoRuntime)));
        assert!(try_spawn(async {}).is_err() && try_spawn_local(async {}).is_err());
        let runtime = Runtime::builder().workers(1).build().unwrap();
        runtime.spawn(async {});
        runtime.block_on(async {
            spawn(async {});
            spawn_local(async {});
        });
        return;
    }
    let error = standard_error_of("d62_a_lost_task_whose_handle_was_awaited_is_not_reported_again");
    assert!(!error.contains("a task was lost"), "{error}");
}

#[test]
fn d62_p6_a_lost_task_is_no_panic_though_standard_error_is_closed() {
    if is_a_child() {
        // SAFETY: no other code of this process owns the descriptor.
        assert_eq!(unsafe { libc::close(2) }, 0);
        spawn(async {});
        return;
    }
    standard_error_of("d62_p6_a_lost_task_is_no_panic_though_standard_error_is_closed");
}

#[test]
fn d62_try_spawn_gives_a_handle_inside_a_runtime_and_an_error_outside() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(1).build().unwrap();
        let sum = runtime.block_on(async {
            let (task, local) = (try_spawn(async { 3 }).unwrap(), try_spawn_local(async { 4 }).unwrap());
            task.await.unwrap() + local.await.unwrap()
        });
        assert_eq!(sum, 7);
        {
            let _entered = runtime.handle().enter();
            assert_eq!(block_on(try_spawn(async { 5 }).unwrap()).unwrap(), 5);
            assert!(try_spawn_local(async {}).is_err(), "the thread runs no tasks");
        }
        assert!(try_spawn(async {}).is_err());
    });
}

/// Fails unless this thread is like one that has entered no runtime: it has none, and a sleep takes its time.
fn is_outside() {
    assert!(Handle::current().is_err());
    assert!(matches!(block_on(spawn(async {})), Err(JoinError::NoRuntime)));
    let start = Instant::now();
    block_on(time::sleep(ms(20)));
    assert!(start.elapsed() >= ms(20), "a sleep outside a runtime has ended after {:?}", start.elapsed());
    assert!(block_on(time::timeout(ms(5), std::future::pending::<()>())).is_err());
}

#[test]
fn d82_guards_of_two_runtimes_are_dropped_in_the_order_in_which_they_were_made() {
    on_each_backend(|backend| {
        in_time("guards of two runtimes", move || {
            let build = || Runtime::builder().backend(backend).workers(1).build().unwrap();
            let (first, second) = (build(), build());
            let guards = [first.handle().enter(), second.handle().enter()];
            let [of_first, of_second] = guards;
            drop(of_first);
            // The second one is still entered.
            assert_eq!(block_on(spawn(async { 5 })).unwrap(), 5);
            let armed = second.engine().stats().armed;
            block_on(time::sleep(ms(2)));
            assert_eq!(second.engine().stats().armed, armed + 1, "a sleep is the entered runtime's");
            drop(of_second);
            is_outside();
            drop((first, second));
            is_outside();
        });
    });
}

#[test]
fn d82_guards_and_calls_of_block_on_may_end_in_any_order() {
    on_each_backend(|backend| {
        in_time("guards that outlive calls", move || {
            let build = |workers| Runtime::builder().backend(backend).workers(workers).build().unwrap();
            for workers in [0, 1] {
                let (first, second) = (build(workers), build(workers));
                let mut kept = Vec::new();
                first.block_on(async {
                    kept.push(second.handle().enter());
                    second.block_on(async {
                        kept.push(first.handle().enter());
                        time::sleep(ms(1)).await;
                    });
                    time::sleep(ms(1)).await;
                });
                drop(kept.remove(0));
                drop(kept);
                is_outside();
                drop(first);
                // A runtime that has ended leaves no trace on this thread, and the other one works.
                is_outside();
                let start = Instant::now();
                second.block_on(time::sleep(ms(20)));
                assert!(start.elapsed() >= ms(20));
                assert!(second.shutdown_timeout(Duration::from_secs(1)).blocked == 0);
                is_outside();
            }
        });
    });
}
