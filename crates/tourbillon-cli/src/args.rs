//! The command line: its options, their limits, and the errors for bad values.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand};
use tourbillon::inspect::Address;
use tourbillon_tools::duration;

use crate::check::Promise;
use crate::clock::nanos;
use crate::machine;
use crate::text;
use crate::top;

/// Timers that keep their promises, checked on your own machine.
#[derive(Parser)]
#[command(name = "tourbillon", version, args_conflicts_with_subcommands = true, after_help = promises())]
pub(crate) struct TourbillonArgs {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) check: CheckOptions,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Arms timers of every kind, and counts whether they keep their promises. This is the default command.
    #[command(after_help = promises())]
    Check(CheckOptions),
    /// Shows what this machine offers to timers.
    Info(InfoOptions),
    /// Shows the timers of a running process each second: armed, fired, cancelled, pending, lateness and CPU.
    Top(TopOptions),
    /// Looks into stores of durable timers, copies them, and moves timers between them.
    #[cfg(feature = "durable")]
    #[command(subcommand)]
    Durable(crate::durable::DurableCommand),
    /// Serves durable timers over HTTP: create, cancel, webhooks, queues, and a page to watch them.
    #[cfg(feature = "serve")]
    Serve(crate::serve::ServeOptions),
    /// Creates, cancels, finds and watches the timers of a server.
    #[cfg(feature = "client")]
    Timer(crate::timer::TimerOptions),
    /// Makes, lists and revokes API keys of the service.
    #[cfg(feature = "serve")]
    Key(crate::key::KeyOptions),
}

#[derive(Args, Clone)]
pub(crate) struct CheckOptions {
    /// How long to check: 200ms to 24h.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = lasts)]
    pub(crate) lasts: Duration,
    /// Number of sleeps pending at a time.
    #[arg(long, value_name = "N", default_value = "100000", value_parser = timers)]
    pub(crate) timers: usize,
    /// Number of threads that arm sleeps; one per core by default, and at least two.
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Decides what is armed, when, and by which thread; a new one each time by default.
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Plants a fault that breaks this promise, P1 to P11, to show that the check finds it.
    #[arg(long = "break", value_name = "PROMISE", value_parser = str::parse::<Promise>)]
    pub(crate) broken: Option<Promise>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also writes the report to this file, as a page that stands alone.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct InfoOptions {
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct TopOptions {
    /// Where the process serves its view: a loopback address with a port, or the path of a Unix socket.
    #[arg(value_name = "ADDRESS", value_parser = str::parse::<Address>)]
    pub(crate) address: Address,
    /// Time between two looks: 100ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = top::every)]
    pub(crate) every: Duration,
    /// Shows what happened between two looks, and ends.
    #[arg(long)]
    pub(crate) once: bool,
    /// Ends after this time; by default when the process ends, or with Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) lasts: Option<Duration>,
}

const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const MAX_TIMERS: usize = 10_000_000;
const MAX_THREADS: usize = 1_024;
/// Bytes of a pending sleep in a check, with its waker and its record.
const BYTES_PER_TIMER: u64 = 320;

impl CheckOptions {
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| machine::cores().max(2))
    }

    /// Returns the seed; a new one each time by default.
    pub(crate) fn seed(&self) -> u64 {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.seed.unwrap_or_else(|| nanos(now()) % 1_000_000_000)
    }
}

/// Returns the end of the help.
fn promises() -> String {
    format!("The promises that `check` checks:\n{}", Promise::list())
}

fn lasts(text: &str) -> Result<Duration, String> {
    let lasts = duration(text).map_err(|error| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&lasts) {
        return Ok(lasts);
    }
    Err("a check lasts from 200ms to 24h; ten seconds tell a lot".to_owned())
}

fn timers(text: &str) -> Result<usize, String> {
    let timers = number(text, "timers", MAX_TIMERS)?;
    let needed = timers as u64 * BYTES_PER_TIMER;
    match machine::available_memory() {
        Some(available) if needed > available / 2 => Err(format!(
            "{timers} timers need about {}, and only {} of memory are available",
            text::bytes(needed),
            text::bytes(available)
        )),
        _ => Ok(timers),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    number(text, "threads", MAX_THREADS)
}

/// Parses a number from 1 to `most`.
fn number(text: &str, what: &str, most: usize) -> Result<usize, String> {
    let limits = || format!("there must be 1 to {} {what}", text::count(most as u64));
    let number: usize = text.replace(['_', ','], "").parse().map_err(|_| limits())?;
    if (1..=most).contains(&number) { Ok(number) } else { Err(limits()) }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a seed is a whole number, as a run prints it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_times_have_units_and_limits() {
        assert_eq!(lasts("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(lasts("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(lasts("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(lasts("2m"), Ok(Duration::from_secs(120)));
        assert_eq!((lasts("200ms"), lasts("24h")), (Ok(SHORTEST), Ok(LONGEST)));
        for bad in
            ["199ms", "24.001h", "0s", "10", "", "s", "-1s", "1e99h", "1.2.3s", "25h", "99999999999999999999999h"]
        {
            assert!(lasts(bad).is_err(), "{bad}");
        }
        assert_eq!(
            lasts("10"),
            duration("10").map_err(|error| error.to_string()),
            "an error for a missing unit lists the units"
        );
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(timers("1_000"), Ok(1_000));
        assert_eq!(threads("2"), Ok(2));
        for bad in ["0", "-1", "many", "1.5", "100000000000000000000"] {
            assert!(timers(bad).is_err() && threads(bad).is_err(), "{bad}");
        }
        assert!(timers("10000001").is_err() && threads("1025").is_err());
    }

    #[test]
    fn nothing_said_is_check_and_flags_need_no_subcommand() {
        let cli = TourbillonArgs::try_parse_from(["tourbillon", "--for", "2s", "--seed", "7"])
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(cli.command.is_none() && cli.check.lasts == Duration::from_secs(2) && cli.check.seed() == 7);
    }
}
