//! How often adaptive timers may wake the driver.
//!
//! A budget grows by one wake-up every [`WAKEUP_SPACING`], up to [`MAX_SAVED`] of them. While some is left, an adaptive
//! timer wakes the driver at its own deadline, to the nanosecond. When the budget is used up, the next wake-up waits until it has grown by
//! one, and all adaptive timers that come due meanwhile share that wake-up. Wake-ups for other timers are counted too, but are not delayed;
//! however many there are, adaptive timers wait no longer than one spacing.

use std::time::Duration;

use tourbillon_queue::{Span, Time};

/// The time between two wake-ups for adaptive timers when there are many.
pub(crate) const WAKEUP_SPACING: Duration = Duration::from_micros(1500);

/// How many wake-ups can be saved up in quiet times.
const MAX_SAVED: u64 = 8;

/// The wake-ups that a driver or a worker may spend on adaptive timers.
#[derive(Default)]
pub(crate) struct WakeupBudget {
    /// When the budget will be full again.
    full_at: Time,
}

impl WakeupBudget {
    /// Spends one wake-up.
    pub(crate) fn spend(&mut self, now: Time) {
        let spacing = Span::from(WAKEUP_SPACING);
        self.full_at = (self.full_at.max(now) + spacing).min(now + time_to_fill() + spacing);
    }

    /// Returns the time from which on there is a wake-up to spend.
    pub(crate) fn next_wakeup(&self) -> Time {
        self.full_at - time_to_fill()
    }
}

/// Returns how long it takes to save up a full budget.
fn time_to_fill() -> Span {
    Span::from_nanos(Span::from(WAKEUP_SPACING).as_nanos() * MAX_SAVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_a_quiet_driver_wakes_up_at_any_time() {
        let mut budget = WakeupBudget::default();
        let mut now = Time::from_nanos(1 << 40);
        for _ in 0..1000 {
            budget.spend(now);
            assert!(budget.next_wakeup() < now);
            now = now + Span::from(WAKEUP_SPACING) + Span::from_nanos(1);
        }
    }

    #[test]
    fn p4_however_often_it_is_woken_the_next_time_is_no_more_than_a_space_away() {
        let mut budget = WakeupBudget::default();
        let now = Time::from_nanos(1 << 40);
        (0..if cfg!(miri) { 1000 } else { 100_000 }).for_each(|_| budget.spend(now));
        assert_eq!(budget.next_wakeup(), now + Span::from(WAKEUP_SPACING));
    }

    #[test]
    fn b2_a_busy_driver_is_spaced_after_its_savings_are_spent() {
        let mut budget = WakeupBudget::default();
        let (start, mut now) = (Time::from_nanos(1 << 40), Time::from_nanos(1 << 40));
        for _ in 0..1000 {
            budget.spend(now);
            now = now.max(budget.next_wakeup());
        }
        let spent = (now - start).as_nanos();
        assert_eq!(spent, (1000 - MAX_SAVED) * Span::from(WAKEUP_SPACING).as_nanos());
    }
}
