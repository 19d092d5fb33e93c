//! Checks of the whole crate's threads: models (`loom`) and schedules (`shuttle`). Each page says how to run it.

#[cfg(loom)]
mod loom;
#[cfg(shuttle)]
mod shuttle;
