//! The system has no threads to give.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use tourbillon::scheduler::Scheduler;
use tourbillon::{BuildError, Engine, Outcome, Timer};

use crate::apart::{Child, part_of, report};
use crate::ledger::Ledger;
use crate::support::{ms, years};

#[test]
fn p2_p6_where_threads_are_refused_engines_say_so_and_callbacks_are_made_by_the_driver() {
    let test = "threads::p2_p6_where_threads_are_refused_engines_say_so_and_callbacks_are_made_by_the_driver";
    match part_of(test) {
        None => Child::play(test, "gets none").succeeds(),
        Some(_) => gets_none(),
    }
}

fn gets_none() {
    let engine = Engine::builder().build().unwrap();
    let calls = Engine::builder().build().unwrap();
    let mut ledger = Ledger::new(&engine);
    (0..200).for_each(|millis| _ = ledger.arm(ms(millis)));
    let most = match refuse_threads() {
        Ok(most) => most,
        Err(why) => return report(&format!("NOT TESTED without threads: {why}")),
    };

    let refused = Engine::builder().build().expect_err("there is no thread for it");
    let BuildError::Thread(error) = &refused else { panic!("{refused:?}") };
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    report(&format!("threads refused: {refused}"));
    assert_eq!(Scheduler::<u32>::builder().engine(&engine).build().unwrap_err().raw_os_error(), Some(libc::EAGAIN));

    // The global one is there, and closed: a sleep ends at once, as stopped, and does not hang.
    let mut sleep = Box::pin(tourbillon::time::sleep(years(1)));
    futures_lite::future::block_on(sleep.as_mut());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    assert!(Engine::global().is_shutdown());

    assert_eq!(callers(&calls), ["tourbillon"], "callbacks are made by the driver");
    (0..200).for_each(|millis| _ = ledger.arm(ms(millis / 2)));
    ledger.cancel_some();
    ledger.all_fire();
    let late_batches = ledger.recovers();
    ledger.balance(&format!("threads refused, an engine from before, {late_batches} late batches"));

    setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most }).unwrap();
    let engine = Engine::builder().build().expect("there are threads again");
    futures_lite::future::block_on(engine.sleep(ms(5)));
    // And callbacks do not stay where they would delay timers.
    assert_eq!(callers(&calls), ["tourbillon-calls"], "callbacks have a thread again");
}

/// Which threads make callbacks, by their names.
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
    let made = || receive.recv_timeout(Duration::from_secs(60)).expect("each callback is made");
    let made: Vec<_> = timers.iter().map(|_| made()).collect();
    assert!(made.iter().all(|(outcome, _)| *outcome == Outcome::Fired));
    made.into_iter().map(|(_, thread)| thread).collect::<BTreeSet<_>>().into_iter().collect()
}

/// From now on no thread can be started. Gives what the limit may be; or why this process cannot have such a limit.
fn refuse_threads() -> Result<Option<u64>, String> {
    if geteuid().is_root() {
        // The limit is not for the super-user. Of all threads: who starts one may be any.
        // SAFETY: it changes who we are, and touches no memory of ours.
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
