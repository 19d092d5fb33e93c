//! What all requests share.

use std::sync::Arc;

use tourbillon_durable::Timers;

use crate::config::ServerConfig;

/// What all requests share: the timers, the configuration, limits and counters. Clones are handles to the same state.
#[derive(Clone)]
pub struct AppState(Arc<StateInner>);

struct StateInner {
    timers: Timers,
    config: ServerConfig,
}

impl AppState {
    pub(crate) fn new(timers: Timers, config: ServerConfig) -> AppState {
        AppState(Arc::new(StateInner { timers, config }))
    }

    /// Returns the timers.
    #[must_use]
    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }

    /// Returns the options.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }
}
