//! `tourbillon durable backup`, `restore`, `export` and `import`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use tourbillon_durable::transfer;

use super::target::{OpenStore, ask, is_address};
use super::{CopyOptions, ExportOptions, ImportOptions, RestoreOptions, Store};
use crate::text;

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

pub(super) fn import(options: &ImportOptions) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", options.file.display());
    let open = || File::open(&options.file).map(BufReader::new).map_err(failed);
    if !is_standard(&options.file) {
        // Nothing is written if the file is not complete.
        transfer::verify(&mut open()?).map_err(|error| format!("{}: {error}", options.file.display()))?;
    }
    let store = OpenStore::open_or_create(&options.store)?;
    if !options.resume {
        ask(|reply| store.set_paused(true, reply))?;
    }
    let bar = progress();
    let mut tell = |rows| bar.set_position(rows);
    let imported = match is_standard(&options.file) {
        true => transfer::import(&*store, &mut io::stdin().lock(), &mut tell),
        false => transfer::import(&*store, &mut open()?, &mut tell),
    };
    let imported = imported.map_err(|error| error.to_string())?;
    store.close()?;
    bar.finish_and_clear();
    if options.json {
        println!("{}", serde_json::to_string(&imported).map_err(|error| error.to_string())?);
        return Ok(());
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
    Ok(())
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
