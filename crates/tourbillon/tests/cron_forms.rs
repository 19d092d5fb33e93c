//! The forms of cron lines that people paste from other systems: each is read with the meaning that it has there, or refused with an
//! error that shows the position and what to write.
#![cfg(feature = "cron")]

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tourbillon::cron::CronField;
use tourbillon::{Cron, CronError};

const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

/// Returns the next times in UTC, starting on a Monday.
fn dues(line: &str, count: usize) -> Vec<String> {
    let cron = Cron::utc(line).unwrap_or_else(|error| panic!("{error}"));
    let from: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
    let all = std::iter::successors(Some(SystemTime::from(from)), |at| cron.next_after(*at));
    all.skip(1).take(count).map(|due| Timestamp::try_from(due).unwrap().to_string()).collect()
}

#[track_caller]
fn same(line: &str, other: &str) {
    let (ours, theirs) = (dues(line, 400), dues(other, 400));
    assert_eq!(ours, theirs, "`{line}` and `{other}`");
    assert!(!ours.is_empty());
}

// ---- N/step ----

#[test]
fn d79_a_number_with_a_step_goes_from_there_to_the_fields_maximum() {
    same("5/15 * * * *", "5-59/15 * * * *");
    same("0/15 * * * *", "*/15 * * * *");
    same("10/20 5/15 0/6 * * *", "10-59/20 5-59/15 0-23/6 * * *");
    same("0 0 5/10 * *", "0 0 5-31/10 * *");
    same("0 0 1 2/5 *", "0 0 1 2-12/5 *");
    same("0 0 1 feb/5 *", "0 0 1 2-12/5 *");
    same("0 0 * * 1/2", "0 0 * * MON,WED,FRI");
    same("0 0 * * MON/2", "0 0 * * MON,WED,FRI");
    same("0 0 * * 7/3", "0 0 * * SUN,WED,SAT");
    same("0 0 0 1 1 * 2030/7", "0 0 0 1 1 * 2030-4999/7");
    same("1,5/20,50-52 * * * *", "1,5,25,45,50,51,52 * * * *");
    assert_eq!(
        dues("5/15 * * * *", 5),
        [
            "2026-11-16T00:05:00Z",
            "2026-11-16T00:20:00Z",
            "2026-11-16T00:35:00Z",
            "2026-11-16T00:50:00Z",
            "2026-11-16T01:05:00Z"
        ]
    );
}

#[test]
fn d79_a_step_from_a_number_outside_the_field_is_refused_with_the_position() {
    for (line, wrong) in [
        ("60/5 * * * *", "60/5"),
        ("5/0 * * * *", "5/0"),
        ("5/ * * * *", "5/"),
        ("5/x * * * *", "5/x"),
        ("5/5/5 * * * *", "5/5/5"),
        ("* * 0/5 * *", "0/5"),
        ("* * L/2 * *", "L/2"),
        ("* * 15W/2 * *", "15W/2"),
        ("* * * * FRI#2/2", "FRI#2/2"),
        ("* * * * 8/2", "8/2"),
    ] {
        match Cron::utc(line) {
            Err(CronError::Field { line: reported, at, .. }) => assert_eq!((&*reported, &line[at]), (line, wrong)),
            other => panic!("{line}: {other:?}"),
        }
    }
}

// ---- ranges that wrap ----

#[test]
fn d79_a_range_may_go_over_the_end_of_its_field() {
    same("0 22-2 * * *", "0 22,23,0,1,2 * * *");
    same("50-10 * * * *", "50-59,0-10 * * * *");
    same("50-10/7 * * * *", "50,57,4 * * * *");
    same("0 0 * * FRI-MON", "0 0 * * FRI,SAT,SUN,MON");
    same("0 0 * * fri-mon/2", "0 0 * * FRI,SUN");
    same("0 0 * * 6-1", "0 0 * * SAT,SUN,MON");
    same("0 0 * * 7-2", "0 0 * * SUN,MON,TUE");
    same("0 0 * * FRI-SUN", "0 0 * * 5,6,7");
    same("0 0 * * FRI-7", "0 0 * * 5,6,0");
    same("0 0 * * SUN-SUN", "0 0 * * SUN");
    same("0 0 * * 0-7", "0 0 * * *");
    same("0 0 1 NOV-FEB *", "0 0 1 11,12,1,2 *");
    same("0 0 28-2 * *", "0 0 28,29,30,31,1,2 * *");
    // Years do not repeat.
    let error = Cron::utc("0 0 0 1 1 * 2040-2030").unwrap_err();
    assert!(matches!(error, CronError::Field { field: CronField::Year, .. }), "{error}");
}

// ---- @every ----

#[test]
fn d79_every_takes_the_durations_of_go_exactly() {
    for (text, nanos) in [
        ("5m", 300_000_000_000),
        ("1h30m10s", 5_410_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("1h1h", 7_200_000_000_000),
        ("+90s", 90_000_000_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("100ms", 100_000_000),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("7μs", 7_000),
        ("1ns", 1),
        ("1.9999999999s", 1_999_999_999),
        ("0h0.000000001s", 1),
        ("2562047h47m16.854775807s", i64::MAX as u64),
    ] {
        for line in
            [format!("@every {text}"), format!("  @EVERY   {text} "), format!("CRON_TZ=Asia/Tokyo @every {text}")]
        {
            let cron = Cron::parse(&line).unwrap_or_else(|error| panic!("{error}"));
            let every = Duration::from_nanos(nanos);
            assert_eq!(cron.interval(), Some(every), "{line}");
            // From any moment on, not from whole minutes of the wall clock.
            let after = EPOCH + Duration::new(1_234_567, 891);
            assert_eq!(cron.next_after(after), Some(after + every), "{line}");
            assert!(cron.to_string().starts_with(line.trim()), "{cron}");
        }
    }
    assert_eq!(Cron::utc("@daily").unwrap().interval(), None);
    let never = Cron::utc("@every 2562047788015215h").unwrap();
    assert_eq!(never.next_after(EPOCH + Duration::from_secs(1 << 38)), None);
}

#[test]
fn d79_a_wrong_duration_is_refused_with_the_position_and_an_example() {
    for (line, wrong) in [
        ("@every", ""),
        ("@every  ", ""),
        ("@every 5", "5"),
        ("@every 5x", "5x"),
        ("@every m", "m"),
        ("@every .s", ".s"),
        ("@every 1.2.3s", "1.2.3s"),
        ("@every -5m", "-5m"),
        ("@every 0", "0"),
        ("@every 0s", "0s"),
        ("@every 0.0000000001s", "0.0000000001s"),
        ("@every 1h 30m", "1h 30m"),
        ("@every 99999999999999999999h", "99999999999999999999h"),
        ("@every 999999999999999999999999999999999999999999h", "999999999999999999999999999999999999999999h"),
        ("@every 5d", "5d"),
        ("TZ=UTC @every 5 minutes", "5 minutes"),
    ] {
        match Cron::utc(line) {
            Err(CronError::Interval { line: reported, at }) => {
                assert_eq!((&*reported, line.get(at).unwrap_or_default()), (line, wrong));
            }
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(
        Cron::utc("@every 5 minutes").unwrap_err().to_string().lines().collect::<Vec<_>>(),
        [
            "`5 minutes` is no interval",
            "    @every 5 minutes",
            "           ^^^^^^^^^",
            "an interval is longer than zero, without blanks, of numbers with the units h, m, s, ms, us or ns: \
             @every 5m, @every 1h30m10s, @every 1.5h",
        ]
    );
    assert!(matches!(Cron::utc("@everyday"), Err(CronError::Nickname { .. })));
    assert!(Cron::utc("@reboot").unwrap_err().to_string().contains("@every 5m"));
}

// ---- zones in the line ----

#[test]
fn d79_a_zone_before_the_fields_applies_to_the_line() {
    for line in [
        "CRON_TZ=Europe/Berlin 30 2 * * *",
        "TZ=Europe/Berlin 30 2 * * *",
        "  tz=europe/berlin   30 2 * * * ",
        "CRON_TZ=Europe/Berlin 0 30 2 * * * *",
    ] {
        let cron = Cron::parse(line).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(cron.time_zone().iana_name(), Some("Europe/Berlin"), "{line}");
        assert_eq!(cron.line(), line.trim());
        let due = cron.next_after(Timestamp::from_second(1_790_000_000).unwrap().into()).unwrap();
        let wanted = Cron::parse("30 2 * * *").unwrap().in_zone("Europe/Berlin").unwrap();
        assert_eq!(wanted.next_after(Timestamp::from_second(1_790_000_000).unwrap().into()), Some(due), "{line}");
    }
    let daily = Cron::parse("CRON_TZ=Asia/Tokyo @daily").unwrap();
    assert_eq!(daily.next_after(EPOCH), Some(EPOCH + Duration::from_secs(15 * 60 * 60)));
    assert_eq!(Cron::utc("TZ=Local @daily").unwrap().time_zone(), &TimeZone::system());
    assert_eq!(Cron::parse("TZ=UTC @daily").unwrap().time_zone(), &TimeZone::get("UTC").unwrap());
}

#[test]
fn d79_the_zone_of_the_line_wins_over_one_given_as_an_argument() {
    let line = "CRON_TZ=Asia/Tokyo 0 9 * * *";
    let tokyo = Cron::parse(line).unwrap();
    for other in [
        Cron::utc(line).unwrap(),
        Cron::parse(line).unwrap().in_zone("America/New_York").unwrap(),
        Cron::parse(line).unwrap().in_time_zone(TimeZone::UTC),
    ] {
        assert_eq!(other.time_zone().iana_name(), Some("Asia/Tokyo"));
        assert_eq!(other.next_after(EPOCH), tokyo.next_after(EPOCH));
    }
    // An unknown zone is an error all the same.
    assert!(matches!(Cron::parse(line).unwrap().in_zone("Mars/Olympus"), Err(CronError::UnknownZone { .. })));
}

#[test]
fn d79_an_unknown_zone_and_a_zone_alone_are_refused() {
    for (line, zone) in [
        ("CRON_TZ=Mars/Olympus 0 0 * * *", "Mars/Olympus"),
        ("TZ= 0 0 * * *", ""),
        ("TZ=UTC+9 0 0 * * *", "UTC+9"),
        ("TZ=../../etc/passwd @daily", "../../etc/passwd"),
    ] {
        assert_eq!(Cron::utc(line).unwrap_err(), CronError::UnknownZone { name: zone.into() }, "{line}");
    }
    for line in ["TZ=UTC", " CRON_TZ=UTC  "] {
        assert!(matches!(Cron::utc(line), Err(CronError::FieldCount { found: 0, .. })), "{line}");
    }
    // The position is that in the whole line.
    let line = "TZ=UTC * 25 * * *";
    match Cron::utc(line) {
        Err(CronError::Field { line: reported, field: CronField::Hour, at }) => {
            assert_eq!((&*reported, &line[at]), (line, "25"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(Cron::utc("TZ=UTC TZ=UTC 0 0 * * *"), Err(CronError::Field { .. })));
}

// ---- never ----

#[test]
fn d79_a_date_that_never_comes_is_never_due() {
    for line in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 1 * +MON#2",
        "0 0 0 29 2 * 2023,2025",
        "0 0 0 29 2 +MON 2028",
        "0 0 0 * * * 5000",
        "* * 31 2 ?",
    ] {
        let cron = Cron::utc(line).unwrap_or_else(|error| panic!("{error}"));
        // Windows has no times before the year 1601.
        let ages_ago = EPOCH.checked_sub(Duration::from_secs(1 << 40));
        let long_ago = EPOCH - Duration::from_secs(1 << 33);
        for after in [EPOCH, long_ago, EPOCH + Duration::from_secs(1 << 33)].into_iter().chain(ages_ago) {
            assert_eq!(cron.next_after(after), None, "{line}");
        }
        assert_eq!(cron.line(), line);
    }
    for line in ["0 0 30 2 MON", "0 0 31 * *", "0 0 29 2 +MON", "0 0 5 * +MON#1"] {
        assert!(Cron::utc(line).unwrap().next_after(EPOCH).is_some(), "{line}");
    }
}

// ---- the other forms ----

#[test]
fn d79_the_forms_of_other_systems_are_read() {
    same("  \t0 0 * * *\n", "0 0 * * *");
    same("0 0 ? * MON-FRI", "0 0 * * 1-5");
    same("0 0 1 * ?", "0 0 1 * *");
    same("0 0 * jan,Feb,MAR sun,Mon", "0 0 * 1-3 0,1");
    same("@Weekly", "0 0 * * 0");
    same("@annually", "0 0 1 1 *");
    same("0 0 12 ? * MON-FRI *", "0 12 * * 1-5");
    same("0 0/5 14,18 * * ?", "0-59/5 14,18 * * *");
    same("0 0 l * *", "0 0 L * *");
    same("0 0 lw * *", "0 0 LW * *");
    same("0 0 15w * *", "0 0 15W * *");
}
