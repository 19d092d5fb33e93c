//! Places for the deliveries of namespaces that have a limit (V7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tourbillon_durable::Receipt;

use super::hosts::Places;
use crate::config::ServerConfig;

/// The most namespaces that are remembered although nothing is under way for them.
const MOST_IDLE: usize = 10_000;

/// Places for the deliveries of namespaces.
#[derive(Clone)]
pub(crate) struct DeliveryPlaces(Arc<PlacesInner>);

struct PlacesInner {
    config: ServerConfig,
    webhooks: Mutex<HashMap<String, Places>>,
    /// What workers hold of namespaces that have a limit, and until when.
    pulled: Mutex<HashMap<String, HeldRows>>,
}

/// Rows that workers hold, and until when.
type HeldRows = HashMap<Receipt, Instant>;

/// A place, or the freedom of a namespace without a limit.
pub(crate) struct DeliveryPlace {
    _place: Option<OwnedSemaphorePermit>,
}

impl DeliveryPlaces {
    pub(crate) fn new(config: &ServerConfig) -> DeliveryPlaces {
        let config = config.clone();
        DeliveryPlaces(Arc::new(PlacesInner { config, webhooks: Mutex::default(), pulled: Mutex::default() }))
    }

    fn limit_of(&self, namespace: &str) -> Option<usize> {
        self.0.config.namespace(namespace).deliveries
    }

    /// Takes a place for a webhook; `None` if the namespace has none for some time.
    pub(crate) async fn take(&self, namespace: &str) -> Option<DeliveryPlace> {
        let Some(limit) = self.limit_of(namespace) else { return Some(DeliveryPlace { _place: None }) };
        let places = {
            let mut all = self.0.webhooks.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MOST_IDLE {
                all.retain(|_, places| !places.is_idle());
            }
            all.entry(namespace.to_owned()).or_insert_with(|| Places::new(limit)).clone()
        };
        Some(DeliveryPlace { _place: Some(places.take().await?) })
    }

    /// Returns how many of `wanted` rows workers of a namespace may pull now.
    pub(crate) fn pull_room(&self, namespace: &str, wanted: usize) -> usize {
        let Some(limit) = self.limit_of(namespace) else { return wanted };
        let mut pulled = self.0.pulled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = pulled.get_mut(namespace) else { return wanted.min(limit) };
        let now = Instant::now();
        held.retain(|_, until| *until > now);
        wanted.min(limit.saturating_sub(held.len()))
    }

    /// Records that a worker holds rows.
    pub(crate) fn hold(&self, namespace: &str, receipts: impl Iterator<Item = Receipt>, lease: Duration) {
        if self.limit_of(namespace).is_some() {
            let until = Instant::now() + lease;
            let mut pulled = self.0.pulled.lock().unwrap_or_else(PoisonError::into_inner);
            pulled.entry(namespace.to_owned()).or_default().extend(receipts.map(|receipt| (receipt, until)));
        }
    }

    /// Records that a worker has ended deliveries.
    pub(crate) fn release<'r>(&self, namespace: &str, receipts: impl Iterator<Item = &'r Receipt>) {
        let mut pulled = self.0.pulled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = pulled.get_mut(namespace) {
            receipts.for_each(|receipt| _ = held.remove(receipt));
        }
    }
}
