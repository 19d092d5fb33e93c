//! From what a local clock shows to moments.
//!
//! A zone's local clock runs evenly but for its transitions, where it is put forward (a gap) or back (an overlap):
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
//! Lines come in two kinds, and each has a rule that says all:
//!
//! - An *interval* is due at every moment at which the local clock shows what it names. So it is not due for what is in a gap, and
//!   for what is in an overlap twice.
//! - A *fixed time* is due at the first moment at which the local clock has reached or passed it. So what is in a gap is due
//!   when the gap has been passed, all of it at once, and what is in an overlap is due in its first half.
//!
//! Croner has rules for zones too, and is not asked for them: it gives up at a gap of more than two hours, forgets what falls into
//! a gap that ends on another day, and takes two times a day for an interval.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::Kind;

/// The first moment after this one that is due. `next_shown` is the next that a local clock would show after what it is given, in
/// whole seconds.
pub(super) fn next(
    zone: &TimeZone,
    kind: Kind,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    match kind {
        Kind::Fixed => next_fixed(zone, after, next_shown),
        Kind::Interval => next_interval(zone, after, next_shown),
    }
}

fn next_fixed(
    zone: &TimeZone,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    let due = next_shown(furthest_shown(zone, after))?;
    stretches(zone, after).find_map(|stretch| {
        // Where the gap before this stretch has swallowed it, its begin.
        stretch.when(due).map(|at| at.max(stretch.begin)).filter(|at| stretch.lasts_until(*at))
    })
}

fn next_interval(
    zone: &TimeZone,
    after: Timestamp,
    next_shown: impl Fn(DateTime) -> Option<DateTime>,
) -> Option<Timestamp> {
    let mut from = zone.to_datetime(after);
    // Nothing that is shown between these two is due.
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

/// The latest that the local clock has shown up to this moment: after an overlap has begun, more than it shows.
fn furthest_shown(zone: &TimeZone, at: Timestamp) -> DateTime {
    let shown = zone.to_datetime(at);
    let window = at.saturating_sub(LONGEST_OVERLAP).unwrap_or(Timestamp::MIN);
    // The transitions that are not after it.
    let upto = at.saturating_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(at);
    let before = zone.preceding(upto).map(|transition| transition.timestamp()).take_while(|at| *at > window);
    before.fold(shown, |furthest, transition| {
        let Ok(last) = transition.checked_sub(jiff::SignedDuration::from_nanos(1)) else { return furthest };
        furthest.max(zone.to_datetime(last))
    })
}

/// An offset is less than 26 hours, so two of them differ by less than this.
const LONGEST_OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_hours(2 * 26);

/// A time in which the local clock runs evenly.
struct Stretch {
    begin: Timestamp,
    /// `None`: for ever.
    end: Option<Timestamp>,
    offset: Offset,
}

impl Stretch {
    /// When the local clock would show this, if the stretch had no bounds.
    fn when(&self, shown: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(shown).ok()
    }

    fn lasts_until(&self, at: Timestamp) -> bool {
        self.end.is_none_or(|end| at < end)
    }
}

/// From this moment on.
fn stretches(zone: &TimeZone, from: Timestamp) -> impl Iterator<Item = Stretch> {
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
