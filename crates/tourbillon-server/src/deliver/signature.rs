//! Signatures of webhooks, as Standard Webhooks has them: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The beginning of a secret as text.
const PREFIX: &str = "whsec_";

/// The fewest bytes of a secret.
const SHORTEST: usize = 16;

/// The most bytes of a secret.
const LONGEST: usize = 64;

/// A secret that signs webhooks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    /// Reads a secret: `whsec_` and base64.
    ///
    /// # Errors
    /// The text says how a secret looks. It does not repeat the secret.
    pub(crate) fn parse(text: &str) -> Result<Secret, String> {
        let bytes = text.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        match bytes {
            Some(bytes) if (SHORTEST..=LONGEST).contains(&bytes.len()) => Ok(Secret(bytes)),
            _ => Err(format!("a webhook secret is `{PREFIX}` and {SHORTEST} to {LONGEST} bytes in base64")),
        }
    }

    /// Returns a new secret.
    pub(crate) fn generate() -> Secret {
        let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        Secret(random.iter().flat_map(|part| *part.as_bytes()).collect())
    }

    /// Returns the secret as text.
    pub(crate) fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// Returns the header `webhook-signature` for a message.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // HMAC takes keys of every length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_the_signature_is_that_of_the_standard() {
        // The example in the documentation of Standard Webhooks' reference libraries.
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_read_again_and_never_shown() {
        let secret = Secret::generate();
        assert_eq!(Secret::parse(&secret.reveal()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        for bad in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%%%"] {
            let error = Secret::parse(bad).unwrap_err();
            assert!(bad.len() < 8 || !error.contains(bad), "{error}");
        }
    }
}
