//! A deterministic simulation of Tourbillon: threads, executors, drivers, clocks and faults, all from one seed, compared after
//! every step with a model of the promises.
//!
//! ```text
//!     seed --> Plan { setup, steps } --> World --- steps --> actors --- use ---> tourbillon
//!                    ^                     |                                        |  wakes, calls, runs
//!                    |                     v                                        v
//!                 shrink <--- fails --- Model <---------- what was seen ----------- Hub
//! ```
//!
//! - [`plan`]: what a world is made of and what happens in it, known beforehand
//! - [`world`]: takes the steps, and compares after each
//! - [`actors`]: who uses the engine, a file for each surface
//! - [`callbacks`]: the thread on which a closed engine calls back, which takes turns with the steps
//! - [`recorder`]: what the engine did to its users, who may misbehave
//! - [`model`]: what the promises allow to be seen; deliberately naive
//! - [`waiters`]: the same for an engine at its capacity: which timers wait, and in which order they are served
//! - [`ledger`]: the same for a scheduler and its jobs, to the last run
//! - [`almanac`]: when a cron line is due, minute by minute
//! - [`breakage`]: faults planted between the two, to see that they are found
//! - [`shrink`]: makes a plan that fails short
//! - [`watch`]: notices one that hangs
//! - [`report`]: says how, and how to run it again

#[expect(missing_docs, reason = "the fields of an operation are what their names say")]
pub mod actors;
pub mod callback_thread;
pub mod capacity_model;
pub mod context;
pub mod cron_reference;
pub mod plan;
pub mod planted_fault;
pub mod random_source;
pub mod recorder;
pub mod report;
pub mod run_hash;
pub mod scheduler_model;
pub mod shrink;
pub mod sim_threads;
pub mod timer_model;
pub mod totals;
pub mod violation;
pub mod watchdog;
pub mod world;
