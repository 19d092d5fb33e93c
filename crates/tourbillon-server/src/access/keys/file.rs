//! API keys in a file, which one server reads.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ApiKey, KeyFuture, KeyStore, KeyStoreError};

/// The file of the keys.
#[derive(Debug)]
pub(super) struct KeyFile(PathBuf);

#[derive(Default, Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<ApiKey>,
}

impl KeyFile {
    pub(super) fn new(path: PathBuf) -> KeyFile {
        KeyFile(path)
    }

    fn read(&self) -> Result<Vec<ApiKey>, KeyStoreError> {
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(&error)),
        };
        let stored: StoredKeys = serde_json::from_slice(&text).map_err(|error| self.failed(&error))?;
        Ok(stored.keys)
    }

    /// Writes the file anew, and puts it in the place of the old one in one step.
    fn write(&self, keys: Vec<ApiKey>) -> Result<(), KeyStoreError> {
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

    fn remove(&self, id: &str) -> Result<bool, KeyStoreError> {
        let mut keys = self.read()?;
        let before = keys.len();
        keys.retain(|key| key.id != id);
        let is_removed = keys.len() < before;
        if is_removed {
            self.write(keys)?;
        }
        Ok(is_removed)
    }

    fn failed(&self, error: &dyn fmt::Display) -> KeyStoreError {
        KeyStoreError(format!("the API keys in {}: {error}", self.0.display()))
    }
}

/// The file is small and on a local disk: it is read and written at once.
impl KeyStore for KeyFile {
    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn list(&self) -> KeyFuture<'_, Vec<ApiKey>> {
        Box::pin(async { self.read() })
    }

    fn add(&self, key: ApiKey) -> KeyFuture<'_, ()> {
        Box::pin(async {
            let mut keys = self.read()?;
            keys.push(key);
            self.write(keys)
        })
    }

    fn revoke<'a>(&'a self, id: &'a str) -> KeyFuture<'a, bool> {
        Box::pin(async { self.remove(id) })
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

#[cfg(test)]
mod tests {
    use super::super::NewKey;
    use super::*;

    fn new_key() -> NewKey {
        NewKey { name: "test".to_owned(), namespaces: None, read_only: false }
    }

    #[tokio::test]
    async fn o3_the_file_has_keys_without_their_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path().join("keys.json"));
        assert!(file.list().await.unwrap().is_empty());
        let texts = [file.create(new_key()).await.unwrap(), file.create(new_key()).await.unwrap()];
        let stored = fs::read_to_string(&file.0).unwrap();
        for text in &texts {
            assert!(stored.contains(&text[4..20]) && !stored.contains(&text[21..]));
        }
        assert!(file.revoke(&texts[0][4..20]).await.unwrap() && !file.revoke("nobody").await.unwrap());
        let left: Vec<_> = file.list().await.unwrap().into_iter().map(|key| key.id).collect();
        assert_eq!(left, [&texts[1][4..20]]);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn o3_only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path().join("deep/keys.json"));
        file.create(new_key()).await.unwrap();
        assert_eq!(fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
