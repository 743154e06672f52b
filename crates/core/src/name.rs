use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::rejection::{Problem, Rejection};
use crate::row::Value;

/// Declares a name type: a cheap-to-clone text with its own type.
///
/// A name holds any text. A command checks length and characters against [`crate::limits`] when it
/// is decided.
macro_rules! names {
    ($($(#[$doc:meta])* $Name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $Name(Arc<str>);

        impl $Name {
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $Name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $Name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<&$Name> for Value {
            fn from(name: &$Name) -> Self {
                Value::Text(name.0.clone())
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

names! {
    /// The isolation boundary; the first part of every key.
    Tenant
    /// The id of a task within its tenant: chosen by the caller, or a time-ordered UUID.
    TaskId
    /// The name of the handler of a task.
    Kind
    /// The name of the queue that a task waits in.
    LaneName
    /// The name of a worker, which can hold leases.
    WorkerId
    /// The id of one run of an engine.
    NodeId
    /// The id of a waitpoint within its tenant.
    WaitpointId
}

/// The idempotency key of a request. It is a secret, since it gives access to the response. Only
/// its first characters are ever printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    const SHOWN: usize = 8;

    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }

    /// The whole key, to compare, store and derive from; never print it.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// Checks it against the limits.
    pub fn check(&self) -> Result<(), Rejection> {
        limits::IDEMPOTENCY_KEY.check(self.expose_secret())
    }

    /// Also checks that it is too long to guess, and has only characters that every header and log
    /// preserves.
    pub fn check_plain(&self) -> Result<(), Rejection> {
        self.check()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        let problem = if self.expose_secret().len() < limits::MIN_REQUEST_KEY_LENGTH as usize {
            Problem::TooShort { min_bytes: limits::MIN_REQUEST_KEY_LENGTH }
        } else if !self.expose_secret().chars().all(is_plain) {
            Problem::InvalidCharacters { allowed: "_ . : -" }
        } else {
            return Ok(());
        };
        Err(Rejection::Invalid { field: limits::IDEMPOTENCY_KEY.field, problem })
    }
}

impl From<&str> for IdempotencyKey {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for IdempotencyKey {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl From<&IdempotencyKey> for Value {
    fn from(key: &IdempotencyKey) -> Self {
        Value::Text(key.0.clone())
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(Self::SHOWN).collect();
        write!(f, "{shown:?}..")
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::new("default")
    }
}

impl Default for LaneName {
    fn default() -> Self {
        Self::new("default")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_keys() {
        let long = "x".repeat(256);
        for (text, problem) in [
            ("order-2024:000.017_b", None),
            ("0123456789abcdef", None),
            ("0123456789abcde", Some(Problem::TooShort { min_bytes: 16 })),
            ("", Some(Problem::Empty)),
            ("0123456789abcde/", Some(Problem::InvalidCharacters { allowed: "_ . : -" })),
            ("0123456789abcde+", Some(Problem::InvalidCharacters { allowed: "_ . : -" })),
            ("0123456789 abcdef", Some(Problem::InvalidCharacters { allowed: "_ . : -" })),
            ("0123456789abcd\u{e9}f", Some(Problem::InvalidCharacters { allowed: "_ . : -" })),
            ("0123456789abcdef\n", Some(Problem::ControlCharacter)),
            (&long, Some(Problem::TooLong { max_bytes: 255 })),
        ] {
            let field = limits::IDEMPOTENCY_KEY.field;
            let expected = problem.map(|problem| Rejection::Invalid { field, problem });
            assert_eq!(IdempotencyKey::new(text).check_plain().err(), expected, "{text:?}");
        }
        assert_eq!(IdempotencyKey::new("a key").check(), Ok(()));
    }
}
