//! What all requests share.

use std::sync::Arc;

use tourbillon_durable::Timers;

use crate::access::{Gate, KeyRing, PendingLimits, Rates};
use crate::config::{BadConfig, ServerConfig};
use crate::counters::Counters;
use crate::deliver::{DeliveryPlaces, Queues, WEBHOOK_KIND, Webhooks};
use crate::events::{EventFeed, relay};
use crate::overview::Overview;

/// What all requests share: the timers, the configuration, limits and counters. Clones are handles to the same state.
#[derive(Clone)]
pub struct AppState(Arc<StateInner>);

struct StateInner {
    timers: Timers,
    config: ServerConfig,
    keys: KeyRing,
    gate: Gate,
    rates: Rates,
    pending: PendingLimits,
    places: DeliveryPlaces,
    queues: Queues,
    webhooks: Webhooks,
    counters: Counters,
    events: Arc<EventFeed>,
    overview: Overview,
}

impl AppState {
    /// Puts the parts together, and registers the handler of webhooks.
    pub(crate) fn new(timers: Timers, config: ServerConfig, keys: KeyRing) -> Result<AppState, BadConfig> {
        let wrong = |error: &dyn std::fmt::Display| BadConfig::new(error.to_string());
        let places = DeliveryPlaces::new(&config);
        let webhooks = Webhooks::new(&config, places.clone())?;
        let send = webhooks.clone();
        timers
            .on_with_limit(WEBHOOK_KIND, config.webhooks.concurrency.max(1), move |delivery| {
                send.clone().deliver(delivery)
            })
            .map_err(|error| wrong(&error))?;
        let queues = Queues::new(timers.clone(), config.is_postgres());
        let events = Arc::new(EventFeed::new());
        relay(&timers, Arc::clone(&events)).map_err(|error| wrong(&error))?;
        let gate = Gate::new(&config.limits);
        Ok(AppState(Arc::new(StateInner {
            timers,
            config,
            keys,
            gate,
            rates: Rates::default(),
            pending: PendingLimits::default(),
            places,
            queues,
            webhooks,
            counters: Counters::default(),
            events,
            overview: Overview::default(),
        })))
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

    pub(crate) fn keys(&self) -> &KeyRing {
        &self.0.keys
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    pub(crate) fn pending(&self) -> &PendingLimits {
        &self.0.pending
    }

    pub(crate) fn places(&self) -> &DeliveryPlaces {
        &self.0.places
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.0.webhooks
    }

    pub(crate) fn events(&self) -> &Arc<EventFeed> {
        &self.0.events
    }

    pub(crate) fn overview(&self) -> &Overview {
        &self.0.overview
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }
}
