//! Access and limits of callers: API keys, the limits of requests, and those of namespaces.

mod gate;
mod identity;
mod keys;
mod pending;
mod rates;

/// The cookie of the dashboard that has the API key.
pub(crate) const KEY_COOKIE: &str = "tourbillon_key";

pub(crate) use self::gate::{Gate, Urgency};
pub use self::identity::Access;
pub(crate) use self::identity::Identity;
pub(crate) use self::keys::KeyRing;
pub(crate) use self::keys::private_file;
pub use self::keys::{ApiKey, KeyFuture, KeyStore, KeyStoreError, NewKey, key_store};
pub(crate) use self::pending::PendingLimits;
pub(crate) use self::rates::Rates;
