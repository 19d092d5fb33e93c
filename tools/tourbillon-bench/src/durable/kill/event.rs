//! What a process that will be killed reports: one line for each step, written before the step and after its answer.
//!
//! A line is written by one system call, so the kernel has it when the process is killed afterwards.

use std::fmt;

/// A step of a client or a handler. `key` is the number of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The store is open, after so many microseconds.
    Open { micros: u64 },
    /// A create is about to be sent: of a timer with so many occurrences, which belongs to a set unless that is 0.
    Creating { key: u64, due: u64, times: u64, set: u64 },
    /// A create was acknowledged.
    Created { key: u64 },
    /// A read of a repeating timer has found that its occurrences up to this number have been claimed.
    Claimed { key: u64, through: u64 },
    /// A cancel is about to be sent.
    Cancelling { key: u64 },
    /// A cancel was acknowledged with these counts, before the time `at`.
    Cancelled { key: u64, cancelled: u64, in_flight: u64, at: u64 },
    /// A cancel of all timers of a set, by their name, is about to be sent.
    CancellingSet { set: u64 },
    /// A cancel of a set was acknowledged with this count, before the time `at`.
    CancelledSet { set: u64, cancelled: u64, at: u64 },
    /// A reschedule is about to be sent.
    Moving { key: u64, due: u64 },
    /// A reschedule was acknowledged.
    Moved { key: u64 },
    /// A reschedule was refused: the timer is being delivered or has ended.
    NotMoved { key: u64 },
    /// The handler was called with an occurrence that stands for so many more, `late` microseconds after it was due.
    Fired { key: u64, occurrence: u64, stands_for: u64, attempt: u64, due: u64, late: u64 },
    /// The handler was called before the timer was due.
    Early { key: u64 },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Event::Open { micros } => write!(f, "open {micros}"),
            Event::Creating { key, due, times, set } => write!(f, "creating {key} {due} {times} {set}"),
            Event::Created { key } => write!(f, "created {key}"),
            Event::Claimed { key, through } => write!(f, "claimed {key} {through}"),
            Event::Cancelling { key } => write!(f, "cancelling {key}"),
            Event::Cancelled { key, cancelled, in_flight, at } => {
                write!(f, "cancelled {key} {cancelled} {in_flight} {at}")
            }
            Event::CancellingSet { set } => write!(f, "cancelling-set {set}"),
            Event::CancelledSet { set, cancelled, at } => write!(f, "cancelled-set {set} {cancelled} {at}"),
            Event::Moving { key, due } => write!(f, "moving {key} {due}"),
            Event::Moved { key } => write!(f, "moved {key}"),
            Event::NotMoved { key } => write!(f, "not-moved {key}"),
            Event::Fired { key, occurrence, stands_for, attempt, due, late } => {
                write!(f, "fired {key} {occurrence} {stands_for} {attempt} {due} {late}")
            }
            Event::Early { key } => write!(f, "early {key}"),
        }
    }
}

impl Event {
    /// Parses a line; `None` if it is something else, such as a line that the kill cut off.
    pub(super) fn parse(line: &str) -> Option<Event> {
        let (word, numbers) = line.split_once(' ')?;
        let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(match (word, &*numbers) {
            ("open", &[micros]) => Event::Open { micros },
            ("creating", &[key, due, times, set]) => Event::Creating { key, due, times, set },
            ("created", &[key]) => Event::Created { key },
            ("claimed", &[key, through]) => Event::Claimed { key, through },
            ("cancelling", &[key]) => Event::Cancelling { key },
            ("cancelled", &[key, cancelled, in_flight, at]) => Event::Cancelled { key, cancelled, in_flight, at },
            ("cancelling-set", &[set]) => Event::CancellingSet { set },
            ("cancelled-set", &[set, cancelled, at]) => Event::CancelledSet { set, cancelled, at },
            ("moving", &[key, due]) => Event::Moving { key, due },
            ("moved", &[key]) => Event::Moved { key },
            ("not-moved", &[key]) => Event::NotMoved { key },
            ("fired", &[key, occurrence, stands_for, attempt, due, late]) => {
                Event::Fired { key, occurrence, stands_for, attempt, due, late }
            }
            ("early", &[key]) => Event::Early { key },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_a_line_that_was_cut_off_is_none() {
        let events = [
            Event::Open { micros: 7 },
            Event::Creating { key: 1, due: 2, times: 3, set: 4 },
            Event::Claimed { key: 3, through: 2 },
            Event::Cancelled { key: 3, cancelled: 1, in_flight: 0, at: 9 },
            Event::CancellingSet { set: 3 },
            Event::CancelledSet { set: 3, cancelled: 1, at: 9 },
            Event::Moving { key: 4, due: 5 },
            Event::Fired { key: 6, occurrence: 1, stands_for: 3, attempt: 2, due: 8, late: 9 },
        ];
        for event in events {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        assert_eq!(Event::parse("cancelled 3 1"), None);
        assert_eq!(Event::parse("fir"), None);
    }
}
