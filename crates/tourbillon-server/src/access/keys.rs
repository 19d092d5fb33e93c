//! API keys: a file that the command `tourbillon key` writes and the server reads.
//!
//! A key is `tbk_ID_SECRET`. The file has the SHA-256 of the secret, which has 256 random bits, so that the hash tells nothing. The server looks
//! at the file once a second: a key that was revoked ends without a restart.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::identity::{Access, Identity};
use crate::config::ServerConfig;
use crate::durations::format_time;

const PREFIX: &str = "tbk_";

/// How long the server trusts what it has read of the file.
const FRESH: Duration = Duration::from_secs(1);

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

/// The file of the keys.
#[derive(Clone, Debug)]
pub struct KeyFile(PathBuf);

/// Why the file of the keys cannot be used.
#[derive(Debug)]
pub struct KeyFileError(String);

#[derive(Default, Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<ApiKey>,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyFileError {}

impl KeyFile {
    /// Returns the file that a configuration names.
    #[must_use]
    pub fn of(config: &ServerConfig) -> KeyFile {
        KeyFile(match &config.keys_file {
            Some(path) => path.clone(),
            None if config.is_postgres() => PathBuf::from("tourbillon-keys.json"),
            None => Path::new(&config.store).join("keys.json"),
        })
    }

    /// Returns where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns all keys; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<ApiKey>, KeyFileError> {
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(&error)),
        };
        let stored: StoredKeys = serde_json::from_slice(&text).map_err(|error| self.failed(&error))?;
        Ok(stored.keys)
    }

    /// Makes a key, and returns it as text. Nobody can see its secret afterwards.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn create(&self, new: NewKey) -> Result<String, KeyFileError> {
        let mut keys = self.list()?;
        let id = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let secret = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        keys.push(ApiKey {
            id: id.clone(),
            name: new.name,
            namespaces: new.namespaces,
            access: if new.read_only { Access::Read } else { Access::Write },
            created: format_time(SystemTime::now()),
            hash: hash(&secret),
        });
        self.write(keys)?;
        Ok(format!("{PREFIX}{id}_{secret}"))
    }

    /// Removes a key. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn revoke(&self, id: &str) -> Result<bool, KeyFileError> {
        let mut keys = self.list()?;
        let before = keys.len();
        keys.retain(|key| key.id != id);
        let is_removed = keys.len() < before;
        if is_removed {
            self.write(keys)?;
        }
        Ok(is_removed)
    }

    /// Writes the file anew, and puts it in the place of the old one in one step.
    fn write(&self, keys: Vec<ApiKey>) -> Result<(), KeyFileError> {
        let failed = |error: io::Error| self.failed(&error);
        if let Some(directory) = self.0.parent().filter(|path| !path.as_os_str().is_empty()) {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let text = serde_json::to_vec_pretty(&StoredKeys { keys }).map_err(|error| self.failed(&error))?;
        let new = self.0.with_extension("new");
        let mut file = private_file(&new).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, &self.0).map_err(failed)
    }

    fn failed(&self, error: &dyn fmt::Display) -> KeyFileError {
        KeyFileError(format!("the API keys in {}: {error}", self.0.display()))
    }
}

/// Creates a file that only its owner can read.
pub(crate) fn private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The keys of a running server.
#[derive(Debug)]
pub(crate) struct KeyRing {
    file: KeyFile,
    known: Mutex<KnownKeys>,
}

#[derive(Debug)]
struct KnownKeys {
    keys: Vec<ApiKey>,
    /// Whether there has been a key: from then on every request needs one.
    is_required: bool,
    looked: Instant,
    modified: Option<SystemTime>,
}

impl KeyRing {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(file: KeyFile) -> Result<KeyRing, KeyFileError> {
        let keys = file.list()?;
        let (is_required, modified) = (!keys.is_empty(), modified(&file.0));
        let known = Mutex::new(KnownKeys { keys, is_required, looked: Instant::now(), modified });
        Ok(KeyRing { file, known })
    }

    /// Returns whether requests need a key.
    pub(crate) fn is_required(&self) -> bool {
        self.fresh().is_required
    }

    /// Returns the owner of a key; `None` if there is no such key.
    pub(crate) fn find(&self, text: &str) -> Option<Identity> {
        let (id, secret) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).unwrap_or_default();
        let given = hash(secret);
        let known = self.fresh();
        // Every key is compared, each in the same time, so that the time tells nothing.
        let mut found = None;
        for key in &known.keys {
            let is_id = key.id.as_bytes().ct_eq(id.as_bytes());
            let is_same = is_id & key.hash.as_bytes().ct_eq(given.as_bytes());
            if bool::from(is_same) {
                found = Some(key);
            }
        }
        found.map(|key| Identity::new(key.namespaces.clone(), key.access))
    }

    /// Returns the keys, read again if the file has changed. If it cannot be read, what was known stays.
    fn fresh(&self) -> MutexGuard<'_, KnownKeys> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() < FRESH {
            return known;
        }
        known.looked = Instant::now();
        let modified = modified(&self.file.0);
        if modified.is_some() && modified != known.modified {
            match self.file.list() {
                Ok(keys) => {
                    known.is_required |= !keys.is_empty();
                    (known.keys, known.modified) = (keys, modified);
                }
                Err(error) => eprintln!("tourbillon: {error}; the keys that were read before stay valid"),
            }
        }
        known
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn new_key(namespaces: Option<&[&str]>, read_only: bool) -> NewKey {
        let namespaces = namespaces.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        NewKey { name: "test".to_owned(), namespaces, read_only }
    }

    #[test]
    fn o3_a_key_is_found_by_its_secret_which_the_file_does_not_have() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile(directory.path().join("keys.json"));
        let text = file.create(new_key(Some(&["shop"]), true)).unwrap();
        let other = file.create(new_key(None, false)).unwrap();
        let stored = fs::read_to_string(file.path()).unwrap();
        let secret = text.rsplit_once('_').map(|(_, secret)| secret).unwrap();
        assert!(!stored.contains(secret) && !stored.contains(&other[20..]));
        let ring = KeyRing::open(file).unwrap();
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

    #[test]
    fn o3_a_revoked_key_ends_and_keys_stay_required() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile(directory.path().join("keys.json"));
        let text = file.create(new_key(None, false)).unwrap();
        let ring = KeyRing::open(file.clone()).unwrap();
        assert!(file.revoke(&text[4..20]).unwrap() && !file.revoke("nobody").unwrap());
        let long_ago = |known: &mut KnownKeys| {
            (known.looked, known.modified) = (known.looked.checked_sub(FRESH * 2).unwrap(), None);
        };
        long_ago(&mut ring.known.lock().unwrap());
        assert!(ring.find(&text).is_none());
        assert!(ring.is_required(), "without keys nobody is let in any more");
    }

    #[cfg(unix)]
    #[test]
    fn o3_only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile(directory.path().join("deep/keys.json"));
        file.create(new_key(None, false)).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
