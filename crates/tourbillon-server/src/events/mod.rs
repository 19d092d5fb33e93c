//! What happens to timers, as it happens: for clients that listen, and for the charts of the dashboard.
//!
//! Every client has the same bounded buffer behind it. A client that is too slow loses the oldest events and is told how many; nobody waits
//! for it.

mod relay;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tourbillon_durable::TimerId;

pub(crate) use self::relay::relay;
use crate::durations::format_time;

/// How many events are kept for clients that are slow or come back.
const KEPT: usize = 2_048;

/// The most clients that listen at the same time.
const MOST_CLIENTS: usize = 256;

/// How many seconds the charts show.
const SECONDS: usize = 120;

/// The most namespaces with figures of their own; those after them are counted together.
const MOST_NAMESPACES: usize = 1_000;

/// Under which name events are counted whose namespace is not known, or not counted by itself.
const UNKNOWN: &str = "*";

/// The upper bounds of the buckets of lateness. One more bucket has what is later.
pub(crate) const LATENESS_BOUNDS: [Duration; 11] = [
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// Something that happened to a timer. It becomes text only when a client gets it: most events are sent to nobody.
#[derive(Debug)]
pub(crate) struct FeedEvent {
    /// Set by [`EventFeed::publish`].
    pub(crate) number: u64,
    /// What happened: `fired`, for example.
    pub(crate) what: &'static str,
    pub(crate) at: SystemTime,
    /// The namespace, if it is known.
    pub(crate) namespace: Option<String>,
    /// The timer, if the event is about one.
    pub(crate) timer: Option<TimerId>,
    pub(crate) key: Option<String>,
    pub(crate) name: Option<String>,
    /// What else there is to say.
    pub(crate) fields: Vec<(&'static str, FeedValue)>,
}

/// A value of an event.
#[derive(Debug)]
pub(crate) enum FeedValue {
    Time(SystemTime),
    Count(u64),
    Millis(Duration),
    Text(String),
}

/// What is counted of an event, besides that it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// A delivery began for the first time, so late.
    Begun(Duration),
    /// A timer fired.
    Fired,
    /// A delivery failed.
    Failed,
    /// Nothing.
    Not,
}

/// The events of this process.
pub(crate) struct EventFeed {
    /// Tells events of this process from those of an earlier one with the same numbers.
    boot: u64,
    sender: broadcast::Sender<Arc<FeedEvent>>,
    state: Mutex<FeedState>,
    places: Arc<Semaphore>,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct FeedState {
    last: u64,
    recent: VecDeque<Arc<FeedEvent>>,
    activity: BTreeMap<String, NamespaceActivity>,
}

#[derive(Default)]
struct NamespaceActivity {
    /// Counts of seconds since 1970, those without any left out.
    seconds: VecDeque<(u64, SecondCounts)>,
    lateness: [u64; LATENESS_BOUNDS.len() + 1],
}

/// What happened in one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SecondCounts {
    pub(crate) fired: u64,
    pub(crate) failed: u64,
}

/// What has happened of late.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    /// The last seconds, the present one last.
    pub(crate) seconds: Vec<SecondCounts>,
    /// How many deliveries began how late since the server was started.
    pub(crate) lateness: Vec<u64>,
}

/// A client that listens.
pub(crate) struct Listener {
    /// Events that happened before, and after the last one that the client has seen.
    pub(crate) missed: VecDeque<Arc<FeedEvent>>,
    /// Whether the client has seen an event that is not known any more: it has to look at everything again.
    pub(crate) is_reset: bool,
    pub(crate) events: broadcast::Receiver<Arc<FeedEvent>>,
    pub(crate) closed: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

impl EventFeed {
    pub(crate) fn new() -> EventFeed {
        let boot = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        EventFeed {
            boot: boot.as_millis() as u64,
            sender: broadcast::Sender::new(KEPT),
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(MOST_CLIENTS)),
            closed: watch::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event, numbers it, and sends it to all clients.
    pub(crate) fn publish(&self, counted: Counted, mut event: FeedEvent) {
        let mut state = self.lock();
        if counted != Counted::Not {
            state.count(counted, event.namespace.as_deref().unwrap_or(UNKNOWN), now_seconds());
        }
        state.last += 1;
        event.number = state.last;
        let event = Arc::new(event);
        if state.recent.len() == KEPT {
            state.recent.pop_front();
        }
        state.recent.push_back(Arc::clone(&event));
        // Sent under the lock, so that a client that begins to listen neither misses an event nor gets one twice. There may be no client.
        let _nobody_listens = self.sender.send(event);
    }

    /// Begins to listen after the event with this id; `None` if there are too many clients.
    pub(crate) fn listen(&self, last_seen: Option<&str>) -> Option<Listener> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let state = self.lock();
        let seen = last_seen.map(|id| self.number_of(id).filter(|number| state.has_all_after(*number)));
        let (is_reset, after) = match seen {
            None => (false, None),
            Some(None) => (true, None),
            Some(Some(number)) => (false, Some(number)),
        };
        let missed = after.map(|after| state.recent.iter().filter(|event| event.number > after).cloned().collect());
        Some(Listener {
            missed: missed.unwrap_or_default(),
            is_reset,
            events: self.sender.subscribe(),
            closed: self.closed.subscribe(),
            _place: place,
        })
    }

    /// Returns the id of an event for clients.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        (boot.parse() == Ok(self.boot)).then(|| number.parse().ok()).flatten()
    }

    /// Ends all streams of events, and those that begin later.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns what has happened of late in a namespace, or in all.
    pub(crate) fn activity(&self, namespace: Option<&str>) -> Activity {
        self.lock().activity(namespace, now_seconds())
    }
}

impl FeedEvent {
    /// Returns the event as JSON, on one line.
    pub(crate) fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("type".to_owned(), self.what.into());
        object.insert("at".to_owned(), format_time(self.at).into());
        let id = self.timer.map(|id| id.to_string());
        for (field, text) in [("namespace", &self.namespace), ("id", &id), ("key", &self.key), ("name", &self.name)] {
            if let Some(text) = text {
                object.insert(field.to_owned(), text.as_str().into());
            }
        }
        for (field, value) in &self.fields {
            object.insert((*field).to_owned(), value.into());
        }
        Value::Object(object).to_string()
    }
}

impl From<&FeedValue> for Value {
    fn from(value: &FeedValue) -> Value {
        match value {
            FeedValue::Time(time) => format_time(*time).into(),
            FeedValue::Count(count) => (*count).into(),
            // With the digits that matter.
            FeedValue::Millis(span) => ((span.as_secs_f64() * 1e6).round() / 1e3).into(),
            FeedValue::Text(text) => text.as_str().into(),
        }
    }
}

impl FeedState {
    fn has_all_after(&self, number: u64) -> bool {
        let oldest = self.recent.front().map_or(self.last + 1, |event| event.number);
        number <= self.last && oldest <= number + 1
    }

    fn count(&mut self, counted: Counted, namespace: &str, second: u64) {
        let is_known = self.activity.contains_key(namespace) || self.activity.len() < MOST_NAMESPACES;
        let namespace = if is_known { namespace } else { UNKNOWN };
        if !self.activity.contains_key(namespace) {
            self.activity.insert(namespace.to_owned(), NamespaceActivity::default());
        }
        let Some(activity) = self.activity.get_mut(namespace) else { return };
        let in_second = |activity: &mut NamespaceActivity, count: fn(&mut SecondCounts)| {
            // The clock may have been set back: then the last second counts on.
            if activity.seconds.back().is_none_or(|(last, _)| *last < second) {
                activity.seconds.push_back((second, SecondCounts::default()));
            }
            if activity.seconds.len() > SECONDS {
                activity.seconds.pop_front();
            }
            if let Some((_, counts)) = activity.seconds.back_mut() {
                count(counts);
            }
        };
        match counted {
            Counted::Begun(late) => {
                let bucket = LATENESS_BOUNDS.iter().position(|bound| late <= *bound);
                activity.lateness[bucket.unwrap_or(LATENESS_BOUNDS.len())] += 1;
            }
            Counted::Fired => in_second(activity, |counts| counts.fired += 1),
            Counted::Failed => in_second(activity, |counts| counts.failed += 1),
            Counted::Not => {}
        }
    }

    fn activity(&self, namespace: Option<&str>, now: u64) -> Activity {
        let mut shown =
            Activity { seconds: vec![SecondCounts::default(); SECONDS], lateness: vec![0; LATENESS_BOUNDS.len() + 1] };
        let first = (now + 1).saturating_sub(SECONDS as u64);
        let wanted = self.activity.iter().filter(|(name, _)| namespace.is_none_or(|wanted| wanted == *name));
        for (_, activity) in wanted {
            for (second, counts) in activity.seconds.iter().filter(|(second, _)| (first..=now).contains(second)) {
                let sum = &mut shown.seconds[(second - first) as usize];
                sum.fired += counts.fired;
                sum.failed += counts.failed;
            }
            shown.lateness.iter_mut().zip(activity.lateness).for_each(|(sum, bucket)| *sum += bucket);
        }
        shown
    }
}

impl SecondCounts {
    pub(crate) fn total(&self) -> u64 {
        self.fired + self.failed
    }
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fire(feed: &EventFeed) {
        let event = FeedEvent {
            number: 0,
            what: "fired",
            at: SystemTime::UNIX_EPOCH,
            namespace: Some("default".to_owned()),
            timer: None,
            key: Some("a \"key\"".to_owned()),
            name: None,
            fields: vec![("late_ms", FeedValue::Millis(Duration::from_nanos(1_234_567)))],
        };
        feed.publish(Counted::Fired, event);
    }

    fn numbers(listener: &Listener) -> Vec<u64> {
        listener.missed.iter().map(|event| event.number).collect()
    }

    #[test]
    fn o7_a_client_that_comes_back_gets_what_it_missed_or_is_told_to_look_again() {
        let feed = EventFeed::new();
        (0..3).for_each(|_| fire(&feed));
        let listener = feed.listen(Some(&feed.id(1))).unwrap();
        assert_eq!((numbers(&listener), listener.is_reset), (vec![2, 3], false));
        let listener = feed.listen(Some(&feed.id(3))).unwrap();
        assert_eq!((numbers(&listener), listener.is_reset), (vec![], false));
        for unknown in ["7-1", "x", &feed.id(4)] {
            assert!(feed.listen(Some(unknown)).unwrap().is_reset, "{unknown}");
        }
        let listener = feed.listen(None).unwrap();
        assert_eq!((numbers(&listener), listener.is_reset), (vec![], false));
        (0..KEPT).for_each(|_| fire(&feed));
        assert!(feed.listen(Some(&feed.id(2))).unwrap().is_reset, "the third event is forgotten");
        assert!(!feed.listen(Some(&feed.id(3))).unwrap().is_reset);
    }

    #[test]
    fn o7_an_event_is_one_line_of_json() {
        let feed = EventFeed::new();
        fire(&feed);
        let event = feed.lock().recent[0].to_json();
        let expected =
            r#"{"at":"1970-01-01T00:00:00Z","key":"a \"key\"","late_ms":1.235,"namespace":"default","type":"fired"}"#;
        assert_eq!(event, expected);
    }

    #[test]
    fn o7_a_slow_client_loses_events_and_delays_nobody() {
        let feed = EventFeed::new();
        let mut slow = feed.listen(None).unwrap();
        (0..KEPT + 5).for_each(|_| fire(&feed));
        assert_eq!(slow.events.try_recv().unwrap_err(), broadcast::error::TryRecvError::Lagged(5));
        assert_eq!(slow.events.try_recv().unwrap().number, 6);
    }

    #[test]
    fn o2_there_are_only_so_many_clients() {
        let feed = EventFeed::new();
        let mut clients: Vec<_> = (0..MOST_CLIENTS).map(|_| feed.listen(None).unwrap()).collect();
        assert!(feed.listen(None).is_none());
        clients.pop();
        assert!(feed.listen(None).is_some());
    }

    #[test]
    fn o6_seconds_and_lateness_are_counted_by_namespace() {
        let mut state = FeedState::default();
        state.count(Counted::Fired, "a", 1_000);
        state.count(Counted::Fired, "a", 1_002);
        state.count(Counted::Failed, "b", 1_002);
        state.count(Counted::Begun(Duration::from_millis(2)), "a", 1_002);
        state.count(Counted::Begun(Duration::from_secs(60)), "b", 1_002);
        let all = state.activity(None, 1_002);
        assert_eq!(all.seconds[SECONDS - 1], SecondCounts { fired: 1, failed: 1 });
        assert_eq!(all.seconds[SECONDS - 3].fired, 1);
        assert_eq!((all.lateness[3], all.lateness[11]), (1, 1));
        let only = state.activity(Some("b"), 1_003);
        assert_eq!((only.seconds[SECONDS - 2].failed, only.lateness[3]), (1, 0));
        // A minute that has passed is not shown, and the clock may go back.
        state.count(Counted::Fired, "a", 900);
        assert_eq!(state.activity(None, 5_000).seconds.iter().map(SecondCounts::total).sum::<u64>(), 0);
    }
}
