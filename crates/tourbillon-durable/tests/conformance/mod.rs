//! What every store has to do: the same stories and the same random operations for each of them.
//!
//! A test program of a store calls [`all`] with a function that makes an empty store. The stores have clocks of their own, so timers here are
//! either due long ago or far away.

pub(crate) mod ask;
mod listing;
mod missed;
pub(crate) mod random;
mod stories;

use std::sync::Arc;

use tourbillon_durable::store::Store;

/// Runs every story on a new store, and the random comparison on another.
pub(crate) fn all(new_store: impl Fn() -> Arc<dyn Store>) {
    for (name, story) in stories::ALL {
        println!("conformance: {name}");
        story(&*new_store());
    }
    random::compare_with_memory(&new_store);
}
