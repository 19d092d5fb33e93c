//! API keys, and where they are kept: in a file beside an embedded store, or in a table of a PostgreSQL store that all nodes share.
//!
//! A key is `tbk_ID_SECRET`. The SHA-256 of the secret is kept. The secret has 256 random bits, so that its hash tells nothing.

mod file;
mod ring;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) use self::file::private_file;
pub(crate) use self::ring::KeyRing;
use super::identity::Access;
use crate::config::ServerConfig;
use crate::durations::format_time;

const PREFIX: &str = "tbk_";

/// A key as it is stored: with the hash of its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its public part.
    pub id: String,
    /// What it is for, as its creator has written.
    pub name: String,
    /// The namespaces that it allows; all if there is no list.
    pub namespaces: Option<Vec<String>>,
    /// What it allows there.
    pub access: Access,
    /// When it was made.
    pub created: String,
    /// The SHA-256 of its secret.
    hash: String,
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// What it is for.
    pub name: String,
    /// The namespaces that it allows; all if there is no list.
    pub namespaces: Option<Vec<String>>,
    /// Whether it only allows to read.
    pub read_only: bool,
}

/// Why API keys cannot be read or written.
#[derive(Debug)]
pub struct KeyStoreError(String);

impl fmt::Display for KeyStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyStoreError {}

/// The result of an operation on keys, when it has ended.
pub type KeyFuture<'a, T> = BoxFuture<'a, Result<T, KeyStoreError>>;

/// Where API keys are kept. The command `tourbillon key` changes them, and servers read them.
pub trait KeyStore: Send + Sync {
    /// Returns where the keys are, for messages.
    fn place(&self) -> String;

    /// Returns all keys; none if there has never been one.
    fn list(&self) -> KeyFuture<'_, Vec<ApiKey>>;

    /// Adds a key.
    fn add(&self, key: ApiKey) -> KeyFuture<'_, ()>;

    /// Removes a key. Returns whether there was one.
    fn revoke<'a>(&'a self, id: &'a str) -> KeyFuture<'a, bool>;

    /// Makes a key, and returns it as text. Nobody can see its secret afterwards.
    fn create(&self, new: NewKey) -> KeyFuture<'_, String> {
        let (key, text) = ApiKey::generate(new);
        Box::pin(async move { self.add(key).await.map(|()| text) })
    }
}

/// Returns the keys that a configuration names: those of `keys_file` if it is given, those in the database of a store in PostgreSQL, or the file
/// `keys.json` in the directory of an embedded store.
///
/// # Errors
/// The address of the database cannot be understood.
pub fn key_store(config: &ServerConfig) -> Result<Arc<dyn KeyStore>, KeyStoreError> {
    if config.keys_file.is_none() && config.is_postgres() {
        return Ok(Arc::new(table::KeyTable::new(config)?));
    }
    let in_store = || std::path::Path::new(&config.store).join("keys.json");
    Ok(Arc::new(file::KeyFile::new(config.keys_file.clone().unwrap_or_else(in_store))))
}

impl ApiKey {
    /// Returns a new key, and its text with the secret.
    fn generate(new: NewKey) -> (ApiKey, String) {
        let id = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let secret = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        let text = format!("{PREFIX}{id}_{secret}");
        let key = ApiKey {
            id,
            name: new.name,
            namespaces: new.namespaces,
            access: if new.read_only { Access::Read } else { Access::Write },
            created: format_time(SystemTime::now()),
            hash: hash(&secret),
        };
        (key, text)
    }
}

fn hash(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns bytes that cannot be guessed.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("the operating system has random numbers");
    bytes
}
