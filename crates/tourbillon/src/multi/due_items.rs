//! Ends the items of a surface whose deadlines have passed, when the surface's [`WakeupTimer`] goes off.
//!
//! One thread at a time does so, so that callbacks are posted in the order of the deadlines (D33). It ends the items in batches, and the
//! surface releases its lock between them (D26). After [`BATCHES_IN_A_ROW`] the driver, on whose thread this runs, fires other timers first.

use tourbillon_queue::{Span, Time};

use crate::core::Core;
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;

/// A surface whose items have deadlines, behind a lock of its own, which each method below takes and releases.
pub(crate) trait DueItems {
    /// Items that were taken out under the lock. Its memory is used for one batch after the other.
    type Batch: Default;

    fn core(&self) -> &Core;

    fn wakeup(&self) -> &WakeupTimer;

    /// Calls `change` with the state of [`Firing`].
    fn change_firing(&self, change: impl FnOnce(&mut Firing) -> bool) -> bool;

    /// Takes note that the engine was shut down.
    fn on_engine_stopped(&self);

    /// Ends a batch of items that are due at `now`, and returns whether there may be more.
    fn end_due(&self, now: Time, batch: &mut Self::Batch) -> bool;

    /// Returns the first deadline, or an earlier time at which the wheel needs upkeep; `None` if no item needs a wake-up.
    fn next_wakeup(&self) -> Option<Time>;
}

/// Whether a thread is ending due items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Firing {
    /// No thread does.
    #[default]
    No,
    /// One thread does, and knows of every wake-up so far.
    Yes,
    /// One thread does. Another wake-up came meanwhile, so the thread has to look again.
    Again,
}

/// Lets other threads fire if the keys of the user, which the surface hashes and compares, panic.
struct ReleaseOnPanic<'a, S: DueItems>(&'a S);

/// How many batches are ended in a row.
const BATCHES_IN_A_ROW: usize = 32;
/// How long the driver has for other timers after that.
const PAUSE: Span = Span::from_nanos(20_000);

/// Handles a wake-up: ends due items, and sets the wake-up for the others. If another thread is doing that, it looks again.
pub(crate) fn on_wakeup<S: DueItems>(surface: &S) {
    if !surface.change_firing(Firing::begin) {
        return;
    }
    let release = ReleaseOnPanic(surface);
    loop {
        if surface.wakeup().take_outcome() == Some(Outcome::Stopped) {
            surface.on_engine_stopped();
        }
        let is_done = end_all_due(surface);
        match surface.next_wakeup() {
            // This may wake at once; then `Firing::end` says to go round again.
            Some(next) => surface.wakeup().set(if is_done { next } else { surface.core().clock.now() + PAUSE }),
            None => surface.wakeup().release_capacity(),
        }
        if surface.change_firing(Firing::end) {
            std::mem::forget(release);
            return;
        }
    }
}

/// Ends the items that are due now. Returns `false` if it stopped before the last, so that other timers of the engine are not late. A
/// clock that is moved by hand waits, so there all are ended.
fn end_all_due<S: DueItems>(surface: &S) -> bool {
    let (core, mut batch) = (surface.core(), S::Batch::default());
    let now = core.clock.now();
    for batches in 1.. {
        if !surface.end_due(now, &mut batch) {
            break;
        }
        if batches == BATCHES_IN_A_ROW && !core.clock.is_manual() && !core.is_virtual {
            return false;
        }
    }
    true
}

impl Firing {
    /// Claims the firing of due items, and returns whether the calling thread has it. If not, the thread that fires looks again.
    #[must_use]
    fn begin(&mut self) -> bool {
        let before = *self;
        *self = if before == Firing::No { Firing::Yes } else { Firing::Again };
        before == Firing::No
    }

    /// Ends a pass over the due items, and returns whether the calling thread is done; if not, it has to look again.
    #[must_use]
    fn end(&mut self) -> bool {
        let was_all = *self == Firing::Yes;
        *self = if was_all { Firing::No } else { Firing::Yes };
        was_all
    }
}

impl<S: DueItems> Drop for ReleaseOnPanic<'_, S> {
    fn drop(&mut self) {
        self.0.change_firing(|firing| {
            *firing = Firing::No;
            true
        });
        // The items that are left get their wake-up.
        self.0.wakeup().set(self.0.core().clock.now() + PAUSE);
    }
}
