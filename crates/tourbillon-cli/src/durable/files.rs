//! `tourbillon durable backup`, `restore`, `export` and `import`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, IsTerminal, Read, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use tourbillon_durable::transfer::{self, TransferError};

use super::target::{OpenStore, ask, is_address};
use super::{CopyOptions, ExportOptions, ImportOptions, RestoreOptions, Store};
use crate::text;

/// The most bytes of an export that are read before its first line is verified.
const LONGEST_FIRST_LINE: u64 = 1 << 16;

pub(super) fn backup(options: &CopyOptions) -> Result<(), String> {
    let rows = copy(options, OpenStore::existing)?;
    println!("{} rows are in {}. The copy is paused until it is resumed.", text::count(rows), options.to.display());
    Ok(())
}

pub(super) fn restore(options: &RestoreOptions) -> Result<(), String> {
    let CopyOptions { to, .. } = &options.copy;
    let rows = copy(&options.copy, OpenStore::backup)?;
    println!("{} rows are restored to {}.", text::count(rows), to.display());
    if options.resume {
        let store = OpenStore::existing(to)?;
        ask(|reply| store.set_paused(false, reply))?;
        store.close()?;
        println!("Its timers are delivered as soon as a process opens it.");
    } else {
        println!("It is paused. When it may deliver: tourbillon durable resume {}", to.display());
    }
    Ok(())
}

/// Copies a store into another directory, and returns the number of rows.
fn copy(options: &CopyOptions, open: impl Fn(&Path) -> Result<OpenStore, String>) -> Result<u64, String> {
    if [&options.from, &options.to].iter().any(|place| place.to_str().is_some_and(is_address)) {
        return Err("a backup is of a store in a directory. A store in PostgreSQL is backed up with pg_dump, or with \
                    `tourbillon durable export` and `import`"
            .to_owned());
    }
    let store = open(&options.from)?;
    let rows = ask(|reply| store.backup(options.to.clone(), reply))?;
    store.close()?;
    Ok(rows)
}

pub(super) fn export(options: &ExportOptions) -> Result<(), String> {
    let store = OpenStore::open(&options.store)?;
    let bar = progress();
    let rows = if is_standard(&options.file) {
        write_export(&*store, &mut io::stdout().lock(), &bar)?
    } else {
        export_file(&*store, &options.file, &bar)?
    };
    store.close()?;
    bar.finish_and_clear();
    eprintln!("{} rows were exported.", text::count(rows));
    Ok(())
}

/// Writes to a file beside the one that is wanted, which gets its name when it is complete.
fn export_file(store: &dyn Store, file: &Path, bar: &ProgressBar) -> Result<u64, String> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let mut out = BufWriter::new(File::create(&partial).map_err(failed)?);
    let rows = write_export(store, &mut out, bar)?;
    out.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
    fs::rename(&partial, file).map_err(failed)?;
    Ok(rows)
}

fn write_export(store: &dyn Store, out: &mut dyn Write, bar: &ProgressBar) -> Result<u64, String> {
    transfer::export(store, out, &mut |rows| bar.set_position(rows)).map_err(|error| error.to_string())
}

/// Imports an export, and returns how many rows were not written, because another timer has their key.
pub(super) fn import(options: &ImportOptions) -> Result<u64, String> {
    // The store is opened and paused when this is an export: whole, unless it can be read only once.
    let mut input = open_export(&options.file).map_err(|error| format!("{}: {error}", options.file.display()))?;
    let store = OpenStore::open_or_create(&options.store)?;
    if !options.resume {
        store.pause(&options.store)?;
    }
    let bar = progress();
    let imported = transfer::import(&*store, &mut input, &mut |rows| bar.set_position(rows));
    bar.finish_and_clear();
    let imported = imported.map_err(|error| error.to_string()).and_then(|imported| store.close().map(|()| imported));
    let imported = imported.map_err(|error| match options.resume {
        true => error,
        false => options.store.paused_and(&error),
    })?;
    if options.json {
        println!("{}", serde_json::to_string(&imported).map_err(|error| error.to_string())?);
        return Ok(imported.conflicts);
    }
    let [rows, written, existing] = [imported.rows, imported.written, imported.existing].map(text::count);
    let ended =
        if imported.ended > 0 { format!(", {} ended before", text::count(imported.ended)) } else { String::new() };
    println!("{rows} rows: {written} written, {existing} there already{ended}.");
    if imported.conflicts > 0 {
        println!("{} were not written, because another timer has their key:", text::count(imported.conflicts));
        for (id, holder) in &imported.first_conflicts {
            println!("  {id}, whose key {holder} has");
        }
    }
    if !options.resume {
        println!("The store is paused. When it may deliver: {}", options.store.resume_command());
    }
    Ok(imported.conflicts)
}

/// Opens an export after verifying it: a file whole, the standard input as far as its first line.
fn open_export(file: &Path) -> Result<Box<dyn BufRead>, TransferError> {
    let failed = |error: io::Error| TransferError::Io(error.to_string());
    if !is_standard(file) {
        let open = || File::open(file).map(BufReader::new).map_err(failed);
        transfer::verify(&mut open()?)?;
        return Ok(Box::new(open()?));
    }
    let mut input = BufReader::new(io::stdin());
    let mut first = Vec::new();
    input.by_ref().take(LONGEST_FIRST_LINE).read_until(b'\n', &mut first).map_err(failed)?;
    match transfer::verify(&mut &first[..]) {
        // As it must be: the rows follow.
        Ok(_) | Err(TransferError::Incomplete(0)) => Ok(Box::new(Cursor::new(first).chain(input))),
        Err(error) => Err(error),
    }
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Returns a count of rows that is shown on a terminal.
fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
