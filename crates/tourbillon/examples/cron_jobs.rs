//! Cron lines: when some of them are due next, in several time zones, and a job that follows one (on Linux).
//!
//!     cargo run -p tourbillon --features cron --example cron_jobs

use std::sync::mpsc;
use std::time::SystemTime;

use jiff::Timestamp;
use tourbillon::Cron;
use tourbillon::scheduler::{Plan, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    print_next_times()?;
    print_summer_time()?;

    // The error of a wrong line shows where it is wrong, and what is allowed there.
    let error = Cron::parse("0 9-17 * * MON-FRY").unwrap_err();
    println!("\n{error}");
    assert!(error.to_string().contains("MON-FRY"));

    run_each_second()
}

fn print_next_times() -> Result<(), Box<dyn std::error::Error>> {
    let now = SystemTime::now();
    for (line, zone) in [
        ("*/15 9-17 * * MON-FRI", "Europe/Berlin"),
        ("30 2 * * *", "America/New_York"),
        ("0 0 L * *", "Asia/Kathmandu"),
        ("0 12 * * FRI#2", "Australia/Lord_Howe"),
        ("@hourly", "UTC"),
    ] {
        let cron = Cron::parse(line)?.in_zone(zone)?;
        println!("{cron}:");
        let mut last = now;
        for _ in 0..3 {
            let next = cron.next_after(last).ok_or("there is a next time")?;
            assert!(next > last, "strictly later");
            println!("    {}", shown(next, &cron)?);
            last = next;
        }
    }
    Ok(())
}

/// On 28 March 2027 the clocks of Berlin go from 2:00 to 3:00. A job for half past two is due at 3:00 on that day.
fn print_summer_time() -> Result<(), Box<dyn std::error::Error>> {
    let nightly = Cron::parse("30 2 * * *")?.in_zone("Europe/Berlin")?;
    let mut time: SystemTime = "2027-03-27T00:00:00+01:00".parse::<Timestamp>()?.into();
    println!("\n{nightly}, when summer time begins:");
    for expected in ["2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"] {
        time = nightly.next_after(time).ok_or("there is a next time")?;
        println!("    {}", shown(time, &nightly)?);
        assert_eq!(time, SystemTime::from(expected.parse::<Timestamp>()?));
    }
    Ok(())
}

/// Formats a time as the local clock of the line's zone shows it.
fn shown(time: SystemTime, cron: &Cron) -> Result<String, jiff::Error> {
    let zoned = Timestamp::try_from(time)?.to_zoned(cron.time_zone().clone());
    Ok(zoned.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
}

fn run_each_second() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = Scheduler::builder().threads(1).build()?;
    let (sender, receiver) = mpsc::channel();
    let cron = Cron::parse("* * * * * *")?;
    scheduler.schedule("each second", Plan::cron(cron.clone()).times(2), move |run| {
        sender.send((run.number(), run.due_wall(), run.due().elapsed())).unwrap();
    })?;
    let first = scheduler.next_run_wall("each second");
    println!("\nthe first run is due {}", shown(first.ok_or("it is scheduled")?, &cron)?);

    // The job is removed after its second run, which drops the sender.
    let runs: Vec<_> = receiver.iter().collect();
    for (number, due, late) in &runs {
        let due = due.ok_or("the job follows a cron line")?;
        println!("run {number}, due {}, {late:?} late", shown(due, &cron)?);
        assert_eq!(due.duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos(), 0, "a whole second");
    }
    assert_eq!(runs.len(), 2);
    Ok(())
}
