use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::digest::{Digest, Digester};
use crate::keyring::SigningKey;
use crate::name::WaitpointId;
use crate::rejection::{Problem, Rejection};
use crate::waitpoint::Waitpoint;

/// The form of a token, so that another one can follow it.
const FORM: &str = "wl1";

/// What opens a waitpoint to whoever has it. It is handed out once and kept nowhere; written for
/// people or programs it says nothing, unless it is asked to [`Token::reveal`] itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// A token taken apart. Nothing of it is true before it was proved.
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

    /// The token itself, for whoever is to have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Signs a waitpoint. The same waitpoint and key make the same token.
    pub(crate) fn sign(key: &SigningKey, waitpoint: &Waitpoint) -> Self {
        let mac = hex(&mac_of(key, waitpoint).finalize().into_bytes());
        let (id, expires_ms) = (&waitpoint.id, waitpoint.expires_at.millis());
        Self::new(format!("{FORM}.{}.{id}.{expires_ms}.{mac}", key.id))
    }

    /// Tells it from others, and nothing of what it says.
    pub(crate) fn fingerprint(&self) -> Digest {
        Digester::new("token").part(self.0.as_bytes()).finish()
    }

    /// Takes it apart, if it has the form of a token.
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

/// What a key makes of a text for one provider: the same each time, and nothing that tells the text
/// or lets another provider make it.
pub(crate) fn derive(key: &SigningKey, provider: &str, text: &str) -> String {
    let mac = |key: &[u8], text: &str| {
        let mac = Hmac::<Sha256>::new_from_slice(key).expect("any length of key will do");
        mac.chain_update(text.as_bytes()).finalize().into_bytes()
    };
    let of_provider = mac(&key.secret.bytes(), &format!("provider/{provider}"));
    hex(&mac(&of_provider, text))
}

impl Claimed {
    /// Whether this key has signed this waitpoint. How long it takes tells nothing.
    pub(crate) fn is_proved_by(&self, key: &SigningKey, waitpoint: &Waitpoint) -> bool {
        let signed = mac_of(key, waitpoint).verify_slice(&self.mac).is_ok();
        signed && self.expires_ms == waitpoint.expires_at.millis()
    }
}

fn mac_of(key: &SigningKey, waitpoint: &Waitpoint) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.secret.bytes())
        .expect("a key of any length is one for this code");
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

/// What may stand between the dots of a token, and in a link.
fn is_token_part(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
}

pub(crate) fn check_token_part(field: &'static str, text: &str) -> Result<(), Rejection> {
    if is_token_part(text) {
        return Ok(());
    }
    Err(Rejection::Invalid { field, problem: Problem::NotATokenPart })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The bytes of a text in pairs of hexadecimal digits.
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
        SigningKey { id: id.into(), secret, added_at, ends_at: None }
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

    /// The bytes are in links that people hold: they stay what they are.
    #[test]
    fn a_token_stays_what_it_is() {
        let token = Token::sign(&key("k1", "07"), &waitpoint());
        let (start, mac) = token.reveal().rsplit_once('.').unwrap();
        assert_eq!(start, "wl1.k1.p1.61000");
        assert_eq!(mac, "5d914d290c5b5ff862bbfa30f147faa2fece503875389918bfa23b8ecb669a91");
    }

    #[test]
    fn only_what_was_signed_is_proved() {
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
        for (at, _) in token.reveal().char_indices() {
            let mut bytes = token.reveal().as_bytes().to_vec();
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
    fn what_has_another_form_is_no_token() {
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
    fn it_is_shown_to_nobody() {
        let token = Token::new("wl1.k1.p1.61000.00");
        assert_eq!((format!("{token}"), format!("{token:?}")), ("Token".into(), "Token".into()));
    }
}
