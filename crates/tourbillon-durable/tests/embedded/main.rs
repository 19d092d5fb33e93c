//! The embedded store: what every store does, and what a directory on a disk can do to it.

#![cfg(feature = "embedded")]

mod backup;
mod closing;
#[path = "../conformance/mod.rs"]
mod conformance;
mod crash;
mod damage;
#[cfg(target_os = "linux")]
mod disks;
mod faults;
mod lists;
mod support;

use std::cell::RefCell;
use std::sync::Arc;

use tempfile::TempDir;

#[test]
fn q1_q2_q3_q4_q7_the_embedded_store_does_what_every_store_does() {
    let directories = RefCell::new(Vec::new());
    conformance::all(|| {
        let directory = TempDir::new().unwrap();
        let store = support::options().open(directory.path()).unwrap();
        directories.borrow_mut().push(directory);
        Arc::new(store)
    });
}
