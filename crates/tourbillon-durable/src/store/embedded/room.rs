//! How much room the disk has.

use std::path::Path;

/// Returns how many bytes can still be written in a directory; all that there can be where that cannot be asked for.
#[cfg(unix)]
pub(super) fn free_bytes(directory: &Path) -> u64 {
    let asked = rustix::fs::statvfs(directory);
    asked.map_or(u64::MAX, |answer| answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// Returns how many bytes can still be written in a directory; all that there can be where that cannot be asked for.
#[cfg(not(unix))]
pub(super) fn free_bytes(_directory: &Path) -> u64 {
    u64::MAX
}
