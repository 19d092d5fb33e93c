//! What a caller may do.

use serde::{Deserialize, Serialize};
use tourbillon_durable::spec::DEFAULT_NAMESPACE;

use crate::problem::Problem;

/// What a key allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// To look.
    Read,
    /// To look, and to create, cancel, pull and replay.
    Write,
}

/// A caller: everybody if the server has no keys, or the owner of a key.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The namespaces of the key; `None` for all.
    namespaces: Option<Vec<String>>,
    access: Access,
}

impl Identity {
    /// Returns the caller of a server without keys.
    pub(crate) fn anybody() -> Identity {
        Identity { namespaces: None, access: Access::Write }
    }

    pub(crate) fn new(namespaces: Option<Vec<String>>, access: Access) -> Identity {
        Identity { namespaces, access }
    }

    /// Returns the namespace of a request that names none: that of the key if it has exactly one.
    pub(crate) fn default_namespace(&self) -> &str {
        match self.namespaces.as_deref() {
            Some([only]) => only,
            _ => DEFAULT_NAMESPACE,
        }
    }

    /// Checks that the caller may read or write in a namespace.
    ///
    /// # Errors
    /// A problem with status 403, which says what the key lacks.
    pub(crate) fn check(&self, namespace: &str, access: Access) -> Result<(), Problem> {
        if access > self.access {
            return Err(Problem::forbidden("this API key only allows to read: use one that allows to write"));
        }
        if !self.has_namespace(namespace) {
            return Err(Problem::forbidden(format!("this API key does not allow the namespace {namespace:?}")));
        }
        Ok(())
    }

    /// Checks that the caller may do something at all.
    ///
    /// # Errors
    /// A problem with status 403.
    pub(crate) fn check_access(&self, access: Access) -> Result<(), Problem> {
        self.check(self.namespaces.as_deref().and_then(<[String]>::first).map_or("", String::as_str), access)
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|allowed| allowed.iter().any(|one| one == namespace))
    }

    /// Returns the namespaces that the caller may see; `None` for all.
    pub(crate) fn namespaces(&self) -> Option<&[String]> {
        self.namespaces.as_deref()
    }

    /// Returns whether the caller may change anything.
    pub(crate) fn can_write(&self) -> bool {
        self.access == Access::Write
    }

    /// Returns whether the caller may see every namespace.
    pub(crate) fn sees_all(&self) -> bool {
        self.namespaces.is_none()
    }

    /// Returns the namespace that a list is about, for a caller that may name one.
    ///
    /// # Errors
    /// A problem: the namespace is not the caller's, or the caller must name one.
    pub(crate) fn listed_namespace(&self, asked: Option<String>) -> Result<Option<String>, Problem> {
        match (asked, self.namespaces.as_deref()) {
            (Some(namespace), _) => self.check(&namespace, Access::Read).map(|()| Some(namespace)),
            (None, None) => Ok(None),
            (None, Some([only])) => Ok(Some(only.clone())),
            (None, Some(several)) => {
                let detail = format!("this API key has several namespaces: name one of {}", several.join(", "));
                Err(Problem::bad_request(detail))
            }
        }
    }
}
