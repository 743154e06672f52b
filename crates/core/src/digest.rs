use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256 over named parts, which identifies equal requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 16]);

/// Collects the parts of a [`Digest`]. Every part is preceded by its length, so that moving a byte
/// from one part to the next changes the digest.
pub(crate) struct Digester(Sha256);

impl Digester {
    pub(crate) fn new(operation: &str) -> Self {
        Self(Sha256::new()).part(operation.as_bytes())
    }

    pub(crate) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    pub(crate) fn number(self, number: i64) -> Self {
        self.part(&number.to_le_bytes())
    }

    /// Adds a value as JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(value).expect("core types serialize to JSON");
        self.part(&bytes)
    }

    pub(crate) fn finish(self) -> Digest {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0.finalize()[..16]);
        Digest(half)
    }
}

impl Digest {
    /// A number that is evenly distributed over all digests. Core uses it in place of randomness.
    pub(crate) fn spread(self) -> u64 {
        let (first, _) = self.0.split_first_chunk().expect("a digest has sixteen bytes");
        u64::from_le_bytes(*first)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)?;
        Ok(Self(number.to_be_bytes()))
    }
}
