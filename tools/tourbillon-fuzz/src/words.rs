//! Parses any text as the name of a time zone and of a back end. A known name can be printed and parsed again; no name is known
//! that is not on a list.

use std::time::{Duration, SystemTime};

use tourbillon::{Cron, CronError};

/// Reads a text as every kind of name.
pub fn words(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    zone(text);
    #[cfg(target_os = "linux")]
    back_end(text);
}

fn zone(name: &str) {
    let midnights = Cron::utc("@daily").expect("a line");
    let midnights = match midnights.in_zone(name) {
        Ok(midnights) => midnights,
        Err(error) => {
            assert!(matches!(&error, CronError::UnknownZone { name: asked } if **asked == *name));
            return assert!(!error.to_string().is_empty());
        }
    };
    // Names are looked up in a folder, and none may lead out of it.
    assert!(!name.contains("..") && !name.starts_with('/') && !name.contains('\0'), "{name:?} is a time zone");
    let zone = midnights.time_zone().clone();
    let Some(known) = zone.iana_name() else {
        // One name stands for an unknown zone, which is UTC.
        return assert!(zone.is_unknown() && name.eq_ignore_ascii_case("Etc/Unknown"), "{name:?} has no name");
    };
    assert!(known.eq_ignore_ascii_case(name), "{name:?} is {known:?}");
    let again = Cron::utc("@daily").and_then(|line| line.in_zone(known)).expect("the zone's own name is known");
    let after = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    assert_eq!((midnights.next_after(after), midnights.to_string()), (again.next_after(after), again.to_string()));
}

#[cfg(target_os = "linux")]
fn back_end(text: &str) {
    use tourbillon_rt::Backend;

    let is_known = ["auto", "uring", "io_uring", "epoll"].iter().any(|name| name.eq_ignore_ascii_case(text));
    match text.parse::<Backend>() {
        Ok(backend) => assert!(is_known && backend.to_string().parse() == Ok(backend)),
        Err(error) => assert!(!is_known && error.0 == text && !error.to_string().is_empty()),
    }
}
