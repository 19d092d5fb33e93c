//! Deliveries: what a timer's kind and payload say about where it goes, webhooks, and queues.

mod addresses;
mod hosts;
mod namespaces;
mod queues;
mod signature;
mod target;
mod webhooks;

pub(crate) use self::namespaces::DeliveryPlaces;
pub(crate) use self::queues::{Queues, Want};
pub(crate) use self::signature::Secret;
pub(crate) use self::target::{Target, WEBHOOK_KIND, WebhookTarget};
pub(crate) use self::webhooks::Webhooks;
