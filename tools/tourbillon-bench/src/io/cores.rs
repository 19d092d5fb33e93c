//! Pins the server to one core and the load to another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread, and the threads that it starts, to the server's core.
pub(super) fn pin_to_server_core() {
    pin(0);
}

/// Pins the calling thread to the core of the load.
pub(super) fn pin_to_load_core() {
    pin(1);
}

/// Pins the calling thread to the `number`-th available core. With fewer than two cores, server and load share one.
fn pin(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let Some(core) = cores.nth(number) else { return };
    let mut only = CpuSet::new();
    only.set(core);
    // Without the permission, figures are noisier.
    let _ = sched_setaffinity(None, &only);
}
