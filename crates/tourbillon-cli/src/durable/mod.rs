//! `tourbillon durable`: what operators do with stores of durable timers.
//!
//! The commands open a store without a node, so that they never own a shard and never deliver a timer.

mod files;
mod inspect;
mod target;

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};
use tourbillon_durable::store::Store;

use self::target::{OpenStore, ask, without_password};

/// The exit status of an import that did not write all rows, because other timers have their keys. Wrong arguments end with 2.
const HAS_CONFLICTS: u8 = 3;

/// The schema of a store in PostgreSQL, unless another is named.
const DEFAULT_SCHEMA: &str = "tourbillon";

#[derive(Subcommand)]
pub(crate) enum DurableCommand {
    /// Shows what a store has: timers, dead letters, kinds that wait for a handler, and whether it is paused.
    Inspect(InspectOptions),
    /// Copies a store in a directory into another directory. The copy is paused.
    Backup(CopyOptions),
    /// Restores a backup into another directory, and leaves it paused.
    Restore(RestoreOptions),
    /// Writes all timers of a store into a file, from which another store can import them.
    Export(ExportOptions),
    /// Reads an export into a store, and leaves the store paused.
    ///
    /// The exit status is 0 if all rows are in the store, 3 if some were not written because another timer has their key, and 1 after an error.
    Import(ImportOptions),
    /// Stops the delivery of all timers of a store, until it is resumed.
    ///
    /// Returns when every node of the store knows of the pause, or has lost its lease: a third of the lease of a node at most, unless one hangs.
    Pause(StoreOptions),
    /// Ends the pause of a store: its timers are delivered again.
    Resume(StoreOptions),
}

#[derive(Args)]
pub(crate) struct StoreOptions {
    /// The store: a directory, or `postgres://user:password@host/database`.
    #[arg(value_name = "DIR|URL")]
    store: String,
    /// The schema of a store in PostgreSQL.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEMA)]
    schema: String,
    /// Whether statements for PostgreSQL are prepared. A pooler in transaction mode that does not know them needs `false`.
    #[arg(long, value_name = "true|false", env = "TOURBILLON_PREPARED_STATEMENTS", default_value_t = true, action = ArgAction::Set)]
    prepared_statements: bool,
}

#[derive(Args)]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    store: StoreOptions,
    /// Reads every timer of a store in a directory, and verifies that all indexes agree.
    #[arg(long)]
    verify: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct CopyOptions {
    /// The directory of the store.
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// The directory of the copy, which must not exist or be empty.
    #[arg(value_name = "TO")]
    to: PathBuf,
}

#[derive(Args)]
pub(crate) struct RestoreOptions {
    #[command(flatten)]
    copy: CopyOptions,
    /// Ends the pause: timers are delivered as soon as a process opens the store.
    #[arg(long)]
    resume: bool,
}

#[derive(Args)]
pub(crate) struct ExportOptions {
    #[command(flatten)]
    store: StoreOptions,
    /// The file; `-` for the standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct ImportOptions {
    /// The file; `-` for the standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreOptions,
    /// Does not pause the store: timers that are due are delivered while the others are imported.
    #[arg(long)]
    resume: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs a command, and returns the exit status.
pub(crate) fn run(command: &DurableCommand) -> u8 {
    let done = match command {
        DurableCommand::Inspect(options) => inspect::run(options),
        DurableCommand::Backup(options) => files::backup(options),
        DurableCommand::Restore(options) => files::restore(options),
        DurableCommand::Export(options) => files::export(options),
        DurableCommand::Import(options) => match files::import(options) {
            Ok(conflicts) if conflicts > 0 => return HAS_CONFLICTS,
            done => done.map(drop),
        },
        DurableCommand::Pause(options) => pause(options),
        DurableCommand::Resume(options) => resume(options),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tourbillon durable: {error}");
            1
        }
    }
}

fn pause(options: &StoreOptions) -> Result<(), String> {
    let store = OpenStore::open(options)?;
    store.pause(options)?;
    store.close()?;
    println!("{} is paused: none of its timers is delivered.", without_password(&options.store));
    Ok(())
}

fn resume(options: &StoreOptions) -> Result<(), String> {
    let store = OpenStore::open(options)?;
    ask(|reply| store.set_paused(false, reply))?;
    store.close()?;
    println!("{} is not paused: its timers are delivered.", without_password(&options.store));
    Ok(())
}
