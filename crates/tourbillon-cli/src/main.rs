//! The command `tourbillon`: see the README of this crate.

mod args;
mod check;
mod clock;
mod info;
mod json;
mod machine;
mod memory;
mod nap;
mod text;

use std::process::exit;

use clap::Parser;

use crate::args::{Cli, Command};

/// Ends the process by itself: threads that are stuck, which a check may have found, are not waited for.
fn main() {
    let cli = Cli::parse();
    let status = match cli.command {
        None => check::run(&cli.check),
        Some(Command::Check(options)) => check::run(&options),
        Some(Command::Info(options)) => info::run(&options),
    };
    exit(status.into());
}
