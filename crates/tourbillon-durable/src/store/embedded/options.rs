//! How an embedded store is opened.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::EmbeddedStore;
use crate::store::error::StoreError;
use crate::time::StoreTime;

const MIB: u64 = 1 << 20;

/// Settings of an [`EmbeddedStore`].
///
/// ```no_run
/// use tourbillon_durable::store::EmbeddedStore;
///
/// # fn main() -> Result<(), tourbillon_durable::StoreError> {
/// let store = EmbeddedStore::options().cache(256 << 20).open("/var/lib/shop/timers")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct EmbeddedOptions {
    pub(super) creates: bool,
    pub(super) cache: u64,
    pub(super) write_buffer: u64,
    pub(super) reserve: u64,
    pub(super) history: u64,
    pub(super) clock: Arc<dyn Fn() -> StoreTime + Send + Sync>,
}

impl EmbeddedOptions {
    /// Sets whether opening makes the store if it is missing, and upgrades one of an older format (the default).
    ///
    /// With `false` a store that is missing is [`StoreError::Missing`], and one of an older format [`StoreError::OlderFormat`].
    pub fn create(mut self, creates: bool) -> EmbeddedOptions {
        self.creates = creates;
        self
    }

    /// Sets how many bytes of tables are cached in memory, besides what the operating system caches. 32 MiB by default.
    pub fn cache(mut self, bytes: u64) -> EmbeddedOptions {
        self.cache = bytes;
        self
    }

    /// Sets how many bytes are collected in memory before they are written to a table. 40 MiB by default, 1 MiB at least and 1 GiB at most. Up
    /// to four times as much is in memory while more is written than the disk takes. A backup, an export or a verification keeps what was in
    /// memory at its beginning until it ends.
    ///
    /// With more, writes are delayed less often: the engine lets nobody read or write for some synchronisations of the disk when it has
    /// written or merged tables.
    pub fn write_buffer(mut self, bytes: u64) -> EmbeddedOptions {
        self.write_buffer = bytes.clamp(MIB, 1024 * MIB);
        self
    }

    /// Sets how many bytes of the disk are kept for cancels and deliveries: when less is free, creates are refused with
    /// [`WriteAnswer::Full`](crate::store::WriteAnswer::Full). 256 MiB by default. It should not be less than what the engine needs to
    /// rewrite a few tables. A backup leaves as much on its disk, or fails with [`StoreError::Full`].
    pub fn reserve(mut self, bytes: u64) -> EmbeddedOptions {
        self.reserve = bytes;
        self
    }

    /// Sets how many ended occurrences the history remembers. 100,000 by default; zero for none.
    pub fn history(mut self, entries: u64) -> EmbeddedOptions {
        self.history = entries;
        self
    }

    /// Sets the clock of the store. The system's clock by default. This is for tests of a store: [`Timers`](crate::Timers) waits by the system's
    /// clock. With a clock that is ahead of that one its timers are late; with one that is behind it asks for them in vain until they are due.
    pub fn clock(mut self, clock: impl Fn() -> StoreTime + Send + Sync + 'static) -> EmbeddedOptions {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the store in a directory, which is created if it does not exist, unless the options say [otherwise](EmbeddedOptions::create).
    ///
    /// After a process that did not close the store, this reads what was written last; the time is in
    /// [`EmbeddedStore::recovery`].
    ///
    /// # Errors
    /// - [`StoreError::Locked`]: another process has the store open, or this one has. Opening waits up to two seconds for a store of this process,
    ///   because [`Timers`](crate::Timers) that are dropped close theirs a moment later. After [`shutdown`](crate::Timers::shutdown) it is closed.
    /// - [`StoreError::Missing`], [`StoreError::OlderFormat`]: only with [`create(false)`](EmbeddedOptions::create).
    /// - [`StoreError::NewerFormat`]: a newer version of this crate has written it.
    /// - [`StoreError::Damaged`]: something that was acknowledged cannot be read. Nothing was changed.
    /// - [`StoreError::ReadOnly`], [`StoreError::Full`], [`StoreError::Unavailable`]: the operating system refused.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::open_with(directory.as_ref(), self)
    }
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            creates: true,
            cache: 32 * MIB,
            write_buffer: 40 * MIB,
            reserve: 256 * MIB,
            history: 100_000,
            clock: Arc::new(|| StoreTime::try_from(SystemTime::now()).unwrap_or(StoreTime::ZERO)),
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("cache", &self.cache)
            .field("write_buffer", &self.write_buffer)
            .field("reserve", &self.reserve)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}
