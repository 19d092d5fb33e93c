//! A client of `tourbillon serve`: creates, cancels, finds and watches durable timers over HTTP.
//!
//! ```no_run
//! use tourbillon_client::{Client, NewTimer};
//!
//! # async fn example() -> Result<(), tourbillon_client::ClientError> {
//! let client = Client::new("http://127.0.0.1:7117")?;
//! let timer = NewTimer::after("15m").queue("emails").key("order 4711").payload(serde_json::json!({ "order": 4711 }));
//! let created = client.create(&timer).await?;
//! println!("{} is due at {}", created.id, created.due);
//! let counts = client.cancel_key("default", "order 4711").await?;
//! assert_eq!(counts.cancelled, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Times and durations are texts, as in the API: `2026-11-18T08:00:00Z`, `1.5s`. An error of the server is a [`Problem`], which says what to do.
#![forbid(unsafe_code)]

mod client;
mod error;
mod events;
mod model;

pub use client::Client;
pub use error::{ClientError, Problem};
pub use events::{EventStream, TimerEvent};
pub use model::{CancelCounts, Created, EventFilter, ListFilter, NewTimer, Rescheduled, Timer, TimerDetail, TimerPage};
