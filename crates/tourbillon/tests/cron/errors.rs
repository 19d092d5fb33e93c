//! Wrong lines and unknown zones.

use std::time::SystemTime;

use tourbillon::cron::CronField;
use tourbillon::{Cron, CronError};

use crate::random::Random;

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
            Err(CronError::Field { line: reported, field: named, at }) => {
                assert_eq!((&*reported, named, &line[at]), (line, field, wrong), "{line}");
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
        assert!(
            matches!(Cron::parse(line), Err(CronError::FieldCount { found: reported, .. }) if reported == found),
            "{line}"
        );
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
    let mut random = Random(crate::random::seed());
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
