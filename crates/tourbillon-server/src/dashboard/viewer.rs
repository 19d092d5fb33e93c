//! The browser that looks at a page: what its API key allows, or everything if the server has no keys.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Redirect, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::page::problem_page;
use crate::access::Identity;
use crate::state::AppState;

/// The browser that looks at a page, and what it may see and do.
pub(super) struct Viewer {
    pub(super) identity: Identity,
    pub(super) can_write: bool,
    pub(super) is_signed_in: bool,
}

/// A viewer that has sent a form, and may.
pub(super) struct Sender(pub(super) Viewer);

impl FromRequestParts<AppState> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Viewer, Response> {
        match parts.extensions.get::<Identity>() {
            Some(identity) => Ok(Viewer {
                can_write: identity.can_write(),
                is_signed_in: state.keys().fresh().await.is_required(),
                identity: identity.clone(),
            }),
            None => Err(Redirect::to("/login").into_response()),
        }
    }
}

impl FromRequestParts<AppState> for Sender {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Sender, Response> {
        let refused = |detail: &str| problem_page(None, StatusCode::FORBIDDEN, "The form was refused", detail);
        if !is_same_origin(&parts.headers) {
            return Err(refused("It was not sent by a page of this server. Go back, reload the page and try again."));
        }
        let viewer = Viewer::from_request_parts(parts, state).await?;
        match viewer.can_write {
            true => Ok(Sender(viewer)),
            false => Err(refused("This API key can only read.")),
        }
    }
}

impl Viewer {
    /// Returns the namespaces that the viewer may see; `None` for all.
    pub(super) fn namespaces(&self) -> Option<&[String]> {
        self.identity.namespaces()
    }

    /// Returns whether the viewer may see a namespace.
    pub(super) fn may_see(&self, namespace: &str) -> bool {
        self.identity.has_namespace(namespace)
    }

    /// Returns the namespace to show, of which `wanted` is what the viewer has asked for; `None` for all.
    ///
    /// # Errors
    /// The viewer may not see it.
    pub(super) fn namespace(&self, wanted: &str) -> Result<Option<String>, String> {
        match (wanted, self.namespaces()) {
            ("", None) => Ok(None),
            ("", Some(allowed)) => Ok(allowed.first().cloned()),
            (wanted, _) if self.may_see(wanted) => Ok(Some(wanted.to_owned())),
            (wanted, _) => Err(format!("This key does not allow the namespace {wanted}.")),
        }
    }
}

/// Returns whether a form was sent by a page of this server: browsers say where a form comes from, and other sites cannot say otherwise.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (text("origin"), text("host")) else { return false };
    origin.split_once("://").is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
    }

    #[test]
    fn o3_forms_of_other_sites_are_refused() {
        let host = ("host", "localhost:7117");
        assert!(is_same_origin(&headers(&[host, ("sec-fetch-site", "same-origin")])));
        assert!(is_same_origin(&headers(&[host, ("origin", "http://localhost:7117")])));
        for foreign in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("origin", "http://evil.test"),
            ("origin", "http://localhost:7118"),
            ("origin", "null"),
            ("accept", "*/*"),
        ] {
            assert!(!is_same_origin(&headers(&[host, foreign])), "{foreign:?}");
        }
        let both = [host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:7117")];
        assert!(!is_same_origin(&headers(&both)));
    }
}
