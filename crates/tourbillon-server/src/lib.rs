//! Durable timers as a service: an HTTP API, webhooks, pull queues, a dashboard and metrics over `tourbillon-durable`.
//!
//! ```text
//!     serve        accepts connections, with or without TLS, and drains them
//!     router       puts the parts below one address, behind the limits
//!     api, dashboard
//!     state        what all requests share: timers, configuration, limits, counters
//!     config       options from a file, the environment and the command line
//! ```
//!
//! [`Server`] is the whole of it: the command `tourbillon serve` does no more than run one.

mod api;
pub mod config;
mod dashboard;
mod durations;
mod problem;
mod router;
mod serve;
mod state;

pub use config::ServerConfig;
pub use serve::{ServeError, Server};
pub use state::AppState;
