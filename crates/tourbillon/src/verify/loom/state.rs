//! The state word alone.

use loom::sync::Arc;
use loom::thread;

use super::{DUE, EARLIER, LATER, explore};
use crate::shard::state::{CountAs, Fire, Later, NodeState, Released, StateWord, Stop};
use crate::sync::UnsafeCell;

#[test]
fn d39_p2_of_fire_stop_and_cancel_one_wins() {
    explore(|| {
        let state = Arc::new(StateWord::free());
        state.arm(DUE);
        // Only the winner may use the waker: loom reports two threads in this cell.
        let waker = Arc::new(UnsafeCell::new(0));
        let shard = {
            let (state, waker) = (state.clone(), waker.clone());
            thread::spawn(move || {
                let fired = matches!(state.fire(DUE), Fire::Won(_));
                let stopped = state.stop() == Stop::Won;
                if fired || stopped {
                    // SAFETY: the shard has ended the timer, so the waker is the shard's.
                    waker.with_mut(|waker| unsafe { *waker += 1 });
                }
                (fired, stopped)
            })
        };
        let cancelled = state.release(7, CountAs::Cancelled) == Released::Cancelled;
        if cancelled {
            // SAFETY: the handle has ended the timer, so the waker is the handle's.
            waker.with_mut(|waker| unsafe { *waker += 1 });
        }
        let (fired, stopped) = shard.join().unwrap();
        assert_eq!(usize::from(cancelled) + usize::from(fired) + usize::from(stopped), 1);
        let count = if cancelled { CountAs::Cancelled } else { CountAs::Nothing };
        assert!(!stopped, "the timer was stopped although it was due");
        assert_eq!(state.load(), NodeState::Released(7, count));
    });
}

#[test]
fn d39_p1_a_timer_fires_with_the_deadline_that_the_handle_set_last() {
    explore(|| {
        let state = Arc::new(StateWord::free());
        state.arm(EARLIER);
        let shard = {
            let state = state.clone();
            thread::spawn(move || [EARLIER, DUE].map(|now| state.fire(now)))
        };
        let first = state.later(EARLIER, DUE);
        let second = if first == Later::Won { state.later(DUE, LATER) } else { Later::Lost };
        let fires = shard.join().unwrap();
        let won: Vec<_> = fires.into_iter().filter(|fire| matches!(fire, Fire::Won(_))).collect();
        match (first, second) {
            (Later::Lost, _) => assert_eq!(won, [Fire::Won(EARLIER)]),
            (Later::Won, Later::Lost) => assert_eq!(won, [Fire::Won(DUE)]),
            (Later::Won, Later::Won) => assert_eq!((won, state.load()), (vec![], NodeState::Armed(LATER))),
        }
    });
}

#[test]
fn d39_a_handle_that_sees_the_end_sees_the_writes_before_it() {
    explore(|| {
        let state = Arc::new(StateWord::free());
        state.arm(DUE);
        let data = Arc::new(UnsafeCell::new(false));
        let handle = {
            let (state, data) = (state.clone(), data.clone());
            thread::spawn(move || {
                if state.load() == NodeState::Fired {
                    // SAFETY: the timer is fired, and the shard does not write the data after that.
                    assert!(data.with(|data| unsafe { *data }));
                }
            })
        };
        // SAFETY: the handle does not read the data before the timer is fired.
        data.with_mut(|data| unsafe { *data = true });
        assert_eq!(state.fire(DUE), Fire::Won(DUE));
        handle.join().unwrap();
    });
}
