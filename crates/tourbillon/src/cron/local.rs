//! Converts times that a local clock shows into moments.
//!
//! A zone's local clock runs evenly except at its transitions, where it is set forward (a gap) or back (an overlap):
//!
//! ```text
//!     local                            /                  A stretch is the time between two transitions. Within one,
//!     03:30                      /    /                   local time is the time plus an offset.
//!     03:00                _____/    /
//!     02:30               |    /|   /
//!     02:00              /|   / |  /
//!     01:30             / |  /  | /
//!                      /  gap   overlap
//! ```
//!
//! There are two kinds of lines, with one rule each:
//!
//! - An *interval* is due at every moment at which the local clock shows a time that the line names. So times in a gap are not due,
//!   and times in an overlap are due twice.
//! - A *fixed time* is due at the first moment at which the local clock has reached or passed it. So times in a gap are due at its end,
//!   all at once, and times in an overlap are due in its first half.
//!
//! Croner's own rules for zones are not used: croner gives up at a gap of more than two hours, drops times in a gap that ends on another
//! day, and treats two times a day as an interval.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::CronKind;

/// Returns the first due moment after `after`. `next_shown` returns the first matching time, in whole seconds, that a local clock shows
/// after the time that it is given.
pub(super) fn next(
    zone: &TimeZone,
    kind: CronKind,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    match kind {
        CronKind::Fixed => next_fixed(zone, after, next_shown),
        CronKind::Interval => next_interval(zone, after, next_shown),
    }
}

fn next_fixed(
    zone: &TimeZone,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    let due = next_shown(furthest_shown(zone, after))?;
    stretches(zone, after).find_map(|stretch| {
        // A time in the gap before this stretch is due where the stretch begins.
        stretch.when(due).map(|at| at.max(stretch.begin)).filter(|at| stretch.lasts_until(*at))
    })
}

fn next_interval(
    zone: &TimeZone,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    let mut from = zone.to_datetime(after);
    // No time that the clock shows between `from` and `due` is due.
    let mut due = next_shown(from)?;
    for (index, stretch) in stretches(zone, after).enumerate() {
        let begin = stretch.offset.to_datetime(stretch.begin);
        if index > 0 && (begin <= from || begin > due) {
            from = second_before(begin);
            due = next_shown(from)?;
        }
        let at = stretch.when(due)?;
        if stretch.lasts_until(at) {
            return Some(at);
        }
    }
    None
}

/// Returns the latest time that the local clock has shown up to this moment. In the second half of an overlap that is later than
/// the time that it shows.
pub(super) fn furthest_shown(zone: &TimeZone, at: Timestamp) -> DateTime {
    let shown = zone.to_datetime(at);
    let window = at.saturating_sub(LONGEST_OVERLAP).unwrap_or(Timestamp::MIN);
    // The transitions up to and including `at`.
    let until = at.saturating_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(at);
    let before = zone.preceding(until).map(|transition| transition.timestamp()).take_while(|at| *at > window);
    before.fold(shown, |furthest, transition| {
        let Ok(last) = transition.checked_sub(jiff::SignedDuration::from_nanos(1)) else { return furthest };
        furthest.max(zone.to_datetime(last))
    })
}

/// An offset is less than 26 hours, so two offsets differ by less than this.
const LONGEST_OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_hours(2 * 26);

/// A time between two transitions, in which the local clock runs evenly.
pub(super) struct Stretch {
    pub(super) begin: Timestamp,
    /// `None` if the stretch never ends.
    pub(super) end: Option<Timestamp>,
    pub(super) offset: Offset,
}

impl Stretch {
    /// Returns when the local clock would show this time if the stretch had no bounds.
    fn when(&self, shown: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(shown).ok()
    }

    fn lasts_until(&self, at: Timestamp) -> bool {
        self.end.is_none_or(|end| at < end)
    }
}

/// Returns the stretches from this moment on.
pub(super) fn stretches(zone: &TimeZone, from: Timestamp) -> impl Iterator<Item = Stretch> {
    let mut transitions = zone.following(from);
    let mut next = Some((from, zone.to_offset(from)));
    std::iter::from_fn(move || {
        let (begin, offset) = next.take()?;
        next = transitions.next().map(|transition| (transition.timestamp(), transition.offset()));
        Some(Stretch { begin, end: next.map(|(end, _)| end), offset })
    })
}

fn second_before(shown: DateTime) -> DateTime {
    shown.saturating_sub(jiff::SignedDuration::from_secs(1))
}
