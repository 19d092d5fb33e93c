//! A client of a process that will be killed: it creates, cancels and reschedules timers, and reports each step.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::FirstDue;
use tourbillon_durable::store::{ListFilter, RowState, Target, TimerRow};
use tourbillon_durable::{CancelCounts, MissedFires, NewTimer, StoreTime, TimerId, Timers, TimersError};
use tourbillon_tools::Random;

use super::event::Event;
use super::worker::report;
use crate::durable::load::KIND;
use crate::durable::place::fail;

/// Timers of earlier processes that a process takes over.
const ADOPTED: usize = 200;

/// What the name of a set begins with; its number follows, which is that of its first timer.
const SET: &str = "set ";

/// Timers of earlier processes, which this one may cancel and move.
#[derive(Default)]
pub(super) struct Adopted {
    once: BTreeSet<u64>,
    /// Each once, though a timer has two rows while an occurrence is delivered.
    repeating: BTreeSet<u64>,
    sets: BTreeSet<u64>,
}

impl Adopted {
    /// Finds some timers whose number says that they belong to the processes of a slot.
    pub(super) async fn find(timers: &Timers, slot: u64, slots: u64) -> Adopted {
        let page = timers.list(ListFilter::default(), None, ADOPTED * slots as usize).await;
        let mut adopted = Adopted::default();
        for row in page.map(|page| page.rows).unwrap_or_default() {
            let Some(key) = row.spec.key.as_ref().and_then(|key| key.parse::<u64>().ok()) else { continue };
            let set = row.spec.name.as_ref().and_then(|name| name.strip_prefix(SET)?.parse::<u64>().ok());
            let _is_new = match set {
                _ if key % slots != slot => false,
                Some(set) => adopted.sets.insert(set),
                None if row.spec.times.is_some() => adopted.repeating.insert(key),
                None => adopted.once.insert(key),
            };
        }
        adopted
    }
}

/// A client.
pub(super) struct Client {
    timers: Timers,
    random: Random,
    once: Vec<u64>,
    repeating: Vec<u64>,
    sets: Vec<u64>,
    /// The number of the next timer, and the distance to the one after it.
    next: u64,
    step: u64,
    adopted: Arc<Mutex<Adopted>>,
}

impl Client {
    pub(super) fn new(
        timers: Timers,
        random: Random,
        (next, step): (u64, u64),
        adopted: Arc<Mutex<Adopted>>,
    ) -> Client {
        Client { timers, random, once: Vec::new(), repeating: Vec::new(), sets: Vec::new(), next, step, adopted }
    }

    /// Works until the process is killed.
    pub(super) async fn work(mut self) {
        loop {
            let choice = self.random.below(20);
            let done = match choice {
                0..5 => self.create().await,
                5..7 => self.create_many().await,
                7..9 => self.create_set().await,
                9..11 => self.create_repeating().await,
                11..13 => self.cancel().await,
                13..14 => self.cancel_repeating().await,
                14..15 => self.cancel_many().await,
                15..17 => self.cancel_set().await,
                _ => self.reschedule().await,
            };
            if let Err(error) = done {
                // Not an error of the store that a kill explains.
                fail(&error.to_string());
            }
        }
    }

    /// Returns the number of a timer that is due once, and the timer.
    fn new_timer(&mut self) -> (u64, NewTimer, SystemTime) {
        let key = self.next;
        self.next += self.step;
        let at = self.due();
        let size = self.random.index(600);
        (key, NewTimer::at(KIND, at).key(key.to_string()).name(format!("{}", key % 7)).payload(vec![7; size]), at)
    }

    async fn create(&mut self) -> Result<(), TimersError> {
        let (key, timer, at) = self.new_timer();
        report(Event::Creating { key, due: micros(at), times: 1, set: 0 });
        self.timers.create(timer).await?;
        report(Event::Created { key });
        self.once.push(key);
        Ok(())
    }

    async fn create_many(&mut self) -> Result<(), TimersError> {
        let count = 2 + self.random.index(20);
        let new: Vec<_> = (0..count).map(|_| self.new_timer()).collect();
        let keys = self.create_all(new, 0).await?;
        self.once.extend(keys);
        Ok(())
    }

    /// Creates timers that are cancelled by their name only.
    async fn create_set(&mut self) -> Result<(), TimersError> {
        let (count, set) = (2 + self.random.index(20), self.next);
        let name = format!("{SET}{set}");
        let mut new: Vec<_> = (0..count).map(|_| self.new_timer()).collect();
        new.iter_mut().for_each(|(_, timer, _)| *timer = timer.clone().name(name.clone()));
        self.create_all(new, set).await?;
        self.sets.push(set);
        Ok(())
    }

    /// Creates timers in one request, and returns their numbers.
    async fn create_all(&self, new: Vec<(u64, NewTimer, SystemTime)>, set: u64) -> Result<Vec<u64>, TimersError> {
        for (key, _, at) in &new {
            report(Event::Creating { key: *key, due: micros(*at), times: 1, set });
        }
        let (keys, timers): (Vec<u64>, Vec<NewTimer>) = new.into_iter().map(|(key, timer, _)| (key, timer)).unzip();
        for (key, created) in keys.iter().zip(self.timers.create_all(timers).await?) {
            created?;
            report(Event::Created { key: *key });
        }
        Ok(keys)
    }

    /// Creates a repeating timer, of which all occurrences are due in the next seconds.
    async fn create_repeating(&mut self) -> Result<(), TimersError> {
        let (key, at) = (self.next, self.soon());
        self.next += self.step;
        let times = 2 + self.random.below(7);
        let interval = Duration::from_millis(10 + self.random.below(250));
        let missed = if self.random.one_in(2) { MissedFires::Once } else { MissedFires::All { at_most: 1_000 } };
        report(Event::Creating { key, due: micros(at), times, set: 0 });
        let timer = NewTimer::every(KIND, interval).first_at(at).times(times).key(key.to_string()).missed(missed);
        self.timers.create(timer).await?;
        report(Event::Created { key });
        self.repeating.push(key);
        Ok(())
    }

    async fn cancel(&mut self) -> Result<(), TimersError> {
        match self.take_once() {
            Some(key) => self.cancel_key(key).await,
            None => Ok(()),
        }
    }

    async fn cancel_repeating(&mut self) -> Result<(), TimersError> {
        let key =
            take(&mut self.random, &mut self.repeating).or_else(|| self.adopted(|from| from.repeating.pop_last()));
        let Some(key) = key else { return Ok(()) };
        // Before and after the cancel, so that the account knows what was in flight meanwhile, perhaps since the life of a process before.
        let timer = self.timers.get_key("default", key.to_string()).await?.map(|row| row.id.timer);
        self.report_claimed(key, timer).await?;
        self.cancel_key(key).await?;
        self.report_claimed(key, timer).await
    }

    /// Reports how many occurrences of a repeating timer have been claimed, as far as its rows say it.
    async fn report_claimed(&self, key: u64, timer: Option<TimerId>) -> Result<(), TimersError> {
        let Some(timer) = timer else { return Ok(()) };
        let claimed = |row: &TimerRow| match row.state {
            RowState::Armed => row.id.occurrence - 1,
            RowState::Claimed | RowState::Dead => row.id.occurrence + row.stands_for,
        };
        if let Some(through) = self.timers.get(timer).await?.iter().map(claimed).max() {
            report(Event::Claimed { key, through });
        }
        Ok(())
    }

    async fn cancel_key(&self, key: u64) -> Result<(), TimersError> {
        report(Event::Cancelling { key });
        report_cancelled(key, self.timers.cancel(key.to_string()).await?);
        Ok(())
    }

    async fn cancel_many(&mut self) -> Result<(), TimersError> {
        let count = 1 + self.random.index(8);
        let keys: Vec<u64> = (0..count).filter_map(|_| self.take_once()).collect();
        keys.iter().for_each(|key| report(Event::Cancelling { key: *key }));
        let targets = keys.iter().map(|key| Target::key(key.to_string()));
        for (key, counts) in keys.iter().zip(self.timers.cancel_all(targets).await?) {
            report_cancelled(*key, counts?);
        }
        Ok(())
    }

    async fn cancel_set(&mut self) -> Result<(), TimersError> {
        let set = take(&mut self.random, &mut self.sets).or_else(|| self.adopted(|from| from.sets.pop_last()));
        let Some(set) = set else { return Ok(()) };
        report(Event::CancellingSet { set });
        let counts = self.timers.cancel_name(format!("{SET}{set}")).await?;
        report(Event::CancelledSet { set, cancelled: counts.cancelled, at: micros(SystemTime::now()) });
        Ok(())
    }

    async fn reschedule(&mut self) -> Result<(), TimersError> {
        let Some(key) = self.take_once() else { return Ok(()) };
        let at = self.due();
        report(Event::Moving { key, due: micros(at) });
        let when = FirstDue::At(StoreTime::from_micros(micros(at)));
        match self.timers.reschedule(Target::key(key.to_string()), when, None).await {
            Ok(_) => report(Event::Moved { key }),
            Err(TimersError::InFlight | TimersError::NotFound) => {
                report(Event::NotMoved { key });
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.once.push(key);
        Ok(())
    }

    /// Takes a timer of its own that is due once, or one of an earlier process.
    fn take_once(&mut self) -> Option<u64> {
        let adopted = if self.once.is_empty() || self.random.one_in(8) {
            self.adopted(|from| from.once.pop_last())
        } else {
            None
        };
        adopted.or_else(|| take(&mut self.random, &mut self.once))
    }

    fn adopted(&self, pop: impl FnOnce(&mut Adopted) -> Option<u64>) -> Option<u64> {
        pop(&mut self.adopted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a due time: soon for most timers, in an hour for the others.
    fn due(&mut self) -> SystemTime {
        if self.random.below(10) < 6 { self.soon() } else { after(Duration::from_secs(3_600)) }
    }

    fn soon(&mut self) -> SystemTime {
        after(Duration::from_millis(20 + self.random.below(500)))
    }
}

fn report_cancelled(key: u64, counts: CancelCounts) {
    let CancelCounts { cancelled, in_flight, .. } = counts;
    report(Event::Cancelled { key, cancelled, in_flight, at: micros(SystemTime::now()) });
}

fn take(random: &mut Random, from: &mut Vec<u64>) -> Option<u64> {
    let count = from.len();
    (count > 0).then(|| from.swap_remove(random.index(count)))
}

/// Returns a time in whole microseconds, as stores have them.
fn after(delay: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros(SystemTime::now())) + delay
}

/// Returns the microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
