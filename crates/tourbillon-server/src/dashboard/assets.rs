//! The files of the pages, which are parts of the program.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

/// A file of the pages.
struct Asset {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const ASSETS: [Asset; 3] = [
    Asset { name: "style.css", media: "text/css; charset=utf-8", bytes: include_bytes!("assets/style.css") },
    Asset { name: "app.js", media: "text/javascript; charset=utf-8", bytes: include_bytes!("assets/app.js") },
    Asset { name: "icon.svg", media: "image/svg+xml", bytes: include_bytes!("assets/icon.svg") },
];

/// The version of all files together: it is a part of their addresses, so that browsers may keep them for ever.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    ASSETS.iter().for_each(|asset| hash.update(asset.bytes));
    hash.finalize().iter().take(6).fold(String::new(), |mut text, byte| {
        let _never_fails = write!(text, "{byte:02x}");
        text
    })
});

/// Returns the address of a file.
pub(super) fn address(name: &str) -> String {
    format!("/assets/{name}?v={}", *VERSION)
}

/// Serves a file.
pub(super) async fn serve(Path(name): Path<String>, RawQuery(query): RawQuery) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is_current = query.is_some_and(|query| query == format!("v={}", *VERSION));
    let lifetime = if is_current { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers: [(HeaderName, HeaderValue); 2] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.media)),
        (header::CACHE_CONTROL, HeaderValue::from_static(lifetime)),
    ];
    (headers, asset.bytes).into_response()
}
