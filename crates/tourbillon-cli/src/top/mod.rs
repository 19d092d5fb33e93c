//! `tourbillon top`: the engines of another process, each second.
//!
//! The process serves its counts (feature `inspect` of the crate `tourbillon`); a look asks for them once. Rates are differences between two
//! looks, divided by the time between them on the clock of the process that is watched.

mod client;
mod counts;
mod display;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use tourbillon::inspect::Address;

use self::client::LookError;
use self::counts::{Look, Rates};
use self::display::Display;
use crate::args::TopOptions;

/// The reason why watching ended before its time.
#[derive(Debug)]
enum TopError {
    /// The first look failed.
    Look(LookError),
    /// The process was seen, and then nobody listened any more.
    Ended { program: String, pid: u32 },
}

/// Watches a process until the time is over, and returns the exit status.
pub(crate) fn run(options: &TopOptions) -> u8 {
    match watch(options) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}

fn watch(options: &TopOptions) -> Result<(), TopError> {
    let address = &options.address;
    let mut display = Display::new(address, io::stdout().is_terminal());
    let mut before = client::look(address).map_err(TopError::Look)?;
    let started = Instant::now();
    loop {
        thread::sleep(options.every);
        let now = next_look(address, &before)?;
        // A process that has been started again begins to count anew.
        if let Some(rates) = Rates::between(&before, &now)
            && (!print(&display.frame(&now, &rates)) || options.once)
        {
            return Ok(());
        }
        if options.lasts.is_some_and(|lasts| started.elapsed() + options.every > lasts) {
            return Ok(());
        }
        before = now;
    }
}

/// Looks again. A process that was there and is not there any more has ended.
fn next_look(address: &Address, before: &Look) -> Result<Look, TopError> {
    client::look(address).map_err(|error| match error {
        LookError::NobodyListens { .. } => TopError::Ended { program: before.program.clone(), pid: before.pid },
        other => TopError::Look(other),
    })
}

/// Prints, and returns whether the reader is still there.
fn print(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// Parses the time between two looks.
pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = tourbillon_tools::duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&every) {
        return Ok(every);
    }
    Err("a look each 100ms to 1h; a second is the default".to_owned())
}

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopError::Look(error) => error.fmt(f),
            TopError::Ended { program, pid } => {
                write!(f, "{program} (pid {pid}) has ended, or has stopped serving its view")
            }
        }
    }
}
