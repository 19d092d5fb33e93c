//! The keys that a running server knows.
//!
//! A request that finds them older than a second has them read again before it is let in: a revoked key ends within a second, on every
//! node. Nothing is read while there are no requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use super::super::identity::Identity;
use super::{ApiKey, KeyStore, KeyStoreError, PREFIX, hash};

/// How long the server trusts what it has read.
const FRESH: Duration = Duration::from_secs(1);

/// The keys of a running server.
pub(crate) struct KeyRing {
    store: Arc<dyn KeyStore>,
    known: Mutex<Arc<KnownKeys>>,
    /// Held while the keys are read: other requests wait for the result.
    reading: tokio::sync::Mutex<()>,
}

/// Keys, as they were at some time.
pub(crate) struct KnownKeys {
    keys: Vec<ApiKey>,
    /// Whether there has been a key: from then on every request needs one.
    is_required: bool,
    read: Instant,
}

impl KeyRing {
    /// Reads the keys.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn open(store: Arc<dyn KeyStore>) -> Result<KeyRing, KeyStoreError> {
        let keys = store.list().await?;
        let known = KnownKeys { is_required: !keys.is_empty(), keys, read: Instant::now() };
        Ok(KeyRing { store, known: Mutex::new(Arc::new(known)), reading: tokio::sync::Mutex::default() })
    }

    /// Returns where the keys are, for messages.
    pub(crate) fn place(&self) -> String {
        self.store.place()
    }

    /// Returns the keys as they were less than a second ago. If they cannot be read, those that were read before stay valid: a node that
    /// cannot reach its database cannot serve their owners either.
    pub(crate) async fn fresh(&self) -> Arc<KnownKeys> {
        let known = self.known();
        if known.is_fresh() {
            return known;
        }
        let _turn = self.reading.lock().await;
        let known = self.known();
        if known.is_fresh() {
            return known;
        }
        let began = Instant::now();
        let (keys, read) = match self.store.list().await {
            Ok(keys) => (keys, began),
            Err(error) => {
                eprintln!("tourbillon: {error}; the keys that were read before stay valid");
                // From now on, so that the requests that have waited do not try one after the other.
                (known.keys.clone(), Instant::now())
            }
        };
        let is_required = known.is_required || !keys.is_empty();
        let known = Arc::new(KnownKeys { keys, is_required, read });
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known);
        known
    }

    fn known(&self) -> Arc<KnownKeys> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KnownKeys {
    /// Returns whether requests need a key.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns the owner of a key; `None` if there is no such key.
    pub(crate) fn find(&self, text: &str) -> Option<Identity> {
        let (id, secret) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).unwrap_or_default();
        let given = hash(secret);
        // Every key is compared, each in the same time, so that the time tells nothing.
        let mut found = None;
        for key in &self.keys {
            let is_id = key.id.as_bytes().ct_eq(id.as_bytes());
            let is_same = is_id & key.hash.as_bytes().ct_eq(given.as_bytes());
            if bool::from(is_same) {
                found = Some(key);
            }
        }
        found.map(|key| Identity::new(key.namespaces.clone(), key.access))
    }

    fn is_fresh(&self) -> bool {
        self.read.elapsed() < FRESH
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::super::identity::Access;
    use super::super::file::KeyFile;
    use super::super::{KeyFuture, NewKey};
    use super::*;

    fn new_key(namespaces: Option<&[&str]>, read_only: bool) -> NewKey {
        let namespaces = namespaces.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        NewKey { name: "test".to_owned(), namespaces, read_only }
    }

    fn make_old(ring: &KeyRing) {
        let mut known = ring.known.lock().unwrap();
        let read = known.read.checked_sub(FRESH * 2).unwrap();
        *known = Arc::new(KnownKeys { keys: known.keys.clone(), is_required: known.is_required, read });
    }

    #[tokio::test]
    async fn o3_a_key_is_found_by_its_whole_secret_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(KeyFile::new(directory.path().join("keys.json")));
        let text = file.create(new_key(Some(&["shop"]), true)).await.unwrap();
        let other = file.create(new_key(None, false)).await.unwrap();
        let ring = KeyRing::open(file).await.unwrap().fresh().await;
        let owner = ring.find(&text).unwrap();
        assert!(owner.check("shop", Access::Read).is_ok());
        assert_eq!(owner.check("shop", Access::Write).unwrap_err().status, 403);
        assert_eq!(owner.check("bank", Access::Read).unwrap_err().status, 403);
        assert!(ring.find(&other).unwrap().check("bank", Access::Write).is_ok());
        let swapped = format!("{}{}", &text[..20], &other[20..]);
        for bad in ["", "tbk_", "tbk__", "tbk_1_2", &text[1..], &text[..text.len() - 1], &swapped] {
            assert!(ring.find(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn o3_a_revoked_key_ends_and_keys_stay_required() {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(KeyFile::new(directory.path().join("keys.json")));
        let text = file.create(new_key(None, false)).await.unwrap();
        let ring = KeyRing::open(Arc::clone(&file) as Arc<dyn KeyStore>).await.unwrap();
        assert!(ring.fresh().await.find(&text).is_some());
        assert!(file.revoke(&text[4..20]).await.unwrap());
        make_old(&ring);
        let known = ring.fresh().await;
        assert!(known.find(&text).is_none());
        assert!(known.is_required(), "without keys nobody is let in any more");
    }

    /// Keys that can be read once. Later attempts take some time, and fail.
    struct Once {
        key: ApiKey,
        attempts: AtomicUsize,
        delay: Duration,
    }

    impl Once {
        fn new(delay: Duration) -> (Arc<Once>, String) {
            let (key, text) = ApiKey::generate(new_key(None, false));
            (Arc::new(Once { key, attempts: AtomicUsize::new(0), delay }), text)
        }
    }

    impl KeyStore for Once {
        fn place(&self) -> String {
            "a test".to_owned()
        }

        fn list(&self) -> KeyFuture<'_, Vec<ApiKey>> {
            let is_first = self.attempts.fetch_add(1, Ordering::SeqCst) == 0;
            Box::pin(async move {
                if is_first {
                    return Ok(vec![self.key.clone()]);
                }
                tokio::time::sleep(self.delay).await;
                Err(KeyStoreError("unreachable".to_owned()))
            })
        }

        fn add(&self, _: ApiKey) -> KeyFuture<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn revoke<'a>(&'a self, _: &'a str) -> KeyFuture<'a, bool> {
            Box::pin(async { Ok(false) })
        }
    }

    #[tokio::test]
    async fn o3_keys_that_cannot_be_read_again_stay_valid() {
        let (store, text) = Once::new(Duration::ZERO);
        let ring = KeyRing::open(store).await.unwrap();
        make_old(&ring);
        assert!(ring.fresh().await.find(&text).is_some());
    }

    #[tokio::test]
    async fn o3_requests_that_wait_for_keys_in_vain_do_not_try_one_after_the_other() {
        let (store, text) = Once::new(FRESH + FRESH / 10);
        let ring = KeyRing::open(Arc::clone(&store) as Arc<dyn KeyStore>).await.unwrap();
        make_old(&ring);
        let (one, other) = tokio::join!(ring.fresh(), ring.fresh());
        assert!(one.find(&text).is_some() && other.find(&text).is_some());
        assert_eq!(store.attempts.load(Ordering::SeqCst), 2, "one for both, after the first of all");
    }
}
