//! The meaning of lines.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tourbillon::Cron;

use crate::{dues, next};

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
    assert_eq!(next(&cron, "1601-06-01T00:00:00Z"), "1602-01-01 00:00:00 +00:00");
    // Beyond the range of the calendar.
    let ages = Duration::from_secs(1 << 60);
    let Some((before, after)) = SystemTime::UNIX_EPOCH.checked_sub(ages).zip(SystemTime::UNIX_EPOCH.checked_add(ages))
    else {
        return println!("NOT TESTED WITH TIMES BEFORE 1601: this system's time of day does not have them");
    };
    assert_eq!(next(&cron, "-009999-06-01T00:00:00Z"), "0001-01-01 00:00:00 +00:00");
    assert_eq!(cron.next_after(after), None);
    let first = cron.next_after(before).unwrap();
    assert_eq!(Timestamp::try_from(first).unwrap().to_string(), "0001-01-01T00:00:00Z");
}

#[test]
fn a_line_whose_years_are_over_is_never_due_again() {
    let cron = Cron::utc("0 0 0 1 1 * 2020").unwrap();
    assert_eq!(next(&cron, "2019-06-01T00:00:00Z"), "2020-01-01 00:00:00 +00:00");
    assert_eq!(next(&cron, "2020-01-01T00:00:00Z"), "never");
}
