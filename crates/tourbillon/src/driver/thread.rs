//! The driver as a thread of its own.

use std::io;

use super::{DriverLoop, Next};
use crate::core::CoreRef;
use crate::sync::aside::thread::{Builder, JoinHandle};
use crate::sync::spin_loop;

/// Starts it. It ends when the engine is shut down.
pub(super) fn spawn(core: CoreRef) -> io::Result<()> {
    Builder::new().name("tourbillon".into()).spawn(move || run(core)).map(drop::<JoinHandle<()>>)
}

fn run(core: CoreRef) {
    let _guard = Guard(core.clone());
    // So that the kernel adds nothing to what we ask for. Where it is refused, timers are later by its default, 50 us.
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut work = DriverLoop::new(core);
    loop {
        match work.step() {
            Next::More => {}
            Next::Soon => spin_loop(),
            Next::Sleep => work.core.driver.alarm.wait(&work.core.clock),
            Next::End => return,
        }
    }
}

/// Should the driver panic after all, its timers are stopped rather than left to wait for ever.
struct Guard(CoreRef);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut_down();
        }
    }
}
