//! The global engine. There is one in a process, so this program has one test, which covers its whole life.

mod support;

use std::pin::pin;
use std::task::Waker;

use support::{manual, ms, poll_with};
use tourbillon::time::{self, Instant};
use tourbillon::{Engine, Outcome};

#[test]
fn p6_the_global_engine_is_installed_once_and_can_be_shut_down() {
    // Reading the clock does not start an engine.
    let _ = Instant::now();
    let own = manual();
    own.install().unwrap();
    let refused = manual().install().unwrap_err();
    assert!(refused.to_string().contains("already"), "{refused}");
    assert!(own.install().is_err(), "an engine was installed twice");

    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    assert_eq!(own.stats().pending, 1, "the installed engine is not used");
    assert_eq!(Engine::global().advance(ms(10)), 1);
    assert_eq!(Engine::current().stats().fired, 1);
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());

    // The global engine outlives the handle that was installed.
    drop(own);
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    Engine::global().shutdown();
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    assert!(manual().install().is_err(), "the first engine stays the global one");

    // This thread may release its shard of the global engine while another engine is entered: leaving that one does not return to it.
    let other = manual();
    let guard = other.enter();
    for _ in 0..4 {
        let _ = poll_with(pin!(manual().sleep(ms(1))), Waker::noop());
    }
    drop(guard);
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    let _ = Instant::now();
}
