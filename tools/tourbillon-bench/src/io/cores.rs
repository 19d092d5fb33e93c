//! Who runs where: the server has one core for itself, the load another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Puts the calling thread, and what it starts, on the server's core.
pub(super) fn take_the_servers() {
    take(0);
}

/// Puts the calling thread on the core of the load.
pub(super) fn take_the_loads() {
    take(1);
}

/// Takes the core of that number among those that there are. With fewer than two they cannot be kept apart.
fn take(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let Some(core) = cores.nth(number) else { return };
    let mut only = CpuSet::new();
    only.set(core);
    // Where it is refused, figures are noisier.
    let _ = sched_setaffinity(None, &only);
}
