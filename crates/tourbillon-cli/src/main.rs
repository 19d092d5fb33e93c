//! The command `tourbillon`: see the README of this crate.

mod args;
mod check;
mod clock;
mod counting_allocator;
mod info;
mod json;
mod kernel_sleep;
mod machine;
mod text;

use std::process::exit;

use clap::Parser;

use crate::args::{Command, TourbillonArgs};

/// Ends the process by itself: threads that are stuck, which a check may have found, are not waited for.
fn main() {
    let cli = TourbillonArgs::parse();
    let status = match cli.command {
        None => check::run(&cli.check),
        Some(Command::Check(options)) => check::run(&options),
        Some(Command::Info(options)) => info::run(&options),
    };
    exit(status.into());
}
