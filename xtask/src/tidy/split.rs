//! Text and identifiers, split into words.

/// A word, and its offset in the text.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) at: usize,
    pub(super) text: &'a str,
}

impl Word<'_> {
    pub(super) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// The words of a text. An identifier in it is split at `_` and at camel-case humps.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    let mut start = None;
    let mut chars = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |&(_, after)| after);
        let begins = is_hump(before, c, after) || !before.is_alphanumeric();
        if c.is_alphanumeric() && begins {
            found.extend(start.map(|start| Word { at: start, text: &text[start..at] }));
            start = Some(at);
        } else if !c.is_alphanumeric() {
            found.extend(start.take().map(|start| Word { at: start, text: &text[start..at] }));
        }
        before = c;
    }
    found.extend(start.map(|start| Word { at: start, text: &text[start..] }));
    found
}

/// `aB`, and the `Bc` of `ABc`.
fn is_hump(before: char, c: char, after: char) -> bool {
    c.is_uppercase()
        && (before.is_lowercase()
            || before.is_ascii_digit()
            || before.is_uppercase() && after.is_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_at_spaces_underscores_and_humps() {
        for (text, expected) in [
            ("A lease expires.", "A lease expires"),
            ("fn it_ends_first(x: u8)", "fn it ends first x u8"),
            ("LeaseLoss HTTPServer OneOf3 StepID", "Lease Loss HTTP Server One Of3 Step ID"),
            ("SESSIONS é_à", "SESSIONS é à"),
            ("", ""),
        ] {
            let found: Vec<&str> = words(text).iter().map(|word| word.text).collect();
            assert_eq!(found.join(" "), expected, "{text}");
            assert!(words(text).iter().all(|word| text[word.at..word.end()] == *word.text));
        }
    }
}
