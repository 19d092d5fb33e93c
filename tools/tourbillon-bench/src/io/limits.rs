//! The limit on file descriptors of a process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as this process may.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, later requests for descriptors fail.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the number of connections, reduced to what this process may open beside its other descriptors.
pub(super) fn affordable(connections: usize) -> usize {
    const OTHERS: u64 = 100;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    connections.min(most.try_into().unwrap_or(usize::MAX))
}
