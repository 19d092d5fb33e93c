//! Sessions that end unless they are renewed.
//!
//! Each session has a timer; a renewal moves it. A user that logs out everywhere cancels all timers of a name in one transaction, and the counts are exact.

use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon_durable::{BlockingTimers, FirstDue, NewTimer, Target, TimersError};

const LEASE: Duration = Duration::from_secs(2);

fn begin(timers: &BlockingTimers, user: &str, session: &str) -> Result<(), TimersError> {
    let end = NewTimer::after("end-session", LEASE).namespace("sessions").key(session).name(user);
    timers.create(end).map(drop)
}

/// Returns whether the session is alive, and makes its lease longer if it is.
fn renew(timers: &BlockingTimers, session: &str) -> Result<bool, TimersError> {
    let target = Target::key(session).in_namespace("sessions");
    match timers.reschedule(target, FirstDue::After(LEASE), None) {
        Ok(_) => Ok(true),
        // It has ended, or it is ending at this moment.
        Err(TimersError::NotFound | TimersError::InFlight) => Ok(false),
        Err(error) => Err(error),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let timers = BlockingTimers::open(directory.path())?;
    let (sender, ended) = channel();
    timers.timers().on("end-session", move |delivery| {
        let sender = sender.clone();
        async move { sender.send(delivery.key().unwrap_or_default().to_owned()).map_err(|error| error.to_string()) }
    })?;
    begin(&timers, "ada", "ada's phone")?;
    begin(&timers, "ada", "ada's laptop")?;
    begin(&timers, "bob", "bob's phone")?;
    let logged_out = timers.cancel_target(Target::name("ada").in_namespace("sessions"))?;
    assert_eq!((logged_out.cancelled, logged_out.in_flight), (2, 0));
    assert!(!renew(&timers, "ada's phone")?, "nobody renews a session that has ended");

    // Renewals may come late on a busy machine: then the session has ended, which is what a lease is for.
    let mut renewals = 0;
    while renewals < 3 && renew(&timers, "bob's phone")? {
        renewals += 1;
        std::thread::sleep(LEASE / 20);
    }
    assert_eq!(ended.recv_timeout(Duration::from_secs(30))?, "bob's phone");
    assert!(!renew(&timers, "bob's phone")?);
    timers.shutdown(Duration::from_secs(5))?;
    println!("two sessions were ended by hand, one after {renewals} renewals by its lease");
    Ok(())
}
