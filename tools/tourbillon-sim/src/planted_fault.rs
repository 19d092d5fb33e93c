//! Faults between the engine and the models, which show that the models find them.

use std::str::FromStr;

use tourbillon::Outcome;

use crate::recorder::{EventKind, RecordedEvent};

/// A fault, named after the promise that it breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedFault {
    /// Timers seem to fire early: the recorded time of an event is too low.
    P1,
    /// A callback is reported twice.
    P2,
    /// Wake-ups seem to have come in the opposite order.
    P3,
    /// A wake-up or a call is lost.
    P4,
    /// Far deadlines wrap around, as in a wheel with a horizon.
    P5,
    /// A call into the engine panics.
    P6,
    /// A dropped timer stays in the engine.
    P7,
    /// A run of a job seems to have been due an hour later, as if summer time were ignored.
    P8,
    /// A call into the engine never returns.
    P10,
}

/// All faults that a run survives.
pub const ALL: [PlantedFault; 8] = [
    PlantedFault::P1,
    PlantedFault::P2,
    PlantedFault::P3,
    PlantedFault::P4,
    PlantedFault::P5,
    PlantedFault::P6,
    PlantedFault::P7,
    PlantedFault::P8,
];

impl PlantedFault {
    /// Applies the fault to the events of a step.
    pub fn distort(self, events: &mut Vec<RecordedEvent>) {
        let first_told =
            events.iter().position(|event| matches!(event.what, EventKind::CallbackCalled(Outcome::Fired)));
        let first_woken = events.iter().position(|event| event.what == EventKind::Woken);
        let first = first_told.or(first_woken);
        match (self, first) {
            (PlantedFault::P1, Some(first)) => events[first].clock = events[first].clock.saturating_sub(1 << 40),
            (PlantedFault::P2, Some(first)) => events.insert(first, events[first]),
            (PlantedFault::P3, Some(_)) => events.reverse(),
            (PlantedFault::P4, Some(first)) => _ = events.remove(first),
            (PlantedFault::P8, _) => events.iter_mut().for_each(|event| {
                if let EventKind::RunStarted(_, due) = &mut event.what {
                    *due = due.saturating_add(3600 * 1_000_000_000);
                }
            }),
            _ => {}
        }
    }

    /// Applies the fault to a duration.
    #[must_use]
    pub fn shorten(broken: Option<PlantedFault>, after: std::time::Duration) -> std::time::Duration {
        if broken != Some(PlantedFault::P5) {
            return after;
        }
        std::time::Duration::from_nanos((after.as_nanos() as u64) & ((1 << 33) - 1))
    }
}

impl FromStr for PlantedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<PlantedFault, String> {
        let mut all = ALL.into_iter().chain([PlantedFault::P10]);
        let found = all.find(|broken| format!("{broken:?}").eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("`{text}` is none of P1 to P8 and P10"))
    }
}
