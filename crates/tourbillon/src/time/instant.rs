//! placeholder
/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(std::time::Instant);
impl Instant {
    /// From std.
    #[must_use]
    pub fn from_std(std: std::time::Instant) -> Instant { Instant(std) }
    /// To std.
    #[must_use]
    pub fn into_std(self) -> std::time::Instant { self.0 }
}
