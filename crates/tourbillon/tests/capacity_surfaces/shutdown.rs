//! Shutdown of an engine that has waiting sleeps.

use tourbillon::{ArmError, Outcome};

use crate::support::ms;
use crate::{HOUR, Sleeper, full, wakes};

#[test]
fn d28_p7_a_shutdown_wakes_every_waiter_and_each_ends_as_stopped() {
    let (engine, mut taken) = full(2);
    let mut waits: Vec<_> = (0..5).map(|_| Sleeper::new(&engine, HOUR)).collect();
    // A slot is reserved for one of them.
    taken.pop();
    assert_eq!(waits[0].wakes(), 1);
    engine.shutdown();
    for (index, sleeper) in waits.iter_mut().enumerate() {
        assert!(sleeper.wakes() == 1 || index == 0, "{index} was not woken");
        assert!(sleeper.poll().is_ready());
        assert_eq!(sleeper.sleep.outcome(), Some(Outcome::Stopped));
    }
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Stopped);
    assert_eq!((engine.stats().stopped, engine.stats().cancelled, engine.stats().pending), (1, 1, 0));
}

#[test]
fn d64_a_waiting_sleep_whose_deadline_the_driver_has_passed_stays_fired_after_a_shutdown() {
    let (engine, _taken) = full(1);
    let mut past = Sleeper::new(&engine, ms(10));
    let mut later = Sleeper::new(&engine, ms(20));
    engine.advance(ms(10));
    engine.shutdown();
    assert_eq!(wakes([&past, &later]), [1, 1]);
    assert!(past.poll().is_ready() && later.poll().is_ready());
    assert_eq!((past.sleep.outcome(), later.sleep.outcome()), (Some(Outcome::Fired), Some(Outcome::Stopped)));
}
