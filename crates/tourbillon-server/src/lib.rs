//! Durable timers as a service: an HTTP API, webhooks, pull queues, a dashboard and metrics over `tourbillon-durable`.
//!
//! ```text
//!     serve                accepts connections, with or without TLS, and drains them
//!     router, layers       puts the parts below one address, behind keys and limits
//!     api, dashboard       requests of programs and of people
//!     state                what all requests share
//!     model                bodies of requests and answers
//!     deliver, access      webhooks and queues; keys and limits
//!     config, problem      options; errors
//! ```
//!
//! [`Server`] is the whole of it: the command `tourbillon serve` does no more than run one.

mod access;
mod api;
pub mod config;
mod counters;
mod dashboard;
mod deliver;
mod durations;
mod events;
mod layers;
mod model;
mod overview;
mod problem;
mod router;
mod serve;
mod state;

pub use access::{Access, ApiKey, KeyFuture, KeyStore, KeyStoreError, NewKey, key_store};
pub use config::ServerConfig;
pub use serve::{ServeError, Server};
pub use state::AppState;
