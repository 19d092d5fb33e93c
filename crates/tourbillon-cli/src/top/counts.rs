//! What a look shows, and the rates between two looks.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

/// The counts of a process at one moment, as `GET /stats` has them.
#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Look {
    pub(crate) version: String,
    pub(crate) program: String,
    pub(crate) pid: u32,
    /// Milliseconds since 1970: when the process began to serve its view.
    pub(crate) started_ms: u64,
    pub(crate) elapsed_ns: u64,
    /// Not known on all systems.
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) cores: u32,
    pub(crate) engines: Vec<EngineLook>,
}

/// The counts of one engine since it was built.
#[derive(Clone, Deserialize, Debug)]
pub(crate) struct EngineLook {
    name: String,
    is_shut_down: bool,
    armed: u64,
    fired: u64,
    cancelled: u64,
    pending: u64,
    waker_panics: u64,
    callback_panics: u64,
    callbacks_waiting: u64,
    /// The highest lateness of each bucket, and its count.
    lateness: Vec<(u64, u64)>,
}

/// What happened between two looks.
#[derive(Debug)]
pub(crate) struct Rates {
    pub(crate) engines: Vec<EngineRates>,
    pub(crate) all: EngineRates,
    /// Percent of one core.
    pub(crate) cpu: Option<f64>,
}

/// What happened to one engine between two looks: timers per second, and the state at the second look.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct EngineRates {
    pub(crate) name: String,
    pub(crate) armed: f64,
    pub(crate) fired: f64,
    pub(crate) cancelled: f64,
    pub(crate) pending: u64,
    pub(crate) panics: u64,
    pub(crate) callbacks_waiting: u64,
    /// Buckets of the timers that fired in between.
    lateness: BTreeMap<u64, u64>,
}

impl Rates {
    /// Returns what happened between two looks; `None` if they are not of the same process, or at the same moment.
    pub(crate) fn between(before: &Look, now: &Look) -> Option<Rates> {
        if before.started_ms != now.started_ms || now.elapsed_ns <= before.elapsed_ns {
            return None;
        }
        let elapsed = (now.elapsed_ns - before.elapsed_ns) as f64;
        let known: HashMap<&str, &EngineLook> =
            before.engines.iter().map(|engine| (engine.name.as_str(), engine)).collect();
        let rates = |engine: &EngineLook| engine.since(known.get(engine.name.as_str()).copied(), elapsed / 1e9);
        let engines: Vec<_> = now.engines.iter().map(rates).collect();
        let mut all = EngineRates { name: "all".to_owned(), ..EngineRates::default() };
        engines.iter().for_each(|engine| all.add(engine));
        let cpu =
            now.cpu_ns.zip(before.cpu_ns).map(|(now, before)| 100.0 * now.saturating_sub(before) as f64 / elapsed);
        Some(Rates { engines, all, cpu })
    }
}

impl EngineLook {
    /// Returns the rates since an earlier look, or since the engine was built.
    fn since(&self, before: Option<&EngineLook>, seconds: f64) -> EngineRates {
        let rate = |count: fn(&EngineLook) -> u64| count(self).saturating_sub(before.map_or(0, count)) as f64 / seconds;
        let counted: HashMap<u64, u64> =
            before.into_iter().flat_map(|before| before.lateness.iter().copied()).collect();
        let lateness = self.lateness.iter().filter_map(|(late, count)| {
            let since = count.saturating_sub(counted.get(late).copied().unwrap_or(0));
            (since > 0).then_some((*late, since))
        });
        EngineRates {
            name: if self.is_shut_down { format!("{} (shut down)", self.name) } else { self.name.clone() },
            armed: rate(|engine| engine.armed),
            fired: rate(|engine| engine.fired),
            cancelled: rate(|engine| engine.cancelled),
            pending: self.pending,
            panics: self.waker_panics + self.callback_panics,
            callbacks_waiting: self.callbacks_waiting,
            lateness: lateness.collect(),
        }
    }
}

impl EngineRates {
    fn add(&mut self, other: &EngineRates) {
        self.armed += other.armed;
        self.fired += other.fired;
        self.cancelled += other.cancelled;
        self.pending += other.pending;
        self.panics += other.panics;
        self.callbacks_waiting += other.callbacks_waiting;
        for (late, count) in &other.lateness {
            *self.lateness.entry(*late).or_insert(0) += count;
        }
    }

    /// Returns the lateness in nanoseconds that this share of the timers did not exceed; `None` if no timer fired.
    pub(crate) fn late(&self, quantile: f64) -> Option<u64> {
        let total: u64 = self.lateness.values().sum();
        let rank = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        self.lateness.iter().find_map(|(late, count)| {
            seen += count;
            (seen >= rank).then_some(*late)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn engine(name: &str, armed: u64, fired: u64, lateness: &[(u64, u64)]) -> EngineLook {
        EngineLook {
            name: name.to_owned(),
            is_shut_down: false,
            armed,
            fired,
            cancelled: armed - fired,
            pending: 5,
            waker_panics: 0,
            callback_panics: 0,
            callbacks_waiting: 0,
            lateness: lateness.to_vec(),
        }
    }

    pub(crate) fn look(elapsed_ns: u64, cpu_ns: u64, engines: Vec<EngineLook>) -> Look {
        let (version, program) = ("0.1.0".to_owned(), "shop".to_owned());
        Look { version, program, pid: 7, started_ms: 1, elapsed_ns, cpu_ns: Some(cpu_ns), cores: 2, engines }
    }

    #[test]
    fn e9_rates_are_differences_per_second_of_the_watched_process() {
        let before = look(1_000_000_000, 0, vec![engine("a", 100, 10, &[(50, 10)])]);
        let second = vec![engine("a", 300, 30, &[(50, 15), (900, 15)]), engine("b", 4, 4, &[(50, 4)])];
        let rates = Rates::between(&before, &look(3_000_000_000, 500_000_000, second)).expect("the same process");
        let [a, b] = &rates.engines[..] else { panic!("two engines") };
        assert_eq!((a.armed, a.fired, a.cancelled, a.pending), (100.0, 10.0, 90.0, 5));
        assert_eq!((a.late(0.5), a.late(0.99), a.late(1.0)), (Some(900), Some(900), Some(900)));
        assert_eq!((a.late(0.25), b.late(0.5)), (Some(50), Some(50)));
        assert_eq!((rates.all.armed, rates.all.pending, rates.cpu), (102.0, 10, Some(25.0)));
    }

    #[test]
    fn e9_looks_of_two_processes_or_of_one_moment_have_no_rates() {
        let before = look(5, 0, Vec::new());
        assert!(Rates::between(&before, &before).is_none());
        let again = Look { started_ms: 2, elapsed_ns: 9, ..before.clone() };
        assert!(Rates::between(&before, &again).is_none());
        let quiet = Rates::between(&before, &Look { elapsed_ns: 6, ..before.clone() }).expect("the same process");
        assert_eq!(quiet.all.late(0.5), None);
    }
}
