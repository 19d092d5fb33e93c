//! Zones that the system's database lacks.

use std::process::Command;

use tourbillon::Cron;

/// Set in the process whose system has one zone.
const VARIABLE: &str = "TOURBILLON_TEST_ONE_ZONE";

#[test]
fn u6_a_zone_that_the_system_lacks_is_taken_from_the_copy_in_the_program() {
    if std::env::var_os(VARIABLE).is_some() {
        assert!(jiff::tz::TimeZone::get("Europe/Berlin").is_err(), "the system has UTC only");
        let cron = Cron::utc("30 2 * * *").unwrap().in_zone("Europe/Berlin").unwrap();
        assert_eq!(super::next(&cron, "2026-11-17T00:00:00Z"), "2026-11-17 02:30:00 +01:00");
        assert!(Cron::utc("30 2 * * *").unwrap().in_zone("No/Such").is_err());
        return;
    }
    // The header of the format, with one type of local time and a name of four bytes; then the type, UTC, and its name.
    let mut utc = b"TZif".to_vec();
    utc.extend([0; 16]);
    for count in [0_u32, 0, 0, 0, 1, 4] {
        utc.extend(count.to_be_bytes());
    }
    utc.extend([0; 6]);
    utc.extend(b"UTC\0");
    let zones = std::env::temp_dir().join(format!("tourbillon-one-zone-{}", std::process::id()));
    std::fs::create_dir_all(&zones).unwrap();
    std::fs::write(zones.join("UTC"), utc).unwrap();
    let test = std::thread::current().name().unwrap().to_owned();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .env(VARIABLE, "1")
        .env("TZDIR", &zones)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&zones).unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "the child has run the test");
}
