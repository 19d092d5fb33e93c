//! Adapters for crates that need a timer, or that collect metrics. Each adapter is a feature and is off by default.
//!
//! | feature | provides |
//! |---|---|
//! | `http` | `adapters::http::HttpTimeoutLayer`: a timeout for every request to an HTTP server, answered with 504 or 408; `adapters::grpc::GrpcDeadlineLayer`: the deadline of a gRPC call |
//! | `hyper` | `adapters::hyper::TourbillonTimer`: the timer that hyper's connections need for their timeouts |
//! | `metrics` | `adapters::metrics::Exporter`: the counts of an engine and of schedulers, for the recorder that is installed |
//! | `server` | `adapters::server::HttpServer`: serves axum, tonic and other tower services, with limits for slow and idle clients and for the shutdown |
//! | `tower` | `adapters::tower::TimeoutLayer`: a timeout for every request to a service |

#[cfg(feature = "http")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "tower")]
pub mod tower;
