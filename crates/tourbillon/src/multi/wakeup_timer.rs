//! The engine timer of a surface that keeps many deadlines of its own: it wakes the surface at the earliest.
//!
//! A wake-up calls the surface's own waker, which looks for deadlines that are due and sets the timer again:
//!
//! 1. A thread that adds a deadline calls [`WakeupTimer::set`] with it after it has released the surface's lock. If the timer is set
//!    for an earlier time, nothing more is done.
//! 2. A thread that looks for due deadlines, because of a wake-up or for another reason, first calls
//!    [`WakeupTimer::take_outcome`], then looks under the surface's lock, and then calls `set` with the earliest deadline that is left.
//!
//! If the deadline that the timer was set for has been removed, the surface is woken once for nothing.
//!
//! Arming an entry may call the closure that a user gave to [`Driver::external_with`](crate::Driver::external_with), which may
//! call back into this module. So an entry is armed with no lock held, this timer's own included: the arming thread takes the entry out
//! of the timer for as long as it arms it. Other threads store the time that they need, and the arming thread arms the entry again for
//! that time before it puts the entry back.

use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use tourbillon_queue::Time;

use crate::core::CoreRef;
#[cfg(not(all(loom, test)))]
use crate::entry::Entry;
use crate::outcome::Outcome;
use crate::slack::{Slack, SlackBits};
use crate::sync::{Mutex, lock};
#[cfg(all(loom, test))]
use crate::verify::loom::timer::Entry;

/// A timer of the engine that wakes one surface.
pub(crate) struct WakeupTimer {
    core: CoreRef,
    /// How late the wake-ups may be, if not by the slack of the engine.
    slack: Option<SlackBits>,
    state: Mutex<WakeupState>,
    waker: Waker,
}

struct WakeupState {
    /// `None` while a thread arms it.
    entry: Option<Entry>,
    /// Whether the entry is armed, waits for capacity, or is being armed.
    is_set: bool,
    /// The time that the timer is set for.
    at: Time,
    /// A thread called `take_outcome` while another thread had the entry, and could not see the outcome.
    missed_outcome: bool,
}

/// The waker of a surface. It does nothing once the surface has been dropped.
struct SurfaceWaker<S> {
    surface: Weak<S>,
    on_wakeup: fn(&S),
}

impl WakeupTimer {
    /// Creates the timer of a surface: a wake-up calls `on_wakeup`, as long as the surface is there. See [`WakeupTimer::on`].
    pub(crate) fn of<S: Send + Sync + 'static>(surface: &Weak<S>, core: &CoreRef, on_wakeup: fn(&S)) -> WakeupTimer {
        WakeupTimer::on(core, Waker::from(Arc::new(SurfaceWaker { surface: surface.clone(), on_wakeup })))
    }

    /// Creates a timer that is not set, on this engine's clock.
    pub(crate) fn on(core: &CoreRef, waker: Waker) -> WakeupTimer {
        let entry = Entry::on(core, Time::NEVER);
        let state = WakeupState { entry: Some(entry), is_set: false, at: Time::NEVER, missed_outcome: false };
        WakeupTimer { core: core.clone(), slack: None, state: Mutex::new(state), waker }
    }

    /// Sets how late the wake-ups may be, instead of the slack of the engine, which `None` stands for.
    pub(crate) fn slack(mut self, slack: Option<Slack>) -> WakeupTimer {
        self.slack = slack.map(Slack::bits);
        let idle = self.idle_entry();
        lock(&self.state).entry = Some(idle);
        self
    }

    fn idle_entry(&self) -> Entry {
        let mut entry = Entry::on(&self.core, Time::NEVER);
        if let Some(slack) = self.slack {
            entry.set_slack(slack);
        }
        entry
    }

    /// Wakes the surface at `at` or before, and when the engine is shut down, also if `at` is `NEVER`.
    #[inline]
    pub(crate) fn set(&self, at: Time) {
        let mut state = lock(&self.state);
        if at < state.at || !state.is_set {
            (state.is_set, state.at) = (true, at);
            let entry = state.entry.take();
            drop(state);
            self.arm(entry, at);
        }
    }

    /// Postpones the wake-up to the surface's next deadline, which `next` returns, after a deadline was removed or moved later.
    ///
    /// Only an engine in virtual time needs this: its time would move to the removed deadline. Elsewhere a surface lets the timer wake
    /// it for nothing, which is cheaper.
    pub(crate) fn postpone_to(&self, mut next: impl FnMut() -> Time) {
        loop {
            let deadline = next();
            self.postpone(deadline);
            // A thread that has added an earlier deadline since then may have set the timer before this thread postponed it.
            let now = next();
            if now >= deadline {
                return;
            }
            self.set(now);
        }
    }

    /// Wakes the surface at `at` and not before, if the timer is set.
    fn postpone(&self, at: Time) {
        let mut state = lock(&self.state);
        if state.is_set && at > state.at {
            state.at = at;
            let entry = state.entry.take();
            drop(state);
            self.arm(entry, at);
        }
    }

    /// Returns how the entry ended, after which the timer is no longer set. The caller is about to look for due deadlines.
    ///
    /// Returns `None` if the entry has not ended: the timer is still set; or another thread is arming the entry, and will wake the
    /// surface again if necessary; or the entry was woken because the engine has a slot for it, and is no longer set.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        let mut state = lock(&self.state);
        let Some(entry) = &state.entry else {
            state.missed_outcome = true;
            return None;
        };
        let outcome = entry.outcome();
        if !entry.is_pending() {
            (state.is_set, state.at) = (false, Time::NEVER);
        }
        // An ended entry keeps its node, or its record in the wait table, until it is dropped, and the timer may not be set again for
        // long. The old entry is dropped outside the lock, which its drop does not need.
        let ended = outcome.and_then(|_| state.entry.replace(self.idle_entry()));
        drop(state);
        drop(ended);
        outcome
    }

    /// Stops waiting for capacity of the engine, and frees capacity that was reserved meanwhile. The caller has looked for due deadlines
    /// and found that no deadline is left. Does nothing if the timer is set.
    pub(crate) fn release_capacity(&self) {
        let mut state = lock(&self.state);
        // Another thread is arming the entry, or has set the timer again.
        if state.is_set || state.entry.is_none() {
            return;
        }
        let entry = state.entry.replace(self.idle_entry());
        drop(state);
        drop(entry);
    }

    /// Arms the entry for `at`, and again as long as other threads store another time. Without an entry, another thread is arming it and
    /// does so for this thread as well.
    #[cold]
    fn arm(&self, entry: Option<Entry>, mut at: Time) {
        let Some(mut entry) = entry else { return };
        loop {
            entry.set_due(at);
            let poll = entry.poll(&mut Context::from_waker(&self.waker));
            let mut state = lock(&self.state);
            if poll.is_pending() && state.at != at {
                at = state.at;
                continue;
            }
            // The entry may have ended, or been woken for capacity, while this thread had it, and the thread that was woken could not
            // see why. Or it ended in this poll: its time has passed, or the engine was shut down. Then the surface is woken here.
            let missed_outcome = std::mem::take(&mut state.missed_outcome);
            let has_ended = entry.outcome().is_some() || (missed_outcome && !entry.is_pending());
            state.entry = Some(entry);
            drop(state);
            if has_ended {
                self.waker.wake_by_ref();
            }
            return;
        }
    }
}

impl<S: Send + Sync + 'static> Wake for SurfaceWaker<S> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(surface) = self.surface.upgrade() {
            (self.on_wakeup)(&surface);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::engine::Engine;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn d39_p7_a_slot_granted_while_another_thread_arms_the_entry_wakes_the_surface_again() {
        let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
        let _takes_all_slots = engine.try_sleep(Duration::from_secs(1)).unwrap();
        let wakes = Arc::new(WakeCount::default());
        let timer = WakeupTimer::on(engine.core(), Waker::from(wakes.clone()));
        timer.set(Time::NEVER);
        // Another thread is about to arm the entry, and a slot is free for a moment.
        let (entry, at) = (lock(&timer.state).entry.take(), Time::NEVER);
        assert_eq!(timer.take_outcome(), None);
        timer.arm(entry, at);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "no thread would arm it");
        assert_eq!(timer.take_outcome(), None);
        timer.set(at);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "once is enough");
    }
}
