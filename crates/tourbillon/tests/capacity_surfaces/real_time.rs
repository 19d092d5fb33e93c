//! With a driver thread, in real time.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tourbillon::{Clock, Engine, Outcome};

use crate::HOUR;
use crate::support::{ms, now};

#[test]
fn d64_on_the_real_clock_a_sleep_ends_while_another_takes_the_only_slot_for_an_hour() {
    let engine = Engine::builder().clock(Clock::monotonic()).capacity(1).build().unwrap();
    let _taken = engine.try_sleep(HOUR).unwrap();
    let (send, receive) = mpsc::channel();
    let its = engine.clone();
    let _detached = thread::spawn(move || {
        let mut sleep = Box::pin(its.sleep(ms(20)));
        let deadline = sleep.deadline();
        futures_lite::future::block_on(sleep.as_mut());
        let is_early = now(&its) < deadline;
        send.send((sleep.outcome(), is_early)).unwrap();
    });
    let ended = receive.recv_timeout(Duration::from_secs(30)).expect("the sleep never ended");
    assert_eq!(ended, (Some(Outcome::Fired), false));
}
