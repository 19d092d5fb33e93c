//! Runs worlds on threads of their own, so that a world that hangs is noticed: a callback ran under a lock, or a wake-up was
//! lost.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::plan::SimPlan;
use crate::planted_fault::PlantedFault;
use crate::world::{self, WorldResult};

/// A world that takes longer than this hangs; a usual one takes a thousandth of it.
pub const HANGS: Duration = Duration::from_secs(20);

/// Runs a plan. Returns `None` if it takes too long, and then abandons its thread.
#[must_use]
pub fn run(plan: &SimPlan, broken: Option<PlantedFault>, at_most: Duration) -> Option<WorldResult> {
    let (send, receive) = channel();
    let plan = plan.clone();
    let thread = std::thread::spawn(move || _ = send.send(world::run(&plan, broken)));
    match receive.recv_timeout(at_most) {
        Ok(ran) => Some(ran),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().err().unwrap_or_else(|| Box::new(()))),
    }
}
