//! `tourbillon durable inspect`.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use tourbillon_durable::store::{EmbeddedStore, ListFilter, RowState, Store, StoreCounts, TimerRow};

use super::InspectOptions;
use super::target::{OpenStore, ask, is_address, without_password};
use crate::text;

/// How many dead letters are shown.
const DEAD_LETTERS: usize = 5;

#[derive(Serialize)]
struct StoreInspection {
    store: String,
    opened_in_ms: u64,
    #[serde(flatten)]
    counts: StoreCounts,
    /// Rows that `--verify` has read.
    verified_rows: Option<u64>,
    /// The first dead letters.
    dead_letters: Vec<TimerRow>,
}

pub(super) fn run(options: &InspectOptions) -> Result<(), String> {
    let begin = Instant::now();
    let store = OpenStore::open(&options.store)?;
    let opened_in_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let counts = ask(|reply| store.counts(reply))?;
    let filter = ListFilter { state: Some(RowState::Dead), ..ListFilter::default() };
    let dead_letters = ask(|reply| store.list(filter, None, DEAD_LETTERS, reply))?.rows;
    store.close()?;
    drop(store);
    let verified_rows = options.verify.then(|| verify(&options.store.store)).transpose()?;
    let store = without_password(&options.store.store);
    let inspection = StoreInspection { store, opened_in_ms, counts, verified_rows, dead_letters };
    if options.json {
        println!("{}", serde_json::to_string(&inspection).map_err(|error| error.to_string())?);
    } else {
        inspection.print();
    }
    Ok(())
}

/// Reads every row of the store in a directory.
fn verify(store: &str) -> Result<u64, String> {
    if is_address(store) {
        return Err("--verify is for stores in directories: PostgreSQL verifies its own files (pg_amcheck)".to_owned());
    }
    let store = EmbeddedStore::open(Path::new(store)).map_err(|error| error.to_string())?;
    let report = ask(|reply| store.verify(reply))?;
    ask(|reply| store.close(reply))?;
    Ok(report.rows)
}

impl StoreInspection {
    fn print(&self) {
        println!("{}: opened in {} ms", self.store, self.opened_in_ms);
        let counts = &self.counts;
        let row = |what: &str, count: u64| println!("  {:>12}  {what}", text::count(count));
        row("pending", counts.armed);
        row("being delivered", counts.claimed);
        row("pending after a failed delivery", counts.failed);
        row("dead letters", counts.dead);
        for (kind, count) in &counts.overdue {
            row(&format!("of kind {kind} are due and wait for a process with a handler"), *count);
        }
        for letter in &self.dead_letters {
            let error = letter.last_error.as_deref().unwrap_or("no reason");
            println!("  dead letter {} of kind {}: {error}", letter.id.timer, letter.spec.kind);
        }
        if let Some(rows) = self.verified_rows {
            println!("  all {} rows were read, and all indexes agree", text::count(rows));
        }
        if counts.is_paused {
            println!("The store is paused: none of its timers is delivered before `tourbillon durable resume`.");
        }
    }
}
