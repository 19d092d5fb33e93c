//! A deterministic simulation of Tourbillon. One seed decides the threads, executors, drivers, clocks and faults of a world, and
//! after every step the world is compared with models of the promises.
//!
//! ```text
//!     seed or bytes --> SimPlan { setup, steps } --> SimWorld --- steps --> actors --- use --> tourbillon
//!                             ^                        |                                        |  wakes, calls, runs
//!                             |                        v                                        v
//!                          shrink <---- fails ----- models <----------- events ------------- Recorder
//! ```
//!
//! - [`plan`]: what a world consists of and its steps, both known before the run
//! - [`random_source`]: the decisions of a plan, from a seed or from a fuzzer's bytes
//! - [`world`]: runs the steps, and compares after each
//! - [`actors`]: the users of the engine, one file for each surface
//! - [`context`]: what the actors of a world share
//! - [`sim_threads`]: the simulated threads
//! - [`callback_thread`]: the thread on which an engine runs callbacks after its shutdown; it takes turns with the steps
//! - [`recorder`]: records what the engine does to wakers, callbacks and jobs, some of which misbehave
//! - [`timer_model`]: what the promises allow to be observed of each timer; deliberately naive
//! - [`capacity_model`]: which timers wait for a slot in an engine at its capacity, and in which order they get one
//! - [`scheduler_model`]: what a scheduler and its jobs do, run by run
//! - [`cron_reference`]: when a cron line is due, found minute by minute
//! - [`planted_fault`]: faults between the engine and the models, which show that the models find them
//! - [`shrink`]: shortens a plan that fails
//! - [`watchdog`]: notices a world that hangs
//! - [`report`]: prints failures, with the command that repeats them

#[expect(missing_docs, reason = "the names of an operation's fields explain them")]
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
