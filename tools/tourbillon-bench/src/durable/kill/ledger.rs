//! The account of every timer: what was acknowledged, what may have been done, and what was delivered.

use std::collections::{HashMap, HashSet};

use super::event::Event;

/// The account of all timers.
#[derive(Default)]
pub(super) struct Ledger {
    timers: HashMap<u64, TimerAccount>,
    /// Operations that were acknowledged.
    pub(super) acknowledged: u64,
    pub(super) deliveries: u64,
    /// Deliveries of timers that were delivered before, each with a higher attempt.
    pub(super) repeated: u64,
    pub(super) faults: Faults,
}

/// What must never happen. Each has some examples.
#[derive(Default)]
pub(super) struct Faults {
    /// Acknowledged timers that are neither pending nor were delivered.
    pub(super) lost: Vec<u64>,
    /// Timers that were delivered, or are pending, after a cancel had counted them.
    pub(super) cancelled_delivered: Vec<u64>,
    /// Deliveries whose attempt does not say that they are repetitions.
    pub(super) unexplained: Vec<u64>,
    /// Deliveries before the due time.
    pub(super) early: Vec<u64>,
    /// Pending timers with a due time that nobody asked for, or that nobody created.
    pub(super) wrong: Vec<u64>,
}

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        let all = [&self.lost, &self.cancelled_delivered, &self.unexplained, &self.early, &self.wrong];
        all.into_iter().all(Vec::is_empty)
    }
}

#[derive(Default)]
struct TimerAccount {
    is_created: bool,
    /// The acknowledged due time.
    due: Option<u64>,
    /// The due time of the request that is under way.
    asked: Option<u64>,
    /// Due times of requests that were never answered, because their process was killed. Any of them may have been done.
    unanswered: Vec<u64>,
    cancel: CancelAccount,
    /// Whether a cancel was never answered: the timer may be gone.
    may_be_cancelled: bool,
    attempts: Vec<u64>,
}

impl TimerAccount {
    fn ask(&mut self, due: u64) {
        self.unanswered.extend(self.asked.replace(due));
    }

    /// Takes the answer to a create or a reschedule: the timer exists.
    fn answered(&mut self) {
        self.is_created = true;
        self.due = self.asked.take();
    }

    fn can_be_due(&self, due: u64) -> bool {
        [self.due, self.asked].contains(&Some(due)) || self.unanswered.contains(&due)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum CancelAccount {
    #[default]
    None,
    /// A cancel was sent, and its answer is not known.
    Unknown,
    /// A cancel has counted the timer.
    Counted,
    /// A cancel has found that it is being delivered.
    InFlight,
    /// A cancel has found nothing.
    FoundNothing,
}

impl Ledger {
    /// Takes the account of one event. Events of one process come in their order.
    pub(super) fn note(&mut self, event: Event) {
        match event {
            Event::Open { .. } => {}
            Event::Creating { key, due } | Event::Moving { key, due } => self.timers.entry(key).or_default().ask(due),
            Event::Created { key } | Event::Moved { key } => {
                self.timers.entry(key).or_default().answered();
                self.acknowledged += 1;
            }
            Event::Cancelling { key } => {
                let timer = self.timers.entry(key).or_default();
                timer.may_be_cancelled |= timer.cancel == CancelAccount::Unknown;
                timer.cancel = CancelAccount::Unknown;
            }
            Event::Cancelled { key, cancelled, in_flight } => self.cancelled(key, cancelled, in_flight),
            Event::NotMoved { key } => {
                self.timers.entry(key).or_default().asked = None;
                self.acknowledged += 1;
            }
            Event::Fired { key, attempt, .. } => self.fired(key, attempt),
            Event::Early { key } => self.faults.early.push(key),
        }
    }

    fn cancelled(&mut self, key: u64, cancelled: u64, in_flight: u64) {
        self.acknowledged += 1;
        let timer = self.timers.entry(key).or_default();
        timer.cancel = match (cancelled, in_flight) {
            (0, 0) => CancelAccount::FoundNothing,
            (0, _) => CancelAccount::InFlight,
            _ => CancelAccount::Counted,
        };
        if timer.cancel == CancelAccount::Counted && !timer.attempts.is_empty() {
            self.faults.cancelled_delivered.push(key);
        }
    }

    fn fired(&mut self, key: u64, attempt: u64) {
        self.deliveries += 1;
        let timer = self.timers.entry(key).or_default();
        if timer.cancel == CancelAccount::Counted {
            self.faults.cancelled_delivered.push(key);
        }
        // Two processes report at the same time, so an earlier attempt may be read later: only the same one twice is wrong.
        if timer.attempts.contains(&attempt) {
            self.faults.unexplained.push(key);
        }
        self.repeated += u64::from(!timer.attempts.is_empty());
        timer.attempts.push(attempt);
    }

    /// Compares the account with the timers that the store has in the end, each with its due time, after everything that was due has been
    /// delivered.
    pub(super) fn compare(&mut self, pending: &HashMap<u64, u64>) {
        for (key, timer) in &self.timers {
            let is_delivered = !timer.attempts.is_empty();
            match (timer.cancel, pending.get(key)) {
                (CancelAccount::Counted, Some(_)) => self.faults.cancelled_delivered.push(*key),
                (CancelAccount::Counted | CancelAccount::Unknown, None) => {}
                (_, Some(due)) if is_delivered || !timer.can_be_due(*due) => self.faults.wrong.push(*key),
                (_, Some(_)) => {}
                (_, None) if timer.is_created && !is_delivered && !timer.may_be_cancelled => {
                    self.faults.lost.push(*key);
                }
                (_, None) => {}
            }
        }
        let known: HashSet<&u64> = self.timers.keys().collect();
        self.faults.wrong.extend(pending.keys().filter(|key| !known.contains(key)));
    }

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(events: &[Event], pending: &[(u64, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        events.iter().for_each(|event| ledger.note(*event));
        ledger.compare(&pending.iter().copied().collect());
        ledger
    }

    const CREATED: [Event; 2] = [Event::Creating { key: 1, due: 10 }, Event::Created { key: 1 }];
    const COUNTED: Event = Event::Cancelled { key: 1, cancelled: 1, in_flight: 0 };
    const FIRED: Event = Event::Fired { key: 1, attempt: 1, late: 0 };

    #[test]
    fn q1_an_acknowledged_timer_that_is_nowhere_is_lost() {
        assert_eq!(ledger(&CREATED, &[]).faults.lost, [1]);
        assert!(ledger(&CREATED, &[(1, 10)]).faults.is_empty());
        assert!(ledger(&[CREATED[0], CREATED[1], FIRED], &[]).faults.is_empty());
        assert!(ledger(&CREATED[..1], &[]).faults.is_empty(), "it was not acknowledged");
        let moved = [CREATED[0], CREATED[1], Event::Moving { key: 1, due: 20 }, Event::Moved { key: 1 }];
        assert_eq!(ledger(&moved, &[(1, 10)]).faults.wrong, [1], "an acknowledged reschedule is lost");
        assert!(ledger(&moved[..3], &[(1, 20)]).faults.is_empty(), "it may have been done");
        let nothing = Event::Cancelled { key: 1, cancelled: 0, in_flight: 0 };
        assert_eq!(ledger(&[CREATED[0], CREATED[1], nothing], &[]).faults.lost, [1]);
    }

    #[test]
    fn q2_a_timer_that_a_cancel_has_counted_must_not_be_delivered_or_come_back() {
        assert!(ledger(&[CREATED[0], CREATED[1], COUNTED], &[]).faults.is_empty());
        assert_eq!(ledger(&[CREATED[0], CREATED[1], COUNTED, FIRED], &[]).faults.cancelled_delivered, [1]);
        assert_eq!(ledger(&[CREATED[0], CREATED[1], FIRED, COUNTED], &[]).faults.cancelled_delivered, [1]);
        assert_eq!(ledger(&[CREATED[0], CREATED[1], COUNTED], &[(1, 10)]).faults.cancelled_delivered, [1]);
        let sent = Event::Cancelling { key: 1 };
        assert!(ledger(&[CREATED[0], CREATED[1], sent], &[]).faults.is_empty(), "it may have been done");
    }

    #[test]
    fn q3_a_second_delivery_must_have_another_attempt() {
        let again = Event::Fired { key: 1, attempt: 2, late: 0 };
        let repeated = ledger(&[CREATED[0], CREATED[1], FIRED, again], &[]);
        assert!(repeated.faults.is_empty() && repeated.repeated == 1);
        assert_eq!(ledger(&[CREATED[0], CREATED[1], FIRED, FIRED], &[]).faults.unexplained, [1]);
    }
}
