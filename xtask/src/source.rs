//! Rust source text, split into code, comments and literals.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Comment,
    /// A string or a character, with its quotes.
    Literal,
}

/// A stretch of text that is not code.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    kind: Kind,
    start: usize,
    end: usize,
}

/// One file.
pub(crate) struct Source {
    pub(crate) path: String,
    text: String,
    /// The text with everything but code blanked, byte by byte: an offset is valid in both.
    code: String,
    stretches: Vec<Stretch>,
    /// The start of the inline test module, or the end.
    tests_at: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let stretches = stretches(text);
        let code = blanked(text, &stretches);
        let tests_at = inline_tests_at(&code).unwrap_or(code.len());
        Self { path: path.to_owned(), text: text.to_owned(), code, stretches, tests_at }
    }

    pub(crate) fn is_test(&self) -> bool {
        is_test_path(&self.path)
    }

    /// The lines as written, up to the inline test module.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.text[..self.tests_at].lines()
    }

    /// The code without comments and literals, up to the inline test module.
    pub(crate) fn code(&self) -> &str {
        &self.code[..self.tests_at]
    }

    /// The same with the inline test module.
    pub(crate) fn code_and_tests(&self) -> &str {
        &self.code
    }

    /// Every comment or literal before the inline test module: its offset and its text.
    pub(crate) fn every(&self, kind: Kind) -> impl Iterator<Item = (usize, &str)> {
        let found = move |s: &&Stretch| s.kind == kind && s.start < self.tests_at;
        self.stretches.iter().filter(found).map(|s| (s.start, &self.text[s.start..s.end]))
    }

    /// The literals of the whole file, with their quotes: each one's offset and its text.
    pub(crate) fn every_literal(&self) -> impl Iterator<Item = (usize, &str)> {
        let literals = self.stretches.iter().filter(|s| s.kind == Kind::Literal);
        literals.map(|s| (s.start, &self.text[s.start..s.end]))
    }

    /// The comments of the whole file: each one's offset and its text. Consecutive lines with the
    /// same marker are one comment.
    pub(crate) fn comment_blocks(&self) -> Vec<(usize, &str)> {
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for next in self.stretches.iter().filter(|s| s.kind == Kind::Comment) {
            match blocks.last_mut() {
                Some((start, end)) if self.continues(*start, *end, next.start) => *end = next.end,
                _ => blocks.push((next.start, next.end)),
            }
        }
        blocks.into_iter().map(|(start, end)| (start, &self.text[start..end])).collect()
    }

    /// Whether the comment at `next` is one more line of the block from `start` to `end`.
    fn continues(&self, start: usize, end: usize, next: usize) -> bool {
        let indent = |at: usize| self.text[..at].rsplit('\n').next().unwrap_or_default();
        let gap = &self.text[end..next];
        let next_line = gap.trim().is_empty() && gap.matches('\n').count() == 1;
        // A comment after code on the same line is a block of one line.
        let own_line = indent(start).trim().is_empty();
        next_line && own_line && marker(&self.text[start..]) == marker(&self.text[next..])
    }

    /// The literals between two offsets, anywhere in the file, without their quotes.
    pub(crate) fn literals_in(&self, from: usize, to: usize) -> impl Iterator<Item = &str> {
        let inside = move |s: &&Stretch| s.kind == Kind::Literal && s.start >= from && s.end <= to;
        self.stretches.iter().filter(inside).map(|s| unquoted(&self.text[s.start..s.end]))
    }

    /// The literal at an offset, after optional whitespace.
    pub(crate) fn literal_at(&self, offset: usize) -> Option<&str> {
        let gap = self.text[offset..].len() - self.text[offset..].trim_start().len();
        let found = |s: &&Stretch| s.kind == Kind::Literal && s.start == offset + gap;
        self.stretches.iter().find(found).map(|s| unquoted(&self.text[s.start..s.end]))
    }

    pub(crate) fn line_of(&self, offset: usize) -> usize {
        1 + self.text[..offset].matches('\n').count()
    }

    /// `path:line`, as editors and terminals understand it.
    pub(crate) fn location(&self, offset: usize) -> String {
        format!("{}:{}", self.path, self.line_of(offset))
    }
}

pub(crate) fn is_test_path(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let file = parts.next().unwrap_or_default();
    let stem = file.strip_suffix(".rs").unwrap_or_default();
    let stem_is_test =
        matches!(stem, "test" | "tests") || stem.ends_with("_test") || stem.ends_with("_tests");
    let in_folder = parts.any(|part| {
        matches!(part, "test" | "tests" | "benches" | "fuzz" | "examples")
            || part.ends_with("store-test")
    });
    stem_is_test || in_folder
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The offsets of a phrase in code, as whole words.
pub(crate) fn mentions(code: &str, phrase: &str) -> impl Iterator<Item = usize> {
    let starts_word = phrase.starts_with(is_word);
    let ends_word = phrase.ends_with(is_word);
    code.match_indices(phrase).map(|(at, _)| at).filter(move |&at| {
        let before = starts_word && code[..at].ends_with(is_word);
        let after = ends_word && code[at + phrase.len()..].starts_with(is_word);
        !before && !after
    })
}

pub(crate) fn unquoted(literal: &str) -> &str {
    let inner = literal.trim_start_matches(['r', 'b', 'c']).trim_matches('#');
    let mut chars = inner.chars();
    chars.next();
    chars.next_back();
    chars.as_str()
}

fn inline_tests_at(code: &str) -> Option<usize> {
    let mut at = 0;
    let mut marked = None;
    for line in code.split_inclusive('\n') {
        let module = line.strip_prefix("pub ").unwrap_or(line).starts_with("mod ");
        if module && line.contains('{') && marked.is_some() {
            return marked;
        }
        marked = line.starts_with("#[cfg(test)]").then_some(at);
        at += line.len();
    }
    None
}

fn blanked(text: &str, stretches: &[Stretch]) -> String {
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    for stretch in stretches {
        code.push_str(&text[at..stretch.start]);
        for byte in text[stretch.start..stretch.end].bytes() {
            code.push(if byte == b'\n' { '\n' } else { ' ' });
        }
        at = stretch.end;
    }
    code.push_str(&text[at..]);
    code
}

fn stretches(text: &str) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut after_word = false;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = comment(rest).map(|length| (Kind::Comment, length));
        let length = length.or_else(|| {
            let prefixed = if after_word { quotes(rest) } else { literal(rest) };
            prefixed.map(|length| (Kind::Literal, length))
        });
        if let Some((kind, length)) = length {
            found.push(Stretch { kind, start: at, end: at + length });
            at += length;
            after_word = false;
        } else {
            at += c.len_utf8();
            after_word = is_word(c);
        }
    }
    found
}

/// The characters that begin a comment: `//`, `///`, `//!` or `/*`.
fn marker(comment: &str) -> &'static str {
    ["///", "//!", "//", "/*"].into_iter().find(|m| comment.starts_with(m)).unwrap_or_default()
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let (step, change) = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// The length of a literal with its prefix, if one begins here.
fn literal(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| rest.starts_with(prefix));
    if let Some(prefix) = prefix {
        let inner = &rest[prefix.len()..];
        let hashes = inner.len() - inner.trim_start_matches('#').len();
        if inner[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = prefix.len() + hashes + 1;
            let end = rest[open..].find(&close).map(|found| open + found + close.len());
            return Some(end.unwrap_or(rest.len()));
        }
    }
    match rest.strip_prefix(['b', 'c']) {
        Some(inner) if inner.starts_with(['"', '\'']) => quotes(inner).map(|length| length + 1),
        _ => quotes(rest),
    }
}

/// The length of a string or character without a prefix. A lifetime is neither.
fn quotes(rest: &str) -> Option<usize> {
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = rest.char_indices().skip(1);
    if quote == '\'' {
        let (first, second) = (chars.next()?.1, chars.clone().next().map(|(_, c)| c));
        if first != '\\' && second != Some('\'') {
            return None;
        }
        chars = rest.char_indices().skip(1);
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    Some(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> String {
        Source::new("a.rs", text).code_and_tests().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_code_remains() {
        for (text, code) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"f("x // y", 'z')"#, "f( , )"),
            (r#"f("\"", '"', '\'', '\\')"#, "f( , , , )"),
            (r###"f(r#"a " b"#, br"\", b"c", b'd', c"e")"###, "f( , , , , )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("r#fn", "r#fn"),
            ("let é = 'é'; b", "let é = ; b"),
        ] {
            assert_eq!(code_of(text), code, "{text}");
        }
    }

    #[test]
    fn offsets_mean_the_same_in_text_and_code() {
        let source = Source::new("a.rs", "é // é\n\"é\" x\n");
        assert_eq!(source.code.len(), source.text.len());
        assert_eq!(source.location(source.code.find('x').unwrap()), "a.rs:2");
    }

    #[test]
    fn literals_are_read_without_quotes() {
        let text = r###"f( "a"); g(r#"b"#);"###;
        let source = Source::new("a.rs", text);
        assert_eq!(source.literal_at(2), Some("a"));
        assert_eq!(source.literal_at(0), None);
        assert_eq!(source.literals_in(0, text.len()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn consecutive_lines_with_one_marker_are_one_comment() {
        for (text, expected) in [
            ("// a\n// b\n\n// c", "// a\n// b|// c"),
            ("//! a\n/// b\n    /// c\n// d", "//! a|/// b\n    /// c|// d"),
            ("x; // a\n// b\n// c", "// a|// b\n// c"),
            ("// a\nx\n// b", "// a|// b"),
            ("f(\"// a\")\n/* b\n c */", "/* b\n c */"),
        ] {
            let source = Source::new("a.rs", text);
            let found: Vec<&str> = source.comment_blocks().into_iter().map(|b| b.1).collect();
            assert_eq!(found.join("|"), expected, "{text}");
        }
    }

    #[test]
    fn inline_tests_are_excluded() {
        let text =
            "a\n#[cfg(test)]\nmod testing;\nfn b() {}\n#[cfg(test)]\nmod tests {\nfn x() {}\n}\n";
        let source = Source::new("a.rs", text);
        assert_eq!(source.lines().count(), 4);
        assert!(source.code().contains("b()") && !source.code().contains("x()"));
    }

    #[test]
    fn some_paths_hold_tests() {
        for path in [
            "crates/core/tests/a.rs",
            "crates/core/src/world/tests.rs",
            "crates/engine/src/crash_test.rs",
            "crates/store-test/src/lib.rs",
            "crates/core/benches/a.rs",
            "examples/a.rs",
        ] {
            assert!(is_test_path(path), "{path}");
        }
        for path in ["crates/core/src/testing.rs", "crates/core/src/contest.rs", "src/latest.rs"] {
            assert!(!is_test_path(path), "{path}");
        }
    }

    #[test]
    fn a_mention_is_a_whole_word() {
        let count = |code, phrase| mentions(code, phrase).count();
        assert_eq!(count("rand operand rand_core brand rand::x", "rand"), 2);
        assert_eq!(count("MyHashMap HashMap<", "HashMap"), 1);
        assert_eq!(count("eprintln!() println!()", "println!"), 1);
    }
}
