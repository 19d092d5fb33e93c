//! Cron lines: when they are due, in zones whose clocks jump, and the errors of wrong lines.
#![cfg(feature = "cron")]

mod random;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use random::Random;
use tourbillon::cron::CronField;
use tourbillon::{Cron, CronError};

// ---- the meaning of lines ----

#[test]
fn a_line_is_due_strictly_later() {
    let cron = Cron::utc("0 12 * * *").unwrap();
    assert_eq!(next(&cron, "2026-11-16T11:59:59.999999999Z"), "2026-11-16 12:00:00 +00:00");
    assert_eq!(next(&cron, "2026-11-16T12:00:00Z"), "2026-11-17 12:00:00 +00:00");
    assert_eq!(next(&cron, "2026-11-16T12:00:00.000000001Z"), "2026-11-17 12:00:00 +00:00");
}

#[test]
fn six_fields_begin_with_seconds_and_seven_end_with_years() {
    assert_eq!(
        dues("*/20 59 23 31 12 *", "UTC", "2026-01-01T00:00:00Z", 4),
        [
            "2026-12-31 23:59:00 +00:00",
            "2026-12-31 23:59:20 +00:00",
            "2026-12-31 23:59:40 +00:00",
            "2027-12-31 23:59:00 +00:00"
        ]
    );
    assert_eq!(
        dues("0 0 0 1 1 * 2030,2040-2041", "UTC", "2026-01-01T00:00:00Z", 9),
        ["2030-01-01 00:00:00 +00:00", "2040-01-01 00:00:00 +00:00", "2041-01-01 00:00:00 +00:00"]
    );
}

#[test]
fn nicknames_stand_for_lines() {
    let from = "2026-11-16T02:20:10Z";
    for (nickname, due) in [
        ("@yearly", "2027-01-01 00:00:00 +00:00"),
        ("@annually", "2027-01-01 00:00:00 +00:00"),
        ("@monthly", "2026-12-01 00:00:00 +00:00"),
        ("@weekly", "2026-11-22 00:00:00 +00:00"),
        ("@daily", "2026-11-17 00:00:00 +00:00"),
        ("  @Midnight ", "2026-11-17 00:00:00 +00:00"),
        ("@HOURLY", "2026-11-16 03:00:00 +00:00"),
    ] {
        assert_eq!(next(&Cron::utc(nickname).unwrap(), from), due, "{nickname}");
    }
}

#[test]
fn the_last_day_of_a_month_and_the_weekdays_near_a_day() {
    assert_eq!(
        dues("0 0 L * *", "UTC", "2028-01-01T00:00:00Z", 3),
        ["2028-01-31 00:00:00 +00:00", "2028-02-29 00:00:00 +00:00", "2028-03-31 00:00:00 +00:00"]
    );
    // 31 January 2026 is a Saturday, 15 February and 15 March are Sundays.
    assert_eq!(dues("0 0 LW * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-30 00:00:00 +00:00"]);
    assert_eq!(dues("0 0 15W 2 *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-02-16 00:00:00 +00:00"]);
    // The first of the month is a Saturday: the nearest weekday is not the Friday of the month before.
    assert_eq!(dues("0 0 1W 8 *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-08-03 00:00:00 +00:00"]);
}

#[test]
fn a_weekday_of_a_month_by_its_number_or_the_last() {
    assert_eq!(dues("0 0 * * FRI#2", "UTC", "2026-11-01T00:00:00Z", 1), ["2026-11-13 00:00:00 +00:00"]);
    assert_eq!(
        dues("0 0 * * fri#5", "UTC", "2026-11-01T00:00:00Z", 2),
        ["2027-01-29 00:00:00 +00:00", "2027-04-30 00:00:00 +00:00"]
    );
    for last in ["5#L", "5L", "FRIL", "fri#l"] {
        assert_eq!(
            dues(&format!("0 0 * * {last}"), "UTC", "2026-11-01T00:00:00Z", 1),
            ["2026-11-27 00:00:00 +00:00"],
            "{last}"
        );
    }
}

#[test]
fn of_day_of_month_and_day_of_week_one_must_match_and_with_a_plus_both() {
    assert_eq!(
        dues("0 0 13 * FRI", "UTC", "2026-11-01T00:00:00Z", 4),
        [
            "2026-11-06 00:00:00 +00:00",
            "2026-11-13 00:00:00 +00:00",
            "2026-11-20 00:00:00 +00:00",
            "2026-11-27 00:00:00 +00:00"
        ]
    );
    assert_eq!(
        dues("0 0 13 * +FRI", "UTC", "2026-11-01T00:00:00Z", 2),
        ["2026-11-13 00:00:00 +00:00", "2027-08-13 00:00:00 +00:00"]
    );
}

#[test]
fn sunday_has_two_numbers() {
    for sunday in ["0", "7", "SUN", "sun"] {
        let due = dues(&format!("0 0 * * {sunday}"), "UTC", "2026-11-16T00:00:00Z", 1);
        assert_eq!(due, ["2026-11-22 00:00:00 +00:00"], "{sunday}");
    }
    assert_eq!(
        dues("0 0 * * SAT-SUN", "UTC", "2026-11-16T00:00:00Z", 2),
        ["2026-11-21 00:00:00 +00:00", "2026-11-22 00:00:00 +00:00"]
    );
}

#[test]
fn p5_a_leap_day_is_eight_years_away_where_a_century_has_none() {
    assert_eq!(
        dues("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", 2),
        ["2104-02-29 00:00:00 +00:00", "2108-02-29 00:00:00 +00:00"]
    );
    assert_eq!(dues("0 0 29 2 *", "UTC", "1999-01-01T00:00:00Z", 1), ["2000-02-29 00:00:00 +00:00"]);
    // On a Monday, and none in 2100: forty years.
    assert_eq!(dues("0 0 29 2 +MON", "UTC", "2072-03-01T00:00:00Z", 1), ["2112-02-29 00:00:00 +00:00"],);
}

#[test]
fn p5_times_after_32_bits_and_before_1970_work_like_any_other() {
    assert_eq!(
        dues("14 3 19 1 *", "UTC", "2038-01-19T03:13:59Z", 2),
        ["2038-01-19 03:14:00 +00:00", "2039-01-19 03:14:00 +00:00"]
    );
    // Summer time follows its rule after the end of the tables.
    assert_eq!(dues("30 2 * * *", "Europe/Berlin", "2050-03-26T12:00:00Z", 1), ["2050-03-27 03:00:00 +02:00"]);
    assert_eq!(
        dues("0 0 1 1 *", "UTC", "1968-12-31T00:00:00Z", 3),
        ["1969-01-01 00:00:00 +00:00", "1970-01-01 00:00:00 +00:00", "1971-01-01 00:00:00 +00:00"]
    );
    // Berlin's local time before 1893: 53 minutes and 28 seconds.
    assert_eq!(dues("0 12 * * *", "Europe/Berlin", "1880-06-01T00:00:00Z", 1), ["1880-06-01 12:00:00 +00:53:28"]);
}

#[test]
fn p5_times_at_the_ends_of_the_calendar_are_accepted() {
    let cron = Cron::utc("@yearly").unwrap();
    assert_eq!(next(&cron, "9999-12-30T00:00:00Z"), "never");
    assert_eq!(next(&cron, "4999-06-01T00:00:00Z"), "never");
    assert_eq!(next(&cron, "4998-06-01T00:00:00Z"), "4999-01-01 00:00:00 +00:00");
    assert_eq!(next(&cron, "-009999-06-01T00:00:00Z"), "0001-01-01 00:00:00 +00:00");
    // Beyond the range of the calendar.
    let ages = Duration::from_secs(1 << 60);
    assert_eq!(cron.next_after(SystemTime::UNIX_EPOCH + ages), None);
    let first = cron.next_after(SystemTime::UNIX_EPOCH - ages).unwrap();
    assert_eq!(Timestamp::try_from(first).unwrap().to_string(), "0001-01-01T00:00:00Z");
}

#[test]
fn a_line_whose_years_are_over_is_never_due_again() {
    let cron = Cron::utc("0 0 0 1 1 * 2020").unwrap();
    assert_eq!(next(&cron, "2019-06-01T00:00:00Z"), "2020-01-01 00:00:00 +00:00");
    assert_eq!(next(&cron, "2020-01-01T00:00:00Z"), "never");
}

// ---- clocks that jump ----

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

// ---- wrong lines ----

#[test]
fn p6_a_wrong_line_is_refused_with_the_position() {
    use CronField::*;
    for (line, field, wrong) in [
        ("60 * * * *", Minute, "60"),
        ("* 24 * * *", Hour, "24"),
        ("* * 0 * *", DayOfMonth, "0"),
        ("* * 32 * *", DayOfMonth, "32"),
        ("* * * 13 *", Month, "13"),
        ("* * * 0 *", Month, "0"),
        ("* * * * 8", DayOfWeek, "8"),
        ("60 * * * * *", Second, "60"),
        ("* * * * * * 5001", Year, "5001"),
        ("* * * * * * 2030-", Year, "2030-"),
        ("* * * * * * 0", Year, "0"),
        ("1,2,77,4 * * * *", Minute, "77"),
        ("*/0 * * * *", Minute, "*/0"),
        ("/15 * * * *", Minute, "/15"),
        ("*/ * * * *", Minute, "*/"),
        ("*/5/5 * * * *", Minute, "*/5/5"),
        ("60-20 * * * *", Minute, "60-20"),
        ("1- * * * *", Minute, "1-"),
        ("-1 * * * *", Minute, "-1"),
        ("1-2-3 * * * *", Minute, "1-2-3"),
        ("99999999999999999999 * * * *", Minute, "99999999999999999999"),
        ("1-59/65535 * * * *", Minute, "1-59/65535"),
        ("1,,2 * * * *", Minute, ""),
        (", * * * *", Minute, ""),
        ("1, * * * *", Minute, ""),
        ("*,5 * * * *", Minute, "*"),
        ("? * * * *", Minute, "?"),
        ("MON * * * *", Minute, "MON"),
        ("* JAN * * *", Hour, "JAN"),
        ("* * * FOO *", Month, "FOO"),
        ("* * * JANUARY *", Month, "JANUARY"),
        ("* * * 1JAN *", Month, "1JAN"),
        ("* * * MON *", Month, "MON"),
        ("* * * * MAY", DayOfWeek, "MAY"),
        ("* * * * SAT-MAY", DayOfWeek, "SAT-MAY"),
        ("* * * * FRI#6", DayOfWeek, "FRI#6"),
        ("* * * * FRI#0", DayOfWeek, "FRI#0"),
        ("* * * * FRI#2L", DayOfWeek, "FRI#2L"),
        ("* * * * FRI#", DayOfWeek, "FRI#"),
        ("* * * * L", DayOfWeek, "L"),
        ("* * * * +", DayOfWeek, ""),
        ("* * * * +9", DayOfWeek, "9"),
        ("* * * * ++5", DayOfWeek, "+5"),
        ("* * * * MON,9", DayOfWeek, "9"),
        ("* * 15W3 * *", DayOfMonth, "15W3"),
        ("* * W15 * *", DayOfMonth, "W15"),
        ("* * 5L * *", DayOfMonth, "5L"),
        ("* * L,LW * *", DayOfMonth, "L"),
        ("* * 1#2 * *", DayOfMonth, "1#2"),
        ("* * L-3 * *", DayOfMonth, "L-3"),
        ("* * * * µ", DayOfWeek, "µ"),
        ("* * * ſEP *", Month, "ſEP"),
        ("0 0 * * @daily", DayOfWeek, "@daily"),
    ] {
        match Cron::parse(line) {
            Err(CronError::Field { line: told, field: named, at }) => {
                assert_eq!((&*told, named, &line[at]), (line, field, wrong), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn p6_the_error_shows_the_line_and_marks_the_position() {
    let says = |line| Cron::parse(line).unwrap_err().to_string();
    let with_tab = "0\t0 * * MON,FOO,TUE";
    assert_eq!(
        says(with_tab).lines().take(3).collect::<Vec<_>>(),
        ["day of the week: `FOO` is not allowed there", "    0 0 * * MON,FOO,TUE", "                ^^^"]
    );
    assert_eq!(
        says("1,,2 * * * *").lines().take(3).collect::<Vec<_>>(),
        ["minute: something is missing there", "    1,,2 * * * *", "      ^"]
    );
    assert_eq!(
        says("* * *").lines().take(3).collect::<Vec<_>>(),
        ["a cron line with 3 fields", "    * * *", "          ^"]
    );
    assert_eq!(
        says("0 * * * * * * ä 9").lines().take(3).collect::<Vec<_>>(),
        ["a cron line with 9 fields", "    0 * * * * * * ä 9", "                  ^"]
    );
    assert_eq!(
        says("  @dayly").lines().take(3).collect::<Vec<_>>(),
        ["there is no such nickname", "      @dayly", "      ^^^^^^"]
    );
    assert!(says("@reboot").contains("@hourly"));
    assert!(says("").starts_with("an empty cron line: five fields are wanted"));
}

#[test]
fn p6_a_wrong_number_of_fields_is_refused() {
    for (line, found) in [("*", 1), ("* * * *", 4), ("* * * * * * * *", 8)] {
        assert!(matches!(Cron::parse(line), Err(CronError::FieldCount { found: told, .. }) if told == found), "{line}");
    }
    for line in ["", " ", "\t\n", "\u{a0}"] {
        assert_eq!(Cron::parse(line).unwrap_err(), CronError::Empty, "{line:?}");
    }
    for line in ["@", "@daily *", "@reboot"] {
        assert!(matches!(Cron::parse(line), Err(CronError::Nickname { .. })), "{line}");
    }
}

#[test]
fn p7_a_line_that_is_too_long_is_refused() {
    let long = "1,".repeat(1 << 20) + "1 * * * *";
    assert_eq!(Cron::parse(&long).unwrap_err(), CronError::TooLong { length: long.len(), limit: 1024 });
}

#[test]
fn p6_an_unknown_zone_is_refused_with_an_error_that_says_where_zones_come_from() {
    for name in ["Europe/Atlantis", "", "../../etc/passwd", "Europe/Berlin\0", "/etc/localtime"] {
        let error = Cron::parse("@daily").unwrap().in_zone(name).unwrap_err();
        assert_eq!(error, CronError::UnknownZone { name: name.into() });
        assert!(error.to_string().contains("zoneinfo"));
    }
}

#[test]
fn p6_no_text_causes_a_panic() {
    let mut random = Random(random::seed());
    let bits = [
        "*", "/", "-", ",", "#", "L", "W", "?", "+", "1", "59", "JAN", "sun", " ", " ", " ", "@", "ß", "\u{2028}",
        "TZ=UTC ", "@every ", "h", ".",
    ];
    for _ in 0..20_000 {
        let line = (0..random.below(24)).map(|_| random.one_of(bits)).collect::<String>();
        match Cron::utc(&line) {
            Ok(cron) => drop(cron.next_after(SystemTime::UNIX_EPOCH)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

// ---- compared with a search of the calendar, minute by minute ----

#[test]
fn a8_random_lines_are_due_when_the_search_says_so() {
    let mut random = Random(random::seed());
    for _ in 0..2000 {
        let line = Naive::random(&mut random, Fields::Five);
        compare(&mut random, &line, SignedDuration::from_mins(1), SignedDuration::from_hours(72));
    }
}

#[test]
fn a8_random_lines_with_seconds_are_due_when_the_search_says_so() {
    let mut random = Random(random::seed());
    for _ in 0..80 {
        let line = Naive::random(&mut random, Fields::Six);
        compare(&mut random, &line, SignedDuration::from_secs(1), SignedDuration::from_hours(6));
    }
}

const ZONES: [&str; 16] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Nuuk",
    "America/St_Johns",
    "America/Caracas",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kwajalein",
];

/// Compares a line with the search for a while, in a random zone, mostly around jumps of its clock.
fn compare(random: &mut Random, line: &Naive, step: SignedDuration, length: SignedDuration) {
    let name = random.one_of(ZONES);
    let zone = TimeZone::get(name).unwrap();
    // From 1975 on, when all these zones have offsets of whole minutes, to 2060.
    let somewhen = Timestamp::from_second(157_766_400 + random.below(2_682_460_800) as i64).unwrap();
    let jump = zone.following(somewhen).next().map_or(somewhen, |transition| transition.timestamp());
    let begin = match random.below(8) {
        0 => somewhen,
        1 => jump,
        2..=4 => jump + SignedDuration::from_secs(random.below(2 * 60 * 60) as i64),
        _ => jump - SignedDuration::from_secs(random.below(length.as_secs() as u64) as i64),
    };
    let begin = Timestamp::from_second(begin.as_second().div_euclid(60) * 60).unwrap();
    let end = begin + length;

    let cron = Cron::parse(&line.text).unwrap_or_else(|error| panic!("{error}")).in_time_zone(zone.clone());
    let is_never = cron.next_after(SystemTime::UNIX_EPOCH).is_none();
    assert_eq!(is_never, !line.has_days(), "`{}` has days, or none", line.text);
    let wanted = line.dues(&zone, begin, end, step);
    let found = std::iter::successors(Some(begin), |at| after(&cron, *at)).skip(1).take_while(|at| *at < end);
    assert_eq!(found.collect::<Vec<_>>(), wanted, "`{}` in {name} from {begin} to {end}", line.text);
}

#[derive(Clone, Copy, PartialEq)]
enum Fields {
    Five,
    Six,
}

/// A line and its meaning, implemented without the code under test.
struct Naive {
    text: String,
    seconds: BTreeSet<i8>,
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    months: BTreeSet<i8>,
    day_of_month: Day,
    day_of_week: Day,
    both: bool,
    is_interval: bool,
}

/// The days that a field names.
enum Day {
    Any,
    Of(BTreeSet<i8>),
    Last,
    LastWeekday,
    NearestWeekday(i8),
    Nth(i8, i8),
    LastOf(i8),
}

impl Naive {
    fn random(random: &mut Random, fields: Fields) -> Naive {
        let (seconds, second_set, second_star) = match fields {
            Fields::Five => (String::new(), BTreeSet::from([0]), false),
            Fields::Six => field(random, 0, 59),
        };
        let (minutes, minute_set, minute_star) = field(random, 0, 59);
        // Clocks jump in the small hours.
        let (hours, hour_set, hour_star) = match random.below(3) {
            0 => ("0-3,23".into(), BTreeSet::from([0, 1, 2, 3, 23]), false),
            _ => field(random, 0, 23),
        };
        let (months, month_set, _) =
            if random.below(4) > 0 { ("*".into(), (1..=12).collect(), true) } else { field(random, 1, 12) };
        let (day_of_month, dom) = day_of_month(random);
        let (day_of_week, dow) = day_of_week(random);
        let both = random.below(3) == 0;
        let plus = if both { "+" } else { "" };
        Naive {
            text: format!("{seconds} {minutes} {hours} {day_of_month} {months} {plus}{day_of_week}").trim().into(),
            seconds: second_set,
            minutes: minute_set,
            hours: hour_set,
            months: month_set,
            day_of_month: dom,
            day_of_week: dow,
            both,
            is_interval: second_star || minute_star || hour_star,
        }
    }

    /// Returns all times strictly between the two at which the line is due.
    fn dues(&self, zone: &TimeZone, begin: Timestamp, end: Timestamp, step: SignedDuration) -> Vec<Timestamp> {
        let warm_up = if step.as_secs() == 60 { 60 } else { 6 };
        let mut at = begin - SignedDuration::from_hours(warm_up);
        let mut furthest = zone.to_datetime(at);
        let mut dues = Vec::new();
        while at < end {
            let shown = zone.to_datetime(at);
            let is_due = if self.is_interval {
                self.matches(shown)
            } else {
                let reached = std::iter::successors(Some(furthest + step), |time| Some(*time + step));
                reached.take_while(|time| *time <= shown).any(|time| self.matches(time))
            };
            furthest = furthest.max(shown);
            if is_due && at > begin {
                dues.push(at);
            }
            at += step;
        }
        dues
    }

    /// Returns whether any day matches in any kind of year.
    fn has_days(&self) -> bool {
        let first = Date::constant(2000, 1, 1);
        first.series(jiff::Span::new().days(1)).take_while(|date| date.year() < 2028).any(|date| self.is_day(date))
    }

    fn matches(&self, shown: DateTime) -> bool {
        self.seconds.contains(&shown.second())
            && self.minutes.contains(&shown.minute())
            && self.hours.contains(&shown.hour())
            && self.is_day(shown.date())
    }

    fn is_day(&self, date: Date) -> bool {
        let by_month = |day: &Day| day.matches(date, false);
        let by_week = |day: &Day| day.matches(date, true);
        self.months.contains(&date.month())
            && match (&self.day_of_month, &self.day_of_week) {
                (Day::Any, week) => by_week(week),
                (month, Day::Any) => by_month(month),
                (month, week) if self.both => by_month(month) && by_week(week),
                (month, week) => by_month(month) || by_week(week),
            }
    }
}

impl Day {
    fn matches(&self, date: Date, by_week: bool) -> bool {
        let weekday = |date: Date| date.weekday().to_sunday_zero_offset();
        let is_workday = |date: Date| !matches!(weekday(date), 0 | 6);
        match self {
            Day::Any => true,
            Day::Of(set) if by_week => set.contains(&weekday(date)) || weekday(date) == 0 && set.contains(&7),
            Day::Of(set) => set.contains(&date.day()),
            Day::Last => date == date.last_of_month(),
            Day::LastWeekday => {
                (1..=date.days_in_month()).rev().map(|day| on(date, day)).find(|d| is_workday(*d)) == Some(date)
            }
            Day::NearestWeekday(day) if *day > date.days_in_month() => false,
            Day::NearestWeekday(day) => {
                let days = (1..=date.days_in_month()).map(|day| on(date, day)).filter(|date| is_workday(*date));
                // Two weekdays are never equally near: a weekend has two days.
                days.min_by_key(|date| date.day().abs_diff(*day)) == Some(date)
            }
            Day::Nth(nth, of) => weekday(date) == *of && (date.day() - 1) / 7 + 1 == *nth,
            Day::LastOf(of) => weekday(date) == *of && date.day() + 7 > date.days_in_month(),
        }
    }
}

fn on(date: Date, day: i8) -> Date {
    date.with().day(day).build().unwrap()
}

/// Returns a field, its meaning, and whether it has a star.
fn field(random: &mut Random, min: i8, max: i8) -> (String, BTreeSet<i8>, bool) {
    let count = (max - min + 1) as u64;
    let number = |random: &mut Random| min + random.below(count) as i8;
    let item = |random: &mut Random| {
        let (a, b) = (number(random), number(random));
        let (low, high) = (a.min(b), a.max(b));
        let step = 1 + random.below(count.min(20)) as i8;
        match random.below(4) {
            0 => (format!("{low}-{high}"), (low..=high).collect::<BTreeSet<_>>(), false),
            1 => (format!("{low}-{high}/{step}"), (low..=high).step_by(step as usize).collect(), false),
            2 => (format!("*/{step}"), (min..=max).step_by(step as usize).collect(), true),
            _ => (format!("{a:0width$}", width = random.below(3) as usize), BTreeSet::from([a]), false),
        }
    };
    match random.below(8) {
        0 | 1 => ("*".into(), (min..=max).collect(), true),
        2..=5 => item(random),
        _ => {
            let items = (0..2 + random.below(2)).map(|_| item(random)).collect::<Vec<_>>();
            let text = items.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(",");
            let has_star = items.iter().any(|(_, _, star)| *star);
            (text, items.into_iter().flat_map(|(_, set, _)| set).collect(), has_star)
        }
    }
}

fn day_of_month(random: &mut Random) -> (String, Day) {
    match random.below(12) {
        0..=5 => (random.one_of(["*", "?"]).into(), Day::Any),
        6 => ("L".into(), Day::Last),
        7 => ("LW".into(), Day::LastWeekday),
        8 => {
            let day = 1 + random.below(31) as i8;
            (format!("{day}W"), Day::NearestWeekday(day))
        }
        _ => match field(random, 1, 31) {
            (text, ..) if text == "*" => (text, Day::Any),
            (text, set, _) => (text, Day::Of(set)),
        },
    }
}

fn day_of_week(random: &mut Random) -> (String, Day) {
    const NAMES: [&str; 7] = ["SUN", "Mon", "tue", "WED", "THU", "FRI", "SAT"];
    let of = random.below(7) as usize;
    match random.below(12) {
        0..=5 => (random.one_of(["*", "?"]).into(), Day::Any),
        6 => (NAMES[of].into(), Day::Of(BTreeSet::from([of as i8]))),
        7 => {
            let nth = 1 + random.below(5) as i8;
            (format!("{}#{nth}", NAMES[of]), Day::Nth(nth, of as i8))
        }
        8 => (format!("{}{}", NAMES[of], random.one_of(["#L", "L"])), Day::LastOf(of as i8)),
        _ => match field(random, 0, 7) {
            (text, ..) if text == "*" => (text, Day::Any),
            (text, set, _) => (text, Day::Of(set)),
        },
    }
}

// ---- helpers ----

fn after(cron: &Cron, at: Timestamp) -> Option<Timestamp> {
    let due = cron.next_after(at.into()).map(|due| Timestamp::try_from(due).unwrap());
    assert!(due.is_none_or(|due| due > at), "{cron}: {due:?} is not later than {at}");
    due
}

/// Returns the next time at which the line is due, as the clock of its zone shows it.
fn next(cron: &Cron, at: &str) -> String {
    shown(cron, after(cron, at.parse().unwrap()))
}

/// Returns the next `count` times.
fn dues(line: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(line).unwrap().in_zone(zone).unwrap();
    let all = std::iter::successors(Some(from.parse().unwrap()), |at| after(&cron, *at));
    all.skip(1).take(count).map(|due| shown(&cron, Some(due))).collect()
}

fn shown(cron: &Cron, due: Option<Timestamp>) -> String {
    let zoned = due.map(|due| due.to_zoned(cron.time_zone().clone()));
    zoned.map_or("never".into(), |due| due.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}
