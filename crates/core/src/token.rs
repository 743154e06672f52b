use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::digest::{Digest, Digester};
use crate::keyring::SigningKey;
use crate::name::WaitpointId;
use crate::rejection::{Problem, Rejection};
use crate::waitpoint::Waitpoint;

/// The version of the token format.
const FORM: &str = "wl1";

/// The bearer token of a waitpoint. It is returned to its creator and not stored. Formatting it
/// reveals nothing; [`Token::expose_secret`] returns its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// A parsed token, not verified yet.
pub(crate) struct Claimed {
    pub(crate) key_id: String,
    pub(crate) waitpoint: WaitpointId,
    expires_ms: i64,
    mac: Vec<u8>,
}

impl Token {
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }

    /// The text of the token, for its recipient.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// Signs a waitpoint. The same waitpoint and key give the same token.
    pub(crate) fn sign(key: &SigningKey, waitpoint: &Waitpoint) -> Self {
        let mac = hex(&mac_of(key, waitpoint).finalize().into_bytes());
        let (id, expires_ms) = (&waitpoint.id, waitpoint.expires_at.millis());
        Self::new(format!("{FORM}.{}.{id}.{expires_ms}.{mac}", key.id))
    }

    /// A digest that identifies the token without revealing it.
    pub(crate) fn fingerprint(&self) -> Digest {
        Digester::new("token").part(self.0.as_bytes()).finish()
    }

    /// Parses the token, if it has the format of one.
    pub(crate) fn parts(&self) -> Option<Claimed> {
        let mut parts = self.0.split('.');
        if parts.next()? != FORM {
            return None;
        }
        let claimed = Claimed {
            key_id: parts.next()?.to_owned(),
            waitpoint: parts.next()?.into(),
            expires_ms: parts.next()?.parse().ok()?,
            mac: bytes(parts.next()?)?,
        };
        let ids = [claimed.key_id.as_str(), claimed.waitpoint.as_str()];
        let fits = parts.next().is_none() && ids.iter().all(|id| is_token_part(id));
        fits.then_some(claimed)
    }
}

/// Derives a key for one provider from a text: deterministic, and neither reveals the text nor can
/// be computed by another provider.
pub(crate) fn derive(key: &SigningKey, provider: &str, text: &str) -> String {
    let mac = |key: &[u8], text: &str| {
        let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
        mac.chain_update(text.as_bytes()).finalize().into_bytes()
    };
    let of_provider = mac(&key.secret.bytes(), &format!("provider/{provider}"));
    hex(&mac(&of_provider, text))
}

impl Claimed {
    /// Whether this key has signed this waitpoint, in constant time.
    pub(crate) fn is_proved_by(&self, key: &SigningKey, waitpoint: &Waitpoint) -> bool {
        let signed = mac_of(key, waitpoint).verify_slice(&self.mac).is_ok();
        signed && self.expires_ms == waitpoint.expires_at.millis()
    }
}

fn mac_of(key: &SigningKey, waitpoint: &Waitpoint) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.secret.bytes())
        .expect("HMAC accepts keys of any length");
    let expires_at = waitpoint.expires_at.micros().to_le_bytes();
    let names = [waitpoint.tenant.as_str(), waitpoint.id.as_str(), waitpoint.task.as_str()];
    for part in names.map(str::as_bytes).into_iter().chain([&expires_at[..]]) {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Whether a text is allowed as a part of a token, which must be safe in a URL.
fn is_token_part(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
}

pub(crate) fn check_token_part(field: &'static str, text: &str) -> Result<(), Rejection> {
    if is_token_part(text) {
        return Ok(());
    }
    Err(Rejection::Invalid { field, problem: Problem::InvalidCharacters { allowed: "_ : -" } })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Decodes hexadecimal text.
pub(crate) fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Option<Vec<u8>> = hex.as_bytes().iter().map(digit).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] << 4) | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::Secret;
    use crate::time::Timestamp;
    use crate::waitpoint::WaitpointState;

    fn key(id: &str, secret: &str) -> SigningKey {
        let (secret, added_at) = (Secret::new(secret.repeat(32)), Timestamp::default());
        SigningKey { id: id.into(), secret, added_at, expires_at: None }
    }

    fn waitpoint() -> Waitpoint {
        Waitpoint {
            tenant: "default".into(),
            id: "p1".into(),
            task: "t".into(),
            state: WaitpointState::Pending,
            created_at: Timestamp::from_millis(1_000),
            expires_at: Timestamp::from_millis(61_000),
            key_id: "k1".into(),
            fingerprint: Digester::new("token").finish(),
        }
    }

    /// People have links with tokens, so the format must not change.
    #[test]
    fn the_token_format_is_stable() {
        let token = Token::sign(&key("k1", "07"), &waitpoint());
        let (start, mac) = token.expose_secret().rsplit_once('.').unwrap();
        assert_eq!(start, "wl1.k1.p1.61000");
        assert_eq!(mac, "5d914d290c5b5ff862bbfa30f147faa2fece503875389918bfa23b8ecb669a91");
    }

    #[test]
    fn only_the_signed_waitpoint_is_verified() {
        let (right, signed) = (key("k1", "07"), waitpoint());
        let token = Token::sign(&right, &signed);
        let parts = || token.parts().unwrap();
        assert!(parts().is_proved_by(&right, &signed));
        assert!(!parts().is_proved_by(&key("k1", "08"), &signed), "another secret");
        let later = Timestamp::from_micros(signed.expires_at.micros() + 1);
        let others = [
            Waitpoint { tenant: "other".into(), ..signed.clone() },
            Waitpoint { id: "p2".into(), ..signed.clone() },
            Waitpoint { task: "u".into(), ..signed.clone() },
            Waitpoint { expires_at: later, ..signed.clone() },
        ];
        for other in others {
            assert!(!parts().is_proved_by(&right, &other), "{other:?}");
        }
        let moved = Waitpoint { id: "p".into(), task: "1t".into(), ..signed.clone() };
        assert!(!parts().is_proved_by(&right, &moved), "a byte moved from one part to the next");
        for (at, _) in token.expose_secret().char_indices() {
            let mut bytes = token.expose_secret().as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = Token::new(String::from_utf8(bytes).unwrap());
            let proved = changed.parts().is_some_and(|parts| {
                let same = parts.key_id == right.id && parts.waitpoint == signed.id;
                same && parts.is_proved_by(&right, &signed)
            });
            assert!(!proved, "the character at {at} was changed");
        }
    }

    #[test]
    fn malformed_tokens_are_rejected() {
        for text in [
            "",
            "wl1",
            "wl1.k1.p1.61000",
            "wl1.k1.p1.61000.",
            "wl1.k1.p1.61000.0g",
            "wl1.k1.p1.61000.000",
            "wl2.k1.p1.61000.00",
            "wl1..p1.61000.00",
            "wl1.k1..61000.00",
            "wl1.k1.p1.soon.00",
            "wl1.k1.p1.61000.00.00",
            "wl1.k1.p\0.61000.00",
            "wl1.k1.p/1.61000.00",
        ] {
            let parts = Token::new(text).parts();
            assert!(parts.is_none_or(|parts| parts.mac.is_empty()), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = Token::new("wl1.k1.p1.61000.00");
        assert_eq!((format!("{token}"), format!("{token:?}")), ("Token".into(), "Token".into()));
    }
}
