//! Faults that are planted between the engine and the model, so that it can be seen that the model finds them.

use std::str::FromStr;

use tourbillon::Outcome;

use crate::hub::{Event, What};

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// Timers seem to fire early: what the clock showed is read too low.
    P1,
    /// An outcome is told twice.
    P2,
    /// Two that were woken seem to have been woken in the other order.
    P3,
    /// A wake or a call is lost.
    P4,
    /// Far deadlines wrap around, as with a wheel that has a horizon.
    P5,
    /// A call of the engine panics.
    P6,
    /// A timer that is dropped stays in the engine.
    P7,
    /// A run of a job seems to have been due an hour later: summer time was forgotten.
    P8,
    /// A call of the engine never returns.
    P10,
}

/// All of them that can be lived through.
pub const ALL: [Break; 8] = [Break::P1, Break::P2, Break::P3, Break::P4, Break::P5, Break::P6, Break::P7, Break::P8];

impl Break {
    /// What becomes of the events of a step.
    pub fn distort(self, events: &mut Vec<Event>) {
        let first_told = events.iter().position(|event| matches!(event.what, What::Told(Outcome::Fired)));
        let first_woken = events.iter().position(|event| event.what == What::Woken);
        let first = first_told.or(first_woken);
        match (self, first) {
            (Break::P1, Some(first)) => events[first].clock = events[first].clock.saturating_sub(1 << 40),
            (Break::P2, Some(first)) => events.insert(first, events[first]),
            (Break::P3, Some(_)) => events.reverse(),
            (Break::P4, Some(first)) => _ = events.remove(first),
            (Break::P8, _) => events.iter_mut().for_each(|event| {
                if let What::Ran(_, due) = &mut event.what {
                    *due = due.saturating_add(3600 * 1_000_000_000);
                }
            }),
            _ => {}
        }
    }

    /// What becomes of a duration.
    #[must_use]
    pub fn shorten(broken: Option<Break>, after: std::time::Duration) -> std::time::Duration {
        if broken != Some(Break::P5) {
            return after;
        }
        std::time::Duration::from_nanos((after.as_nanos() as u64) & ((1 << 33) - 1))
    }
}

impl FromStr for Break {
    type Err = String;

    fn from_str(text: &str) -> Result<Break, String> {
        let mut all = ALL.into_iter().chain([Break::P10]);
        let found = all.find(|broken| format!("{broken:?}").eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("`{text}` is none of P1 to P8 and P10"))
    }
}
