//! How many file descriptors a process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as this process may.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, what is asked for afterwards is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// So many connections, or as many as this process may have if those are fewer: some descriptors are others'.
pub(super) fn affordable(connections: usize) -> usize {
    const OTHERS: u64 = 100;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    connections.min(most.try_into().unwrap_or(usize::MAX))
}
