//! The clocks of the process are set, and run on while it is suspended: in a time name space of its own, where the kernel lets a
//! process have its own monotonic and boot-time clocks. The machine's are left alone.
//!
//! A process can move to another name space while it has one thread, so the clocks step under an engine that is turned
//! from outside; a driver thread can be started afterwards. The wall clock belongs to no name space: its steps are tested on a manual clock
//! (`scheduler_cron.rs`), and from the driver's alarm on upwards (`steps.rs`).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tourbillon::{Clock, Driver, Engine};

use crate::apart::{Child, part_of, report};
use crate::ledger::{Armed, Ledger};
use crate::random::{Random, seed};
use crate::support::{ms, years};

const HOUR: i64 = 60 * 60;
const YEAR: i64 = 365 * 24 * HOUR;
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn p1_p5_after_a_hundred_years_of_uptime_timers_of_a_real_kernel_fire_as_ever() {
    let test = "clocks::p1_p5_after_a_hundred_years_of_uptime_timers_of_a_real_kernel_fire_as_ever";
    with_clocks_of_its_own(test, || {
        // The kernel takes no more than 146 years; time may stand at any of them.
        for uptime in [100 * YEAR, 146 * YEAR] {
            Step::to(uptime, uptime).unwrap();
            for clock in [Clock::monotonic(), Clock::boot()] {
                let engine = Engine::builder().clock(clock).driver(Driver::external()).build().unwrap();
                assert!(engine.clock().now().as_nanos() >= uptime as u64 * 1_000_000_000, "the clock was not set");
            }
        }
        for clock in [Clock::monotonic(), Clock::boot()] {
            let engine = Engine::builder().clock(clock).build().unwrap();
            let mut ledger = Ledger::new(&engine);
            for number in 1..=1000 {
                ledger.arm(Duration::from_micros(100 * number));
                ledger.arm(years(number % 300));
                ledger.cancel_last();
            }
            ledger.all_fire();
            let late_batches = ledger.recovers();
            ledger.balance(&format!("146 years of uptime, {:?}, {late_batches} late batches", engine.clock()));
        }
    });
}

#[test]
fn p8_b8_a_suspend_passes_on_the_boot_time_clock_and_not_on_the_monotonic_one() {
    let test = "clocks::p8_b8_a_suspend_passes_on_the_boot_time_clock_and_not_on_the_monotonic_one";
    with_clocks_of_its_own(test, || {
        let [monotonic, boot] = [Clock::monotonic(), Clock::boot()].map(turned);
        let (mut awake, mut always) = (Ledger::new(&monotonic), Ledger::new(&boot));
        for ledger in [&mut awake, &mut always] {
            ledger.arm(30 * MINUTE);
            ledger.arm(90 * MINUTE);
        }
        Step::by(0, HOUR).unwrap();
        turn(&monotonic);
        turn(&boot);
        assert_eq!((awake.woken(), always.woken()), (0, 1), "after an hour of suspend");
        // An hour during which both run.
        Step::by(HOUR, HOUR).unwrap();
        turn(&monotonic);
        turn(&boot);
        assert_eq!((awake.woken(), always.woken()), (1, 2), "and an hour awake");
        Step::by(HOUR, HOUR).unwrap();
        turn(&monotonic);
        awake.balance("suspended for an hour, Clock::monotonic");
        always.balance("suspended for an hour, Clock::boot");
    });
}

#[test]
fn p1_p2_p8_clocks_that_step_to_and_fro_make_nothing_early_and_lose_nothing() {
    let test = "clocks::p1_p2_p8_clocks_that_step_to_and_fro_make_nothing_early_and_lose_nothing";
    with_clocks_of_its_own(test, || {
        let mut random = Random(seed());
        // So that there is room to go back.
        Step::to(YEAR, YEAR).unwrap();
        let engines = [Clock::boot(), Clock::monotonic()].map(turned);
        let mut ledgers = engines.each_ref().map(Ledger::new);
        let (mut forward, mut back) = (0, 0);
        for _ in 0..200 {
            for ledger in &mut ledgers {
                (0..20).for_each(|_| _ = ledger.arm(random.millis([2, 1000, 10_000_000])));
                if random.below(4) == 0 {
                    ledger.cancel_some();
                }
            }
            // The kernel's word is that the monotonic clock never goes back, and the engine relies on it.
            let step = Step::by(random.below(600) as i64, random.below(2 * HOUR as u64) as i64 - HOUR).unwrap();
            *(if step.boot < 0 { &mut back } else { &mut forward }) += 1;
            engines.iter().for_each(turn);
        }
        assert!(forward > 50 && back > 50, "a one-sided story");
        // A short one is on time after all that, though time stands before what has been.
        Step::by(0, -HOUR).unwrap();
        for (ledger, engine) in ledgers.iter_mut().zip(&engines) {
            // Whoever has lost the processor for so long finds it past, which is right too.
            if ledger.arm(ms(20)) == Armed::Pending {
                turn(engine);
                std::thread::sleep(ms(25));
                turn(engine);
                assert!(ledger.last_has_fired(), "what is due after the steps does not fire");
            }
        }
        Step::by(YEAR, YEAR).unwrap();
        engines.iter().for_each(turn);
        for (ledger, engine) in ledgers.into_iter().zip(&engines) {
            ledger.balance(&format!("{:?} beside {forward} steps forward and {back} back", engine.clock()));
        }
    });
}

/// An engine that is turned here.
fn turned(clock: Clock) -> Engine {
    Engine::builder().clock(clock).driver(Driver::external()).build().unwrap()
}

/// Fires all that is due.
fn turn(engine: &Engine) {
    while engine.turn().more {}
}

/// How far the process's own clocks are ahead of the machine's, or are set forward, in seconds.
struct Step {
    monotonic: i64,
    boot: i64,
}

impl Step {
    fn by(monotonic: i64, boot: i64) -> io::Result<Step> {
        let now = Step::current()?;
        Step::to(now.monotonic + monotonic, now.boot + boot)?;
        Ok(Step { monotonic, boot })
    }

    /// A new name space, and into it.
    fn to(monotonic: i64, boot: i64) -> io::Result<()> {
        // SAFETY: it says where children go, and takes nothing from this process.
        unsafe { unshare_unsafe(UnshareFlags::NEWTIME) }?;
        fs::write("/proc/self/timens_offsets", format!("monotonic {monotonic} 0\nboottime {boot} 0\n"))?;
        let name_space = File::open("/proc/self/ns/time_for_children")?;
        Ok(move_into_link_name_space(name_space.as_fd(), Some(LinkNameSpaceType::Time))?)
    }

    fn current() -> io::Result<Step> {
        let text = fs::read_to_string("/proc/self/timens_offsets")?;
        let of = |clock| {
            let line = text.lines().find_map(|line| line.strip_prefix(clock));
            line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok()).ok_or(io::ErrorKind::InvalidData)
        };
        Ok(Step { monotonic: of("monotonic")?, boot: of("boottime")? })
    }
}

/// Plays this in a process that has one thread and may set its own clocks; or reports that there is none to be had.
fn with_clocks_of_its_own(test: &str, part: impl FnOnce()) {
    if part_of(test).is_none() {
        return Child::play(test, "sets its clocks").succeeds();
    }
    // SAFETY: the test's thread is the only one that uses the heap at this time, and the C library lets a forked process
    // use it anyway; the child returns from nothing that the parent has begun.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "{}", io::Error::last_os_error());
    if id == 0 {
        let is_well = catch_unwind(AssertUnwindSafe(|| match Step::by(HOUR, HOUR) {
            Ok(_) => part(),
            Err(error) => report(&format!("NOT TESTED with clocks of its own, time name spaces are refused: {error}")),
        }));
        // SAFETY: it ends the process, at once.
        unsafe { libc::_exit(i32::from(is_well.is_err())) };
    }
    let (_, status) = waitpid(Pid::from_raw(id), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}
