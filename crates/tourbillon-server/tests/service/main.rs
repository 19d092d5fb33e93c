//! The service as its users see it: over HTTP, on loopback, with a store in a temporary directory or in PostgreSQL.

mod access;
mod clocks;
mod faults;
#[cfg(unix)]
mod postgres;
mod queues;
mod support;
mod timers;
mod webhooks;
