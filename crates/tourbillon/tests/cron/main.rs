//! Cron lines: when they are due, in zones whose clocks jump, and the errors of wrong lines.
#![cfg(feature = "cron")]

mod errors;
mod jumps;
mod meaning;
#[path = "../random/mod.rs"]
mod random;
mod search;
mod zones;

use jiff::Timestamp;
use tourbillon::Cron;

pub(crate) fn after(cron: &Cron, at: Timestamp) -> Option<Timestamp> {
    let due = cron.next_after(at.into()).map(|due| Timestamp::try_from(due).unwrap());
    assert!(due.is_none_or(|due| due > at), "{cron}: {due:?} is not later than {at}");
    due
}

/// Returns the next time at which the line is due, as the clock of its zone shows it.
pub(crate) fn next(cron: &Cron, at: &str) -> String {
    shown(cron, after(cron, at.parse().unwrap()))
}

/// Returns the next `count` times.
pub(crate) fn dues(line: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(line).unwrap().in_zone(zone).unwrap();
    let all = std::iter::successors(Some(from.parse().unwrap()), |at| after(&cron, *at));
    all.skip(1).take(count).map(|due| shown(&cron, Some(due))).collect()
}

pub(crate) fn shown(cron: &Cron, due: Option<Timestamp>) -> String {
    let zoned = due.map(|due| due.to_zoned(cron.time_zone().clone()));
    zoned.map_or("never".into(), |due| due.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}
