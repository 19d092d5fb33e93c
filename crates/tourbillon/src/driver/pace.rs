//! How often relaxed timers may wake the driver: adaptive slack.
//!
//! A budget fills up by one wake-up each [`SPACE`](super::SPACE), to no more than [`SAVED`] of them. While there is some left,
//! a wake-up happens when a timer wants it, to the nanosecond. When it has been used up, the next wake-up waits for
//! the budget, and all that has come due meanwhile shares it. Wake-ups for other timers are counted too, and are not
//! held up; however many there are, the relaxed ones wait no longer than one space.

use tourbillon_queue::{Span, Time};

/// So many wake-ups can be saved up in quiet times.
const SAVED: u64 = 32;

#[derive(Default)]
pub(crate) struct Pace {
    /// When the budget will be full again.
    full_at: Time,
}

impl Pace {
    /// Spends one wake-up.
    pub(crate) fn woken(&mut self, now: Time) {
        let space = Span::from(super::SPACE);
        self.full_at = (self.full_at.max(now) + space).min(now + saved() + space);
    }

    /// When there is a wake-up to spend.
    pub(crate) fn floor(&self) -> Time {
        self.full_at - saved()
    }
}

/// How long it takes to save up all that can be.
fn saved() -> Span {
    Span::from_nanos(Span::from(super::SPACE).as_nanos() * SAVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_a_quiet_driver_wakes_up_at_any_time() {
        let mut pace = Pace::default();
        let mut now = Time::from_nanos(1 << 40);
        for _ in 0..1000 {
            pace.woken(now);
            assert!(pace.floor() < now);
            now = now + Span::from(super::super::SPACE) + Span::from_nanos(1);
        }
    }

    #[test]
    fn p4_however_often_it_is_woken_the_next_time_is_no_more_than_a_space_away() {
        let mut pace = Pace::default();
        let now = Time::from_nanos(1 << 40);
        (0..if cfg!(miri) { 1000 } else { 100_000 }).for_each(|_| pace.woken(now));
        assert_eq!(pace.floor(), now + Span::from(super::super::SPACE));
    }

    #[test]
    fn b2_a_busy_driver_is_spaced_after_its_savings_are_spent() {
        let mut pace = Pace::default();
        let (start, mut now) = (Time::from_nanos(1 << 40), Time::from_nanos(1 << 40));
        for _ in 0..1000 {
            pace.woken(now);
            now = now.max(pace.floor());
        }
        let spent = (now - start).as_nanos();
        assert_eq!(spent, (1000 - SAVED) * Span::from(super::super::SPACE).as_nanos());
    }
}
