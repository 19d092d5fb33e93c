//! The one timer of a surface that keeps many deadlines of its own: it rings at the earliest.
//!
//! A bell rings by waking the surface's own waker, which looks for what is due and sets the bell again. So:
//!
//! 1. Whoever adds a deadline calls [`WakeupTimer::set`] with it, after letting go of the surface's lock. If the bell will ring
//!    before that anyway, nothing more is done.
//! 2. Whoever looks for what is due, because it rang or for another reason, calls [`WakeupTimer::rang`] first, then looks under the
//!    surface's lock, then calls `set` with the earliest deadline that is left.
//!
//! It may ring for nothing, when the deadline that it was set for is gone: once.
//!
//! Arming a timer may call what a user gave to [`Driver::external_with`](crate::Driver::external_with), which may come
//! back here. So the entry is armed outside every lock, the bell's own included: whoever arms it has taken it out of the bell
//! meanwhile. Others leave their wish, and whoever has the entry sees to it before it is put back.

use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use tourbillon_queue::Time;

use crate::Outcome;
use crate::core::CoreRef;
#[cfg(not(all(loom, test)))]
use crate::entry::Entry;
use crate::sync::{Mutex, lock};
#[cfg(all(loom, test))]
use crate::verify::loom::timer::Entry;

pub(crate) struct WakeupTimer {
    core: CoreRef,
    state: Mutex<State>,
    waker: Waker,
}

struct State {
    /// `None` while somebody arms it.
    entry: Option<Entry>,
    /// Whether it will ring, or is being armed.
    is_set: bool,
    /// When it will ring.
    at: Time,
    /// It was heard while somebody armed it, and who heard it could not tell why.
    is_unheard: bool,
}

/// What a bell wakes: its surface, as long as that is there.
struct Ringer<S> {
    surface: Weak<S>,
    ring: fn(&S),
}

impl WakeupTimer {
    /// The bell of this surface: it calls `ring`, as long as the surface is there. As [`WakeupTimer::on`].
    pub(crate) fn of<S: Send + Sync + 'static>(surface: &Weak<S>, core: &CoreRef, ring: fn(&S)) -> WakeupTimer {
        WakeupTimer::on(core, Waker::from(Arc::new(Ringer { surface: surface.clone(), ring })))
    }

    /// One that does not ring, and that follows the time of this engine.
    pub(crate) fn on(core: &CoreRef, waker: Waker) -> WakeupTimer {
        let entry = Entry::on(core, Time::NEVER);
        let state = State { entry: Some(entry), is_set: false, at: Time::NEVER, is_unheard: false };
        WakeupTimer { core: core.clone(), state: Mutex::new(state), waker }
    }

    /// Rings at `at` or before, and when the engine is shut down: also if `at` is `NEVER`.
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

    /// In an engine whose time may move by itself: rings at `at` rather than before, if it is set. The caller has found that there is no
    /// earlier deadline; if one was added meanwhile, the caller has to [set](WakeupTimer::set) the bell for it.
    pub(crate) fn put_off(&self, at: Time) {
        let mut state = lock(&self.state);
        if state.is_set && at > state.at {
            state.at = at;
            let entry = state.entry.take();
            drop(state);
            self.arm(entry, at);
        }
    }

    /// By whoever is going to look for what is due: if it has rung, it has to be set again. Says why it rang; nothing, if it
    /// has not, or if there may be room now for a timer that the engine had none for.
    pub(crate) fn rang(&self) -> Option<Outcome> {
        let mut state = lock(&self.state);
        let Some(entry) = &state.entry else {
            state.is_unheard = true;
            return None;
        };
        let outcome = entry.outcome();
        if !entry.is_pending() {
            (state.is_set, state.at) = (false, Time::NEVER);
        }
        // One that has ended takes room in the engine as long as it is there, and it may be long before the bell is set again.
        // Others may wait for that room: they are woken when it is dropped, outside the lock.
        let ended = outcome.and_then(|_| state.entry.replace(Entry::on(&self.core, Time::NEVER)));
        drop(state);
        drop(ended);
        outcome
    }

    /// By the thread that has looked for what is due and found no deadline left: ends a wait for room, and gives up a place that was
    /// reserved meanwhile. Does nothing if the bell is set.
    pub(crate) fn rest(&self) {
        let mut state = lock(&self.state);
        // Being armed by another thread, or set again since.
        if state.is_set || state.entry.is_none() {
            return;
        }
        let entry = state.entry.replace(Entry::on(&self.core, Time::NEVER));
        drop(state);
        drop(entry);
    }

    /// Arms the entry, if we have got it, until it is armed for what is wished.
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
            // It may have rung while it was with us, and whoever heard that could not tell: for its time, or for room that the
            // engine has now. Or it is time already, or the engine has been shut down. Whoever is woken finds out.
            let is_unheard = std::mem::take(&mut state.is_unheard);
            let has_rung = entry.outcome().is_some() || (is_unheard && !entry.is_pending());
            state.entry = Some(entry);
            drop(state);
            if has_rung {
                self.waker.wake_by_ref();
            }
            return;
        }
    }
}

impl<S: Send + Sync + 'static> Wake for Ringer<S> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(surface) = self.surface.upgrade() {
            (self.ring)(&surface);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Engine};

    #[derive(Default)]
    struct Rings(AtomicUsize);

    impl Wake for Rings {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn d39_p7_news_of_room_that_comes_while_somebody_arms_it_is_told_again() {
        let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
        let _takes_all_room = engine.try_sleep(Duration::from_secs(1)).unwrap();
        let rings = Arc::new(Rings::default());
        let bell = WakeupTimer::on(engine.core(), Waker::from(rings.clone()));
        bell.set(Time::NEVER);
        // Somebody is about to arm it, and there is room for a moment.
        let (entry, at) = (lock(&bell.state).entry.take(), Time::NEVER);
        assert_eq!(bell.rang(), None);
        bell.arm(entry, at);
        assert_eq!(rings.0.load(Ordering::SeqCst), 1, "nobody would arm it");
        assert_eq!(bell.rang(), None);
        bell.set(at);
        assert_eq!(rings.0.load(Ordering::SeqCst), 1, "once is enough");
    }
}
