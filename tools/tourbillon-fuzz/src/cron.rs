//! Parses any text as a cron line, and asks a valid one for its times. Nothing panics or takes long; the times are later than the
//! time asked for, in order, and the same however they are asked for. Those of an `@every` line are an interval later.

use std::time::{Duration, SystemTime};

use tourbillon::Cron;

/// Zones with summer time in both halves of the year, with half an hour of it, with none, and with skipped days.
const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "America/Santiago",
    "Africa/Casablanca",
];
const NANO: Duration = Duration::from_nanos(1);

/// Reads bytes as a zone (one), a time (eight) and a line (the rest).
pub fn cron(bytes: &[u8]) {
    let Some((&zone, rest)) = bytes.split_first() else { return };
    let Some((time, line)) = rest.split_first_chunk::<8>() else { return };
    let Ok(line) = str::from_utf8(line) else { return };
    let cron = match Cron::utc(line) {
        Ok(cron) => cron,
        Err(error) => {
            // The error points into the line, which may contain any characters.
            assert!(!format!("{error} {error:?}").is_empty());
            return;
        }
    };
    let cron = cron.in_zone(ZONES[usize::from(zone) % ZONES.len()]).unwrap();
    assert!(format!("{cron}").starts_with(line.trim()));
    let after = time_of(i64::from_le_bytes(*time));
    if let Some(interval) = cron.interval() {
        return check_interval(&cron, after, interval);
    }
    let Some(due) = check_next(&cron, after) else { return };
    let Some(next) = check_next(&cron, due) else { return };
    assert!(due < next);
    check_again(&cron, after, due);
}

/// Returns a time within a few thousand years before or after 1970.
fn time_of(seed: i64) -> SystemTime {
    let distance = Duration::from_nanos(seed.unsigned_abs()) * (1 + (seed.unsigned_abs() % 8) as u32);
    if seed < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// Checks that the next time is later, and that asking from any moment before it gives the same time.
fn check_next(cron: &Cron, after: SystemTime) -> Option<SystemTime> {
    let due = cron.next_after(after)?;
    let distance = due.duration_since(after).expect("the next time is not before the time asked for");
    assert!(distance >= NANO, "{cron} is due at {due:?}, after {after:?}");
    assert_eq!(cron.next_after(due - NANO), Some(due), "{cron}, just before");
    assert_eq!(cron.next_after(after + distance / 2), Some(due), "{cron}, half way");
    Some(due)
}

/// Checks that an `@every` line is due one interval after any time.
fn check_interval(cron: &Cron, after: SystemTime, interval: Duration) {
    assert!(!interval.is_zero(), "{cron}");
    assert_eq!(cron.next_after(after), after.checked_add(interval), "{cron}");
    let again = Cron::utc(cron.line()).expect("the line has been parsed before");
    assert_eq!(again.interval(), Some(interval), "{cron}");
}

/// Checks that the line parses to the same times again.
fn check_again(cron: &Cron, after: SystemTime, due: SystemTime) {
    let again =
        Cron::parse(cron.line()).expect("the line has been parsed before").in_time_zone(cron.time_zone().clone());
    assert_eq!(again.next_after(after), Some(due));
}
