//! Clocks that jump.

use jiff::tz::TimeZone;
use tourbillon::Cron;

use crate::{dues, next};

#[test]
fn a8_a_fixed_time_in_a_gap_is_due_once_when_the_gap_has_passed() {
    for (line, zone, from, due) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2024-03-30T00:00:00Z",
            ["2024-03-30 02:30:00 +01:00", "2024-03-31 03:00:00 +02:00", "2024-04-01 02:30:00 +02:00"],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2025-03-08T00:00:00Z",
            ["2025-03-08 02:30:00 -05:00", "2025-03-09 03:00:00 -04:00", "2025-03-10 02:30:00 -04:00"],
        ),
        // A gap of half an hour.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2024-10-04T20:00:00Z",
            ["2024-10-06 02:30:00 +11:00", "2024-10-07 02:15:00 +11:00", "2024-10-08 02:15:00 +11:00"],
        ),
        // A gap at midnight.
        (
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00Z",
            ["2018-11-04 01:00:00 -02:00", "2018-11-05 00:00:00 -02:00", "2018-11-06 00:00:00 -02:00"],
        ),
        (
            "0 0 * * *",
            "Africa/Cairo",
            "2024-04-25T12:00:00Z",
            ["2024-04-26 01:00:00 +03:00", "2024-04-27 00:00:00 +03:00", "2024-04-28 00:00:00 +03:00"],
        ),
        // A gap that ends on the next day, which the line does not name.
        (
            "30 23 * * SAT",
            "America/Nuuk",
            "2024-03-24T12:00:00Z",
            ["2024-03-31 00:00:00 -01:00", "2024-04-06 23:30:00 -01:00", "2024-04-13 23:30:00 -01:00"],
        ),
        // A gap of a quarter of an hour, which was permanent.
        (
            "5 0 1 1 *",
            "Asia/Kathmandu",
            "1985-06-01T00:00:00Z",
            ["1986-01-01 00:15:00 +05:45", "1987-01-01 00:05:00 +05:45", "1988-01-01 00:05:00 +05:45"],
        ),
    ] {
        assert_eq!(dues(line, zone, from, 3), due, "{line} in {zone}");
    }
}

#[test]
fn a8_a_day_that_a_zone_left_out_runs_when_the_next_day_begins() {
    assert_eq!(
        dues("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3),
        ["2011-12-29 12:00:00 -10:00", "2011-12-31 00:00:00 +14:00", "2011-12-31 12:00:00 +14:00"]
    );
    assert_eq!(dues("0 12 30 12 *", "Pacific/Apia", "2011-06-01T00:00:00Z", 1), ["2011-12-31 00:00:00 +14:00"]);
    assert_eq!(
        dues("0 * * * *", "Pacific/Apia", "2011-12-30T09:30:00Z", 2),
        ["2011-12-31 00:00:00 +14:00", "2011-12-31 01:00:00 +14:00"]
    );
}

#[test]
fn a8_several_fixed_times_in_one_gap_are_due_together() {
    assert_eq!(
        dues("0,20,40 1-3 * * *", "Europe/Berlin", "2024-03-31T00:30:00Z", 4),
        [
            "2024-03-31 01:40:00 +01:00",
            "2024-03-31 03:00:00 +02:00",
            "2024-03-31 03:20:00 +02:00",
            "2024-03-31 03:40:00 +02:00"
        ]
    );
}

#[test]
fn a8_a_fixed_time_in_an_overlap_is_due_the_first_time_only() {
    for (line, zone, from, due) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2024-10-26T12:00:00Z",
            ["2024-10-27 02:30:00 +02:00", "2024-10-28 02:30:00 +01:00"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2025-11-01T12:00:00Z",
            ["2025-11-02 01:30:00 -04:00", "2025-11-03 01:30:00 -05:00"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2024-04-06T04:00:00Z",
            ["2024-04-07 01:45:00 +11:00", "2024-04-08 01:45:00 +10:30"],
        ),
        // An overlap across midnight: the same day begins twice.
        (
            "30 23 * * *",
            "America/Sao_Paulo",
            "2018-02-17T12:00:00Z",
            ["2018-02-17 23:30:00 -02:00", "2018-02-18 23:30:00 -03:00"],
        ),
    ] {
        assert_eq!(dues(line, zone, from, 2), due, "{line} in {zone}");
    }
    // Asked in the second half of the overlap, for a time in the first half and for one that is not.
    let asked = "2024-10-27T01:10:00Z";
    assert_eq!(dues("30 2 * * *", "Europe/Berlin", asked, 1), ["2024-10-28 02:30:00 +01:00"]);
    assert_eq!(dues("0 3 * * *", "Europe/Berlin", asked, 1), ["2024-10-27 03:00:00 +01:00"]);
    // Asked at the exact time of the jump.
    assert_eq!(dues("30 2,3 * * *", "Europe/Berlin", "2024-10-27T01:00:00Z", 1), ["2024-10-27 03:30:00 +01:00"]);
}

#[test]
fn a8_an_interval_follows_elapsed_time() {
    assert_eq!(
        dues("*/30 * * * *", "Europe/Berlin", "2024-10-26T23:40:00Z", 6),
        [
            "2024-10-27 02:00:00 +02:00",
            "2024-10-27 02:30:00 +02:00",
            "2024-10-27 02:00:00 +01:00",
            "2024-10-27 02:30:00 +01:00",
            "2024-10-27 03:00:00 +01:00",
            "2024-10-27 03:30:00 +01:00"
        ]
    );
    assert_eq!(
        dues("*/30 * * * *", "Europe/Berlin", "2024-03-31T00:10:00Z", 3),
        ["2024-03-31 01:30:00 +01:00", "2024-03-31 03:00:00 +02:00", "2024-03-31 03:30:00 +02:00"]
    );
    // Half an hour back: the line is due at both occurrences of 01:50.
    assert_eq!(
        dues("50 * * * *", "Australia/Lord_Howe", "2024-04-06T14:10:00Z", 3),
        ["2024-04-07 01:50:00 +11:00", "2024-04-07 01:50:00 +10:30", "2024-04-07 02:50:00 +10:30"]
    );
}

#[test]
fn a_line_displays_itself_and_its_zone() {
    let cron = Cron::parse(" 30 2 * * * ").unwrap().in_zone("europe/berlin").unwrap();
    assert_eq!(cron.to_string(), "30 2 * * * in Europe/Berlin");
    assert_eq!(format!("{cron:?}"), "Cron(30 2 * * * in Europe/Berlin)");
    assert_eq!(cron.line(), "30 2 * * *");
    assert_eq!(cron.time_zone().iana_name(), Some("Europe/Berlin"));
    assert_eq!("@daily".parse::<Cron>().unwrap().time_zone(), &TimeZone::system());
}

#[test]
fn zones_work_on_machines_without_zone_files() {
    let copy = jiff::tz::TimeZoneDatabase::bundled();
    let zone = copy.get("Europe/Berlin").unwrap();
    let cron = Cron::parse("30 2 * * *").unwrap().in_time_zone(zone);
    assert_eq!(next(&cron, "2024-03-30T12:00:00Z"), "2024-03-31 03:00:00 +02:00");
}
