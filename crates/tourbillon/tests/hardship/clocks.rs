//! The clocks of the process are set, and run on while it is suspended: in a time namespace of its own, where the kernel gives a process
//! its own monotonic and boot-time clocks. The clocks of the machine stay as they are.
//!
//! A process can enter another namespace only while it has one thread, so the clocks step under an engine that is turned from outside; a
//! driver thread can be started afterwards. The wall clock belongs to no namespace: its steps are tested on a manual clock
//! (`scheduler_cron.rs`).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tourbillon::{Clock, Driver, Engine};

use crate::audit::{Armed, TimerAudit};
use crate::child::{Child, child_part, report};
use crate::random::{Random, seed};
use crate::support::{ms, years};

const HOUR: i64 = 60 * 60;
const YEAR: i64 = 365 * 24 * HOUR;
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn p1_p5_after_146_years_of_uptime_timers_of_a_real_kernel_fire_as_before() {
    let test = "clocks::p1_p5_after_146_years_of_uptime_timers_of_a_real_kernel_fire_as_before";
    with_clocks_of_its_own(test, || {
        // The kernel accepts no more than 146 years, less the present uptime.
        for uptime in [100 * YEAR, 146 * YEAR] {
            Step::to(uptime, uptime).unwrap();
            for clock in [Clock::monotonic(), Clock::boot()] {
                let engine = Engine::builder().clock(clock).driver(Driver::external()).build().unwrap();
                assert!(engine.clock().now().as_nanos() >= uptime as u64 * 1_000_000_000, "the clock was not set");
            }
        }
        for clock in [Clock::monotonic(), Clock::boot()] {
            let engine = Engine::builder().clock(clock).build().unwrap();
            let mut audit = TimerAudit::new(&engine);
            for number in 1..=1000 {
                audit.arm(Duration::from_micros(100 * number));
                audit.arm(years(number % 300));
                audit.cancel_last();
            }
            audit.all_fire();
            let late_batches = audit.recovers();
            audit.check(&format!("146 years of uptime, {:?}, {late_batches} late batches", engine.clock()));
        }
    });
}

#[test]
fn p8_b8_a_suspend_passes_on_the_boot_time_clock_and_not_on_the_monotonic_one() {
    let test = "clocks::p8_b8_a_suspend_passes_on_the_boot_time_clock_and_not_on_the_monotonic_one";
    with_clocks_of_its_own(test, || {
        let [monotonic, boot] = [Clock::monotonic(), Clock::boot()].map(turned);
        let (mut awake, mut always) = (TimerAudit::new(&monotonic), TimerAudit::new(&boot));
        for audit in [&mut awake, &mut always] {
            audit.arm(30 * MINUTE);
            audit.arm(90 * MINUTE);
        }
        Step::by(0, HOUR).unwrap();
        turn(&monotonic);
        turn(&boot);
        assert_eq!((awake.woken(), always.woken()), (0, 1), "after a suspend of an hour");
        // An hour during which both clocks run.
        Step::by(HOUR, HOUR).unwrap();
        turn(&monotonic);
        turn(&boot);
        assert_eq!((awake.woken(), always.woken()), (1, 2), "after another hour awake");
        Step::by(HOUR, HOUR).unwrap();
        turn(&monotonic);
        awake.check("suspended for an hour, Clock::monotonic");
        always.check("suspended for an hour, Clock::boot");
    });
}

#[test]
fn p1_p2_p8_clocks_that_step_forward_and_back_make_no_timer_early_and_lose_none() {
    let test = "clocks::p1_p2_p8_clocks_that_step_forward_and_back_make_no_timer_early_and_lose_none";
    with_clocks_of_its_own(test, || {
        let mut random = Random(seed());
        // A start value that leaves room to go back.
        Step::to(YEAR, YEAR).unwrap();
        let engines = [Clock::boot(), Clock::monotonic()].map(turned);
        let mut ledgers = engines.each_ref().map(TimerAudit::new);
        let (mut forward, mut back) = (0, 0);
        for _ in 0..200 {
            for audit in &mut ledgers {
                (0..20).for_each(|_| _ = audit.arm(random.millis([2, 1000, 10_000_000])));
                if random.below(4) == 0 {
                    audit.cancel_some();
                }
            }
            // The kernel promises that the monotonic clock never goes back, and the engine relies on it.
            let step = Step::by(random.below(600) as i64, random.below(2 * HOUR as u64) as i64 - HOUR).unwrap();
            *(if step.boot < 0 { &mut back } else { &mut forward }) += 1;
            engines.iter().for_each(turn);
        }
        assert!(forward > 50 && back > 50, "too few steps in one direction");
        // A short timer is on time after all that, though the clock shows less than it has shown before.
        Step::by(0, -HOUR).unwrap();
        for (audit, engine) in ledgers.iter_mut().zip(&engines) {
            // A thread that has lost the processor for that long finds the deadline past, which is correct too.
            if audit.arm(ms(20)) == Armed::Pending {
                turn(engine);
                std::thread::sleep(ms(25));
                turn(engine);
                assert!(audit.last_has_fired(), "the timer that is due after the steps does not fire");
            }
        }
        Step::by(YEAR, YEAR).unwrap();
        engines.iter().for_each(turn);
        for (audit, engine) in ledgers.into_iter().zip(&engines) {
            audit.check(&format!("{:?} beside {forward} steps forward and {back} back", engine.clock()));
        }
    });
}

/// Returns an engine that this thread turns.
fn turned(clock: Clock) -> Engine {
    Engine::builder().clock(clock).driver(Driver::external()).build().unwrap()
}

/// Fires all due timers.
fn turn(engine: &Engine) {
    while engine.turn().more {}
}

/// Seconds by which the clocks of the process are ahead of the machine's, or by which they are set forward.
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

    /// Makes a new namespace with these offsets and enters it.
    fn to(monotonic: i64, boot: i64) -> io::Result<()> {
        // SAFETY: `NEWTIME` only selects the namespace of future children; it unshares no memory or descriptors of this process.
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

/// Runs the part in a process that has one thread and may set its own clocks; reports if the system refuses that.
fn with_clocks_of_its_own(test: &str, part: impl FnOnce()) {
    if child_part(test).is_none() {
        return Child::spawn(test, "sets its clocks").succeeds();
    }
    // SAFETY: the test's thread is the only one that uses the heap at this time, and the C library keeps the heap usable in a forked
    // process. The child ends by `_exit`, so it never returns into frames of the parent.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "{}", io::Error::last_os_error());
    if id == 0 {
        let is_well = catch_unwind(AssertUnwindSafe(|| match Step::by(HOUR, HOUR) {
            Ok(_) => part(),
            Err(error) => report(&format!("NOT TESTED with clocks of its own, time name spaces are refused: {error}")),
        }));
        // SAFETY: `_exit` ends the child at once; no destructor runs.
        unsafe { libc::_exit(i32::from(is_well.is_err())) };
    }
    let (_, status) = waitpid(Pid::from_raw(id), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}
