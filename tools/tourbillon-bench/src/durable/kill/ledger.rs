//! The account of every timer: what was acknowledged, what may have been done, and what was delivered.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::event::Event;
use super::sets::Sets;

/// The account of all timers.
#[derive(Default)]
pub(super) struct Ledger {
    timers: HashMap<u64, TimerAccount>,
    sets: Sets,
    /// Operations that were acknowledged.
    pub(super) acknowledged: u64,
    pub(super) deliveries: u64,
    /// Deliveries of occurrences that were delivered before, each with a higher attempt.
    pub(super) repeated: u64,
    pub(super) faults: Faults,
}

/// What must never happen. Each has some examples.
#[derive(Default)]
pub(super) struct Faults {
    /// Acknowledged timers that are not pending, and of which an occurrence was not delivered.
    pub(super) lost: Vec<u64>,
    /// Timers that were delivered, or are pending, after a cancel had counted them.
    pub(super) cancelled_delivered: Vec<u64>,
    /// Deliveries whose attempt does not say that they are repetitions, and occurrences that a timer does not have.
    pub(super) unexplained: Vec<u64>,
    /// Deliveries before the due time.
    pub(super) early: Vec<u64>,
    /// Timers that are pending with a due time, or were delivered last with one, that nobody asked for, and pending ones that nobody created.
    pub(super) wrong: Vec<u64>,
}

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        let all = [&self.lost, &self.cancelled_delivered, &self.unexplained, &self.early, &self.wrong];
        all.into_iter().all(Vec::is_empty)
    }
}

#[derive(Default, Debug)]
pub(super) struct TimerAccount {
    pub(super) is_created: bool,
    /// How many occurrences it has.
    times: u64,
    /// The set that it belongs to, unless that is 0.
    set: u64,
    /// The acknowledged due time.
    due: Option<u64>,
    /// The due time of the request that is under way.
    asked: Option<u64>,
    /// Due times of requests that were never answered, because their process was killed. Any of them may have been done.
    unanswered: Vec<u64>,
    cancel: CancelAccount,
    /// How many occurrences the cancel has counted.
    counted: u64,
    /// Up to which number the occurrences of a repeating timer have been claimed at least.
    claimed_through: u64,
    /// When the cancel that has counted it was answered.
    cancelled_at: Option<u64>,
    /// Whether a cancel was never answered: the timer may be gone.
    may_be_cancelled: bool,
    /// The occurrences that were delivered, by their numbers.
    fired: BTreeMap<u64, OccurrenceAccount>,
}

/// An occurrence that was delivered.
#[derive(Debug)]
struct OccurrenceAccount {
    /// How many occurrences after it were missed and are delivered with it.
    stands_for: u64,
    /// The due time of the highest attempt: a timer that was given back may have been moved since the attempt before.
    due: u64,
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

    /// Returns whether each delivery of a timer that is due once was due when it was asked to be.
    fn is_fired_as_asked(&self) -> bool {
        self.fired.values().all(|occurrence| self.can_be_due(occurrence.due))
    }

    fn repeats(&self) -> bool {
        self.times > 1
    }

    pub(super) fn is_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// Returns whether an occurrence was delivered that was not due yet at a time.
    pub(super) fn is_fired_after(&self, at: Option<u64>) -> bool {
        at.is_some_and(|at| self.fired.values().any(|occurrence| occurrence.due > at))
    }

    /// Returns how many occurrences were delivered from the first on; `None` if one is missing between others, was delivered under two numbers, or
    /// is beyond the last.
    fn delivered_in_turn(&self) -> Option<u64> {
        let mut last = 0;
        for (number, occurrence) in &self.fired {
            if *number != last + 1 {
                return None;
            }
            last = number + occurrence.stands_for;
        }
        (last <= self.times).then_some(last)
    }

    /// Compares a repeating timer with the store in which nothing is due any more.
    fn compare_repeating(&self, key: u64, is_pending: bool, faults: &mut Faults) {
        let delivered = self.delivered_in_turn();
        let is_counted = self.cancel == CancelAccount::Counted;
        let may_be_cancelled = self.may_be_cancelled || self.cancel == CancelAccount::Unknown;
        match delivered {
            None if self.fired.last_key_value().is_some_and(|(last, of)| last + of.stands_for > self.times) => {
                faults.unexplained.push(key);
            }
            None => faults.lost.push(key),
            // What a cancel has counted is the occurrence that would have been next.
            Some(delivered) if is_counted => {
                if delivered == self.times || is_pending || self.is_fired_after(self.cancelled_at) {
                    faults.cancelled_delivered.push(key);
                }
                // What was in flight when the cancel came. A cancel that has counted more has counted a delivery that was given back.
                if self.counted == 1 && delivered < self.claimed_through {
                    faults.lost.push(key);
                }
            }
            Some(_) if is_pending => faults.wrong.push(key),
            Some(delivered) if delivered < self.times && !may_be_cancelled && (self.is_created || delivered > 0) => {
                faults.lost.push(key);
            }
            Some(_) => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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
            Event::Creating { key, due, times, set } => {
                let timer = self.timers.entry(key).or_default();
                (timer.times, timer.set) = (times, set);
                timer.ask(due);
                if set > 0 {
                    self.sets.of(set).add(key);
                }
            }
            Event::Moving { key, due } => self.timers.entry(key).or_default().ask(due),
            Event::Created { key } | Event::Moved { key } => {
                self.timers.entry(key).or_default().answered();
                self.acknowledged += 1;
            }
            Event::Claimed { key, through } => {
                let timer = self.timers.entry(key).or_default();
                timer.claimed_through = timer.claimed_through.max(through);
            }
            Event::Cancelling { key } => {
                let timer = self.timers.entry(key).or_default();
                timer.may_be_cancelled |= timer.cancel == CancelAccount::Unknown;
                if timer.cancel != CancelAccount::Counted {
                    timer.cancel = CancelAccount::Unknown;
                }
            }
            Event::Cancelled { key, cancelled, in_flight, at } => self.cancelled(key, cancelled, in_flight, at),
            Event::CancellingSet { set } => self.sets.of(set).cancelling(),
            Event::CancelledSet { set, cancelled, at } => {
                self.acknowledged += 1;
                self.sets.of(set).cancelled(cancelled, at);
            }
            Event::NotMoved { key } => {
                self.timers.entry(key).or_default().asked = None;
                self.acknowledged += 1;
            }
            Event::Fired { key, occurrence, stands_for, attempt, due, .. } => {
                self.fired(key, occurrence, attempt, OccurrenceAccount { stands_for, due, attempts: Vec::new() });
            }
            Event::Early { key } => self.faults.early.push(key),
        }
    }

    fn cancelled(&mut self, key: u64, cancelled: u64, in_flight: u64, at: u64) {
        self.acknowledged += 1;
        let timer = self.timers.entry(key).or_default();
        // What is being delivered exists, even if its create was never answered.
        timer.is_created |= in_flight > 0;
        if timer.cancel == CancelAccount::Counted {
            // It was counted before, and what is counted is gone.
            if cancelled > 0 {
                self.faults.cancelled_delivered.push(key);
            }
            return;
        }
        timer.cancel = match (cancelled, in_flight) {
            (0, 0) => CancelAccount::FoundNothing,
            (0, _) => CancelAccount::InFlight,
            _ => CancelAccount::Counted,
        };
        if timer.cancel == CancelAccount::Counted {
            (timer.cancelled_at, timer.counted) = (Some(at), cancelled);
            if timer.is_fired() && !timer.repeats() {
                self.faults.cancelled_delivered.push(key);
            }
        }
    }

    fn fired(&mut self, key: u64, occurrence: u64, attempt: u64, new: OccurrenceAccount) {
        self.deliveries += 1;
        let timer = self.timers.entry(key).or_default();
        if timer.cancel == CancelAccount::Counted && !timer.repeats() {
            self.faults.cancelled_delivered.push(key);
        }
        let (stands_for, due) = (new.stands_for, new.due);
        let fired = timer.fired.entry(occurrence).or_insert(new);
        // Two processes report at the same time, so an earlier attempt may be read later: only the same one twice is wrong.
        if fired.attempts.contains(&attempt) || fired.stands_for != stands_for {
            self.faults.unexplained.push(key);
        }
        if fired.attempts.iter().all(|earlier| *earlier < attempt) {
            fired.due = due;
        }
        self.repeated += u64::from(!fired.attempts.is_empty());
        fired.attempts.push(attempt);
    }

    /// Takes the account of a dead letter that the store has in the end: its occurrence is not lost.
    pub(super) fn dead(&mut self, key: u64, occurrence: u64, stands_for: u64, due: u64) {
        let timer = self.timers.entry(key).or_default();
        if timer.cancel == CancelAccount::Counted && !timer.repeats() {
            self.faults.cancelled_delivered.push(key);
        }
        let dead = OccurrenceAccount { stands_for, due, attempts: Vec::new() };
        timer.fired.entry(occurrence).or_insert(dead);
    }

    /// Compares the account with the timers that the store has in the end, each with its due time, after everything that was due has been
    /// delivered.
    pub(super) fn compare(&mut self, pending: &HashMap<u64, u64>) {
        for (key, timer) in &self.timers {
            if timer.repeats() {
                timer.compare_repeating(*key, pending.contains_key(key), &mut self.faults);
                continue;
            }
            // One that nobody has created is another fault.
            if timer.times > 0 && !timer.is_fired_as_asked() {
                self.faults.wrong.push(*key);
                continue;
            }
            let may_be_cancelled = timer.may_be_cancelled || self.sets.may_be_cancelled(timer.set);
            match (timer.cancel, pending.get(key)) {
                (CancelAccount::Counted, Some(_)) => self.faults.cancelled_delivered.push(*key),
                (CancelAccount::Counted | CancelAccount::Unknown, None) => {}
                (_, Some(due)) if timer.is_fired() || !timer.can_be_due(*due) => self.faults.wrong.push(*key),
                (_, Some(_)) => {}
                (_, None) if timer.is_created && !timer.is_fired() && !may_be_cancelled => {
                    self.faults.lost.push(*key);
                }
                (_, None) => {}
            }
        }
        self.sets.compare(&self.timers, pending, &mut self.faults);
        let known: HashSet<&u64> = self.timers.keys().collect();
        self.faults.wrong.extend(pending.keys().filter(|key| !known.contains(key)));
    }

    /// Returns what is known of a timer or a set, for the message about a fault.
    pub(super) fn explain(&self, key: u64) -> String {
        format!("{key}: {:?}, set: {:?}", self.timers.get(&key), self.sets.get(key))
    }

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Returns how many repeating timers were acknowledged.
    pub(super) fn repeating(&self) -> usize {
        self.timers.values().filter(|timer| timer.repeats() && timer.is_created).count()
    }

    /// Returns how many timers were counted by cancels by name.
    pub(super) fn cancelled_by_name(&self) -> u64 {
        self.sets.counted()
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

    fn after(first: &[Event], then: &[Event], pending: &[(u64, u64)]) -> Faults {
        ledger(&[first, then].concat(), pending).faults
    }

    fn fired(key: u64, occurrence: u64, stands_for: u64, attempt: u64) -> Event {
        Event::Fired { key, occurrence, stands_for, attempt, due: 10 * occurrence, late: 0 }
    }

    fn counted(at: u64) -> Event {
        Event::Cancelled { key: 1, cancelled: 1, in_flight: 0, at }
    }

    const CREATED: [Event; 2] = [Event::Creating { key: 1, due: 10, times: 1, set: 0 }, Event::Created { key: 1 }];
    const COUNTED: Event = Event::Cancelled { key: 1, cancelled: 1, in_flight: 0, at: 5 };
    const FIRED: Event = Event::Fired { key: 1, occurrence: 1, stands_for: 0, attempt: 1, due: 10, late: 0 };
    const REPEATING: [Event; 2] = [Event::Creating { key: 1, due: 10, times: 3, set: 0 }, Event::Created { key: 1 }];

    #[test]
    fn q1_an_acknowledged_timer_that_is_nowhere_is_lost() {
        assert_eq!(ledger(&CREATED, &[]).faults.lost, [1]);
        assert!(ledger(&CREATED, &[(1, 10)]).faults.is_empty());
        assert!(ledger(&[CREATED[0], CREATED[1], FIRED], &[]).faults.is_empty());
        assert!(ledger(&CREATED[..1], &[]).faults.is_empty(), "it was not acknowledged");
        let moved = [CREATED[0], CREATED[1], Event::Moving { key: 1, due: 20 }, Event::Moved { key: 1 }];
        assert_eq!(ledger(&moved, &[(1, 10)]).faults.wrong, [1], "an acknowledged reschedule is lost");
        assert!(ledger(&moved[..3], &[(1, 20)]).faults.is_empty(), "it may have been done");
        let nothing = Event::Cancelled { key: 1, cancelled: 0, in_flight: 0, at: 5 };
        assert_eq!(ledger(&[CREATED[0], CREATED[1], nothing], &[]).faults.lost, [1]);
    }

    #[test]
    fn q1_a_timer_that_was_moved_must_be_delivered_at_its_new_time() {
        let moving = |due| Event::Moving { key: 1, due };
        let moved = [CREATED[0], CREATED[1], moving(20), Event::Moved { key: 1 }];
        let fire = |attempt, due| Event::Fired { key: 1, occurrence: 1, stands_for: 0, attempt, due, late: 0 };
        assert_eq!(after(&moved, &[fire(1, 10)], &[]).wrong, [1], "an acknowledged reschedule is lost");
        assert_eq!(after(&moved[..2], &[fire(1, 10), moving(20), moved[3]], &[]).wrong, [1], "read in another order");
        assert!(after(&moved, &[fire(1, 20)], &[]).is_empty());
        assert!(after(&moved[..3], &[fire(1, 10)], &[]).is_empty(), "it was not acknowledged");
        assert!(after(&moved[..3], &[fire(1, 20)], &[]).is_empty(), "it may have been done");
        assert!(after(&moved[..3], &[Event::NotMoved { key: 1 }, fire(1, 10)], &[]).is_empty(), "it was refused");
        assert!(after(&moved, &[fire(1, 10), fire(2, 20)], &[]).is_empty(), "it was given back, and then moved");
        assert!(after(&moved, &[fire(2, 20), fire(1, 10)], &[]).is_empty(), "read in another order");
        assert_eq!(after(&moved, &[fire(1, 20), fire(2, 10)], &[]).wrong, [1], "the reschedule was undone");
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
        let repeated = ledger(&[CREATED[0], CREATED[1], FIRED, fired(1, 1, 0, 2)], &[]);
        assert!(repeated.faults.is_empty() && repeated.repeated == 1);
        assert_eq!(ledger(&[CREATED[0], CREATED[1], FIRED, FIRED], &[]).faults.unexplained, [1]);
    }

    #[test]
    fn d52_u6_each_occurrence_of_a_repeating_timer_must_be_delivered_and_no_other() {
        let (one, two, three) = (fired(1, 1, 0, 1), fired(1, 2, 0, 1), fired(1, 3, 0, 1));
        assert!(after(&REPEATING, &[one, two, three], &[]).is_empty());
        assert!(after(&REPEATING, &[one, fired(1, 2, 1, 1)], &[]).is_empty(), "one stands for two");
        assert!(after(&REPEATING, &[two, one, three, fired(1, 2, 0, 2)], &[]).is_empty(), "in any order, and repeated");
        assert!(after(&REPEATING[..1], &[], &[]).is_empty(), "it was not acknowledged");
        assert_eq!(after(&REPEATING, &[], &[]).lost, [1]);
        assert_eq!(after(&REPEATING, &[one, two], &[]).lost, [1]);
        assert_eq!(after(&REPEATING, &[one, three], &[]).lost, [1], "the second");
        assert_eq!(after(&REPEATING[..1], &[one], &[]).lost, [1], "it exists, for it was delivered");
        assert_eq!(after(&REPEATING, &[one, two, three, fired(1, 4, 0, 1)], &[]).unexplained, [1]);
        assert_eq!(after(&REPEATING, &[one, two, three, three], &[]).unexplained, [1]);
        assert_eq!(after(&REPEATING, &[one, two], &[(1, 30)]).wrong, [1], "nothing may be due any more");
    }

    #[test]
    fn q2_u6_a_repeating_timer_that_a_cancel_has_counted_ends_before_what_was_not_due_yet() {
        let (one, two) = (fired(1, 1, 0, 1), fired(1, 2, 0, 1));
        assert!(after(&REPEATING, &[one, counted(15)], &[]).is_empty());
        assert!(after(&REPEATING, &[one, counted(25), two], &[]).is_empty(), "it was being delivered");
        assert_eq!(after(&REPEATING, &[one, counted(15), two], &[]).cancelled_delivered, [1]);
        assert_eq!(after(&REPEATING, &[one, two, counted(15)], &[]).cancelled_delivered, [1], "read in another order");
        assert_eq!(after(&REPEATING, &[one, two, fired(1, 3, 0, 1), counted(99)], &[]).cancelled_delivered, [1]);
        assert_eq!(after(&REPEATING, &[one, counted(15)], &[(1, 20)]).cancelled_delivered, [1]);
        assert_eq!(after(&REPEATING, &[two, counted(25)], &[]).lost, [1], "the first");
        assert!(after(&REPEATING, &[one, Event::Cancelling { key: 1 }], &[]).is_empty(), "it may have been done");
        let again = [Event::Cancelling { key: 1 }, Event::Cancelled { key: 1, cancelled: 0, in_flight: 0, at: 20 }];
        assert!(after(&REPEATING, &[&[one, counted(15)][..], &again].concat(), &[]).is_empty(), "it was gone already");
        assert_eq!(after(&REPEATING, &[one, counted(15), again[0], counted(20)], &[]).cancelled_delivered, [1]);
        let in_flight = Event::Cancelled { key: 1, cancelled: 0, in_flight: 1, at: 25 };
        assert_eq!(after(&REPEATING, &[one, two, in_flight], &[]).lost, [1], "no cancel has counted the third");
    }

    #[test]
    fn q1_q3_u6_what_was_in_flight_when_a_cancel_counted_the_next_occurrence_must_be_delivered_or_dead() {
        let (one, two) = (fired(1, 1, 0, 1), fired(1, 2, 0, 1));
        let claimed = |through| Event::Claimed { key: 1, through };
        let cancelled = |cancelled| Event::Cancelled { key: 1, cancelled, in_flight: 1, at: 25 };
        // A process was killed that had claimed the second; then the third was cancelled.
        let history = [one, claimed(2), Event::Cancelling { key: 1 }, cancelled(1)];
        assert_eq!(after(&REPEATING, &history, &[]).lost, [1], "the second is nowhere");
        assert_eq!(
            after(&REPEATING, &[one, cancelled(1), claimed(2)], &[]).lost,
            [1],
            "as a read behind the cancel says"
        );
        assert!(after(&REPEATING, &[&history[..], &[two]].concat(), &[]).is_empty(), "it was delivered again");
        assert!(after(&REPEATING, &[one, two, claimed(2), cancelled(1)], &[]).is_empty(), "it was being delivered");
        assert!(after(&REPEATING, &[one, claimed(2), cancelled(2)], &[]).is_empty(), "it was given back, and counted");
        let mut ledger = ledger(&[&REPEATING[..], &history].concat(), &[]);
        ledger.faults = Faults::default();
        ledger.dead(1, 2, 0, 20);
        ledger.compare(&HashMap::new());
        assert!(ledger.faults.is_empty(), "it is a dead letter");
        let in_flight = Event::Cancelled { key: 1, cancelled: 0, in_flight: 1, at: 25 };
        assert_eq!(after(&CREATED[..1], &[in_flight], &[]).lost, [1], "its create was not answered, but it exists");
    }

    #[test]
    fn u2_q2_what_a_cancel_by_name_has_counted_and_what_was_delivered_are_all_timers_of_the_set() {
        let creating = |key| Event::Creating { key, due: 10, times: 1, set: 1 };
        let set: Vec<Event> = (1..=3).flat_map(|key| [creating(key), Event::Created { key }]).collect();
        let fire = |key| fired(key, 1, 0, 1);
        let sent = Event::CancellingSet { set: 1 };
        let counted = |cancelled, at| Event::CancelledSet { set: 1, cancelled, at };
        assert!(after(&set, &[fire(1), sent, counted(2, 15)], &[]).is_empty());
        assert!(after(&set, &[sent, counted(2, 15), fire(1)], &[]).is_empty(), "it was being delivered");
        assert_eq!(after(&set, &[sent, counted(3, 15), fire(1)], &[]).cancelled_delivered, [1]);
        assert_eq!(after(&set, &[sent, counted(2, 5), fire(2)], &[]).cancelled_delivered, [2], "it was not due yet");
        assert_eq!(after(&set, &[sent, counted(2, 15)], &[(1, 10)]).cancelled_delivered, [1], "it is pending");
        assert_eq!(after(&set, &[sent, counted(1, 15), fire(1)], &[]).lost, [1], "one is nowhere");
        assert!(after(&set, &[fire(1), sent], &[]).is_empty(), "it may have been done");
        assert_eq!(after(&set, &[fire(1), sent], &[(2, 10)]).lost, [1], "it was not done, and the third is nowhere");
        assert_eq!(after(&set, &[fire(1)], &[(2, 10)]).lost, [3]);
        let unanswered = [&set[..], &[creating(4)]].concat();
        assert!(after(&unanswered, &[sent, counted(4, 5)], &[]).is_empty(), "the fourth may have been created");
        assert!(after(&unanswered, &[sent, counted(3, 5)], &[]).is_empty(), "or not");
        assert_eq!(after(&unanswered, &[sent, counted(5, 5)], &[]).cancelled_delivered, [1]);
    }
}
