use crate::proof::Hash;

/// A rule, and the change that disables it.
#[derive(Clone, Copy)]
pub(super) struct Mutation {
    pub(super) rule: &'static str,
    pub(super) file: &'static str,
    /// Found exactly once in the file.
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

impl Mutation {
    pub(super) fn patch(&self, text: &str) -> Result<String, String> {
        match text.matches(self.from).count() {
            1 => Ok(text.replace(self.from, self.to)),
            times => Err(format!(
                "the patch for \"{}\" does not fit: {} has {times} times {:?}",
                self.rule, self.file, self.from
            )),
        }
    }

    /// The key of its result. A changed row has no result yet.
    pub(super) fn key(&self, how: impl AsRef<[u8]>) -> String {
        let fields = [self.rule, self.file, self.from, self.to];
        let row = fields.iter().fold(Hash::new(), |hash, field| hash.field(field));
        row.field(how).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Mutation = Mutation { rule: "r", file: "f.rs", from: "a", to: "b" };

    #[test]
    fn a_patch_that_does_not_fit_is_an_error() {
        assert_eq!(ROW.patch("a c").unwrap(), "b c");
        for (text, times) in [("c", 0), ("a a", 2)] {
            let expected =
                format!("the patch for \"r\" does not fit: f.rs has {times} times \"a\"");
            assert_eq!(ROW.patch(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_changed_row_has_a_different_key() {
        let key = ROW.key("10 seeds");
        assert_eq!(key, ROW.key("10 seeds"));
        assert_ne!(key, ROW.key("20 seeds"));
        for changed in [
            Mutation { rule: "s", ..ROW },
            Mutation { file: "g.rs", ..ROW },
            Mutation { from: "c", ..ROW },
            Mutation { to: "", ..ROW },
        ] {
            assert_ne!(key, changed.key("10 seeds"));
        }
    }
}
