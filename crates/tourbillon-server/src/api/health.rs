//! Whether the server lives and can work.

/// Answers that the process lives.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}
