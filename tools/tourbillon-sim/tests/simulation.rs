//! Runs the simulation for a few seconds, and checks that it finds planted faults.

use std::time::{Duration, Instant, SystemTime};

use tourbillon_sim::cron_reference::{CronPace, CronReference, ReferenceLine};
use tourbillon_sim::plan::SimPlan;
use tourbillon_sim::planted_fault::{ALL, PlantedFault};
use tourbillon_sim::random_source::RandomSource;
use tourbillon_sim::totals::Totals;
use tourbillon_sim::watchdog::{self, HANGS};
use tourbillon_sim::{report, shrink, world};
use tourbillon_tools::Random;

const STEPS: usize = 400;

/// Runs the world of a seed, and panics with the command that repeats it if it breaks a promise or hangs.
fn run(seed: u64) -> (Totals, u64) {
    let plan = SimPlan::new(seed, STEPS);
    let ran = watchdog::run(&plan, None, HANGS).unwrap_or_else(|| panic!("seed {seed} hangs"));
    if let Some(failure) = ran.failure {
        let shrunk = shrink::shrink(&plan, None, failure);
        panic!("{}", report::failure(&shrunk, STEPS, None));
    }
    (ran.totals, ran.hash)
}

#[test]
fn p1_to_p7_hold_in_the_worlds_of_fixed_seeds() {
    (0..300).for_each(|seed| _ = run(seed));
}

/// Worlds in which a model once reported a fault that was none, each with the relevant steps.
const RARE: [(u64, &[usize]); 4] = [
    // A callback drops a group of timers. A scheduler gets the group's slot, and takes it in the next turn.
    (13107250077256932474, &[27, 30, 63, 96, 98, 104]),
    // A stopped group gets the first of two slots and passes it on, before the timeout that has the second is woken.
    (10513356813289271531, &[21, 33, 50, 80, 223, 229, 231, 236, 237, 240, 245, 248]),
    // The same with intervals.
    (12404106180313026757, &[31, 148, 157, 161, 162, 163, 164, 167, 169, 170, 173, 178, 183, 184]),
    // A run stops its scheduler, and a paused run by the other clock was queued before it.
    (11506723095248909001, &[175, 177, 178, 257, 259, 261, 263, 264, 296, 320]),
];

#[test]
fn p1_to_p7_hold_in_worlds_of_rare_events() {
    for (seed, keep) in RARE {
        let ran = world::run(&SimPlan::new(seed, STEPS).only(keep), None);
        assert_eq!(ran.failure.map(|failure| failure.violation), None, "seed {seed}, steps {keep:?}");
        run(seed);
    }
}

#[test]
fn p1_to_p7_hold_in_worlds_that_nobody_has_seen_before() {
    let first = match std::env::var("TOURBILLON_SEED") {
        Ok(text) => text.parse().expect("TOURBILLON_SEED is a number"),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64),
    };
    println!("to repeat this: TOURBILLON_SEED={first}");
    let (mut random, mut totals, start) = (Random::new(first), Totals::default(), Instant::now());
    // However slow the machine is, there are enough worlds for each kind of event.
    while start.elapsed() < Duration::from_secs(3) || totals.runs < 100 {
        totals += &run(random.any()).0;
    }
    println!("{}", report::table(&totals, start.elapsed()));
    assert!(totals.fires > 0 && totals.cancels > 0 && totals.stops > 0 && totals.jobs > 0, "nothing happened");
}

#[test]
fn b6_one_seed_is_one_run_to_the_last_wake() {
    for seed in 1000..1100 {
        let (before, after) = (run(seed), run(seed));
        assert_eq!(before, after, "seed {seed}");
    }
}

/// Runs worlds until one breaks a promise, and shortens its plan.
fn find(broken: PlantedFault) -> shrink::Shrunk {
    let found = (0..2000).find_map(|seed| {
        let plan = SimPlan::new(seed, STEPS);
        let failure = world::run(&plan, Some(broken)).failure?;
        Some(shrink::shrink(&plan, Some(broken), failure))
    });
    found.unwrap_or_else(|| panic!("{broken:?} was not found in 2000 worlds"))
}

#[test]
fn every_fault_that_is_planted_is_found_and_shrunk() {
    for broken in ALL {
        let shrunk = find(broken);
        println!("{}\n", report::failure(&shrunk, STEPS, Some(broken)));
        let most = if broken == PlantedFault::P6 { 100 } else { 12 };
        assert!(shrunk.plan.steps.len() <= most, "{broken:?} takes {} steps", shrunk.plan.steps.len());
        // The printed steps fail again.
        let keep: Vec<usize> = shrunk.plan.steps.iter().map(|(number, _)| *number).collect();
        let again = world::run(&SimPlan::new(shrunk.plan.seed, STEPS).only(&keep), Some(broken));
        assert_eq!(again.failure.map(|failure| failure.violation), Some(shrunk.failure.violation));
    }
}

#[test]
fn p10_a_world_that_hangs_is_noticed() {
    let plan = SimPlan::new(1, STEPS);
    assert!(watchdog::run(&plan, None, HANGS).is_some());
    assert!(watchdog::run(&plan, Some(PlantedFault::P10), Duration::from_millis(500)).is_none());
}

#[test]
fn a8_a_line_is_due_when_a_local_clock_shows_it_or_has_passed_it() {
    let line = |seed: u64| ReferenceLine::random(&mut RandomSource::from_seed(seed), CronPace::Days);
    let nightly = (0..).map(line).find(|line| line.text() == "30 2 * * *" && line.zone == "Europe/Berlin");
    let mut reference = CronReference::new(nightly.expect("there is such a line"));
    // 2024-03-31 01:00 UTC, where the local clock skips the hour from two to three; and the night after.
    let spring = 1_711_846_800;
    let due = |reference: &mut CronReference, after: u64| reference.next(after * 1_000_000_000) / 1_000_000_000;
    assert_eq!(due(&mut reference, spring - 7200), spring);
    assert_eq!(due(&mut reference, spring), spring + 24 * 3600 - 1800);
    // 2024-10-27 01:00 UTC, where the local clock shows that hour twice: the line is due the first time.
    let autumn = 1_729_990_800;
    assert_eq!(due(&mut reference, autumn - 7200), autumn - 1800);
    assert_eq!(due(&mut reference, autumn - 1800), autumn + 24 * 3600 + 1800);
}

#[test]
fn p5_some_worlds_are_a_hundred_years_old_and_some_near_the_end_of_their_clock() {
    let starts: Vec<u64> = (0..500).map(|seed| SimPlan::new(seed, 0).setup.start).collect();
    let year = tourbillon_sim::plan::YEAR;
    assert!(starts.iter().any(|start| *start >= 100 * year && *start < 101 * year));
    assert!(starts.iter().any(|start| *start > u64::MAX - 100 * year / 1000));
}
