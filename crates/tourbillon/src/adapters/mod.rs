//! Tourbillon where other crates ask for a timer, or for numbers. Each adapter is a feature and is off by default.
//!
//! | feature | gives |
//! |---|---|
//! | `hyper` | `adapters::hyper::TourbillonTimer`: the timer that hyper's connections need for their timeouts |
//! | `metrics` | `adapters::metrics::Exporter`: what an engine counts, for whatever recorder is installed |
//! | `tower` | `adapters::tower::TimeoutLayer`: a timeout for every request to a service |

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "tower")]
pub mod tower;
