//! Receipts of pulled timers, as text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tourbillon_durable::store::RowId;
use tourbillon_durable::{Receipt, TimerId};

/// The bytes of a receipt: id, occurrence, attempt, fence, and a digest of the queue that it is for.
const LENGTH: usize = 16 + 8 + 4 + 8 + 4;

/// Returns a receipt as text, for the queue of this kind.
pub(super) fn to_text(receipt: &Receipt, kind: &str) -> String {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend(receipt.id.timer.as_u128().to_be_bytes());
    bytes.extend(receipt.id.occurrence.to_be_bytes());
    bytes.extend(receipt.attempt.to_be_bytes());
    bytes.extend(receipt.fence.to_be_bytes());
    bytes.extend(digest(kind));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a receipt; `None` if it is none, or one of another queue.
pub(super) fn from_text(text: &str, kind: &str) -> Option<Receipt> {
    let bytes: [u8; LENGTH] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
    let (timer, rest) = bytes.split_first_chunk::<16>()?;
    let (occurrence, rest) = rest.split_first_chunk::<8>()?;
    let (attempt, rest) = rest.split_first_chunk::<4>()?;
    let (fence, queue) = rest.split_first_chunk::<8>()?;
    let id =
        RowId { timer: TimerId::from_u128(u128::from_be_bytes(*timer)), occurrence: u64::from_be_bytes(*occurrence) };
    let receipt = Receipt { id, attempt: u32::from_be_bytes(*attempt), fence: u64::from_be_bytes(*fence) };
    // An epoch of a node is no fence: what a node delivers cannot be acknowledged from outside.
    (queue == digest(kind) && tourbillon_durable::store::is_pull_fence(receipt.fence)).then_some(receipt)
}

fn digest(kind: &str) -> [u8; 4] {
    let digest = Sha256::digest(kind.as_bytes());
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v5_a_receipt_is_read_again_for_its_own_queue_only() {
        let id = RowId { timer: TimerId::new(), occurrence: 3 };
        let receipt = Receipt { id, attempt: 2, fence: tourbillon_durable::store::pull_fence(77) };
        let text = to_text(&receipt, "queue:default/mail");
        assert_eq!(from_text(&text, "queue:default/mail"), Some(receipt));
        assert_eq!(from_text(&text, "queue:other/mail"), None);
        assert_eq!(from_text(&text[1..], "queue:default/mail"), None);
        let forged = to_text(&Receipt { fence: 5, ..receipt }, "queue:default/mail");
        assert_eq!(from_text(&forged, "queue:default/mail"), None);
    }
}
