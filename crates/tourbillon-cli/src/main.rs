//! The command `tourbillon`; the README of this crate describes it.

mod args;
mod check;
mod clock;
mod counting_allocator;
#[cfg(feature = "durable")]
mod durable;
mod html;
mod info;
mod json;
mod kernel_sleep;
#[cfg(feature = "serve")]
mod key;
mod machine;
#[cfg(feature = "serve")]
mod serve;
mod text;
#[cfg(feature = "client")]
mod timer;
mod top;

use std::process::exit;

use clap::Parser;

use crate::args::{Command, TourbillonArgs};

/// Exits without waiting for stuck threads, which a check may have found.
fn main() {
    let cli = TourbillonArgs::parse();
    let status = match cli.command {
        None => check::run(&cli.check),
        Some(Command::Check(options)) => check::run(&options),
        Some(Command::Info(options)) => info::run(&options),
        Some(Command::Top(options)) => top::run(&options),
        #[cfg(feature = "durable")]
        Some(Command::Durable(command)) => durable::run(&command),
        #[cfg(feature = "serve")]
        Some(Command::Serve(options)) => serve::run(&options),
        #[cfg(feature = "client")]
        Some(Command::Timer(options)) => timer::run(&options),
        #[cfg(feature = "serve")]
        Some(Command::Key(options)) => key::run(&options),
    };
    exit(status.into());
}
