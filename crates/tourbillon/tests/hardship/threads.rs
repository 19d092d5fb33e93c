//! The system refuses to start threads.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use tourbillon::scheduler::{Scheduler, SchedulerBuildError};
use tourbillon::{BuildError, Engine, Outcome, Timer};

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, report};
use crate::support::{ms, years};

#[test]
fn p2_p6_where_threads_are_refused_engines_return_an_error_and_the_driver_runs_callbacks() {
    let test = "threads::p2_p6_where_threads_are_refused_engines_return_an_error_and_the_driver_runs_callbacks";
    match child_part(test) {
        None => Child::spawn(test, "gets none").succeeds(),
        Some(_) => gets_none(),
    }
}

fn gets_none() {
    let engine = Engine::builder().build().unwrap();
    let calls = Engine::builder().build().unwrap();
    let mut audit = TimerAudit::new(&engine);
    (0..200).for_each(|millis| _ = audit.arm(ms(millis)));
    let most = match refuse_threads() {
        Ok(most) => most,
        Err(why) => return report(&format!("NOT TESTED without threads: {why}")),
    };

    let refused = Engine::builder().build().expect_err("the system refuses the driver thread");
    let BuildError::Thread(error) = &refused else { panic!("{refused:?}") };
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    report(&format!("threads refused: {refused}"));
    let refused = Scheduler::<u32>::builder().engine(&engine).build().unwrap_err();
    assert!(matches!(&refused, SchedulerBuildError::Thread(error) if error.raw_os_error() == Some(libc::EAGAIN)));
    assert!(refused.to_string().contains("fewer `threads`"), "{refused}");

    // The global engine exists, and is shut down: a sleep ends at once, as stopped, and does not hang.
    let mut sleep = Box::pin(tourbillon::time::sleep(years(1)));
    futures_lite::future::block_on(sleep.as_mut());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    assert!(Engine::global().is_shutdown());

    assert_eq!(callers(&calls), ["tourbillon"], "the driver must run the callbacks");
    (0..200).for_each(|millis| _ = audit.arm(ms(millis / 2)));
    audit.cancel_some();
    audit.all_fire();
    let late_batches = audit.recovers();
    audit.check(&format!("threads refused, an engine from before, {late_batches} late batches"));

    setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most }).unwrap();
    let engine = Engine::builder().build().expect("the system starts threads again");
    futures_lite::future::block_on(engine.sleep(ms(5)));
    // Callbacks move back to a thread of their own, so that they delay no timers.
    assert_eq!(callers(&calls), ["tourbillon-cb"], "callbacks have a thread again");
}

/// Returns the names of the threads that run callbacks.
fn callers(engine: &Engine) -> Vec<String> {
    let (send, receive) = channel();
    let timers: Vec<_> = (0..100)
        .map(|number| {
            let timer = Timer::on(engine);
            timer.expires_after(ms(number % 7));
            let send = send.clone();
            timer.on_expiry(move |outcome| {
                let thread = thread::current();
                send.send((outcome, thread.name().unwrap_or_default().to_owned())).unwrap();
            });
            timer
        })
        .collect();
    let made = || receive.recv_timeout(Duration::from_secs(60)).expect("each callback runs");
    let made: Vec<_> = timers.iter().map(|_| made()).collect();
    assert!(made.iter().all(|(outcome, _)| *outcome == Outcome::Fired));
    made.into_iter().map(|(_, thread)| thread).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Makes the system refuse new threads. Returns the hard limit, or why this process cannot have such a limit.
fn refuse_threads() -> Result<Option<u64>, String> {
    if geteuid().is_root() {
        // The limit does not apply to root. All threads change their user, for any of them may start a thread.
        // SAFETY: `setresuid` changes the user of the process, and touches no memory of it.
        if unsafe { libc::setresuid(65_534, 65_534, 65_534) } != 0 {
            // A container may withhold the capability, or know no such user.
            return Err(format!("root cannot become another user: {}", std::io::Error::last_os_error()));
        }
    }
    let most = getrlimit(Resource::Nproc).maximum;
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), maximum: most }).unwrap();
    match thread::Builder::new().spawn(|| {}) {
        Err(_) => Ok(most),
        // A user with CAP_SYS_RESOURCE or CAP_SYS_ADMIN has no such limit.
        Ok(_) => Err("the kernel starts threads beyond the limit for this user".into()),
    }
}
