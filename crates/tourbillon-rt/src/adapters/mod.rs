//! Connections and tasks for other crates, each behind a feature of the same name.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
