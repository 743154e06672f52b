use std::fmt;

use crate::tree;

/// FNV-1a with 128 bits: the same on every machine and with every compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u128);

impl Hash {
    pub(crate) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds one field. Its length goes first, so that no two lists of fields hash the same input.
    #[must_use]
    pub(crate) fn field(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.bytes(&(bytes.len() as u64).to_le_bytes()).bytes(bytes)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul((1 << 88) | 0x13b);
        }
        self
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sixteen digits are enough to distinguish trees.
        write!(f, "{:016x}", (self.0 >> 64) as u64 ^ self.0 as u64)
    }
}

/// The hash of the names and contents of the files in these folders and of the files that pin
/// dependencies, tracked or not. Commits and documents do not change it.
pub(crate) fn tree_hash(folders: &[&str]) -> Result<Hash, String> {
    let counts = |path: &str| {
        let inside = folders
            .iter()
            .any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')));
        matches!(path, "Cargo.toml" | "Cargo.lock") || (inside && !path.ends_with(".md"))
    };
    let mut hash = Hash::new();
    for path in tree::files_where(counts)? {
        let bytes = std::fs::read(tree::root().join(&path));
        hash = hash.field(&path).field(bytes.map_err(|error| format!("{path}: {error}"))?);
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv() {
        // The reference value for the empty input and for "a".
        assert_eq!(Hash::new().bytes(b"").0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(Hash::new().bytes(b"a").0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn field_boundaries_change_the_hash() {
        let hash = |fields: &[&str]| fields.iter().fold(Hash::new(), |hash, text| hash.field(text));
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["ab"]), hash(&["ab", ""]));
        assert_eq!(hash(&["ab"]).to_string().len(), 16);
    }

    #[test]
    fn the_hash_of_a_tree_depends_on_its_folders() {
        let core = tree_hash(&["crates/core"]).unwrap();
        assert_eq!(core, tree_hash(&["crates/core"]).unwrap());
        assert_ne!(core, tree_hash(&["crates/core", "crates/store"]).unwrap());
    }
}
