use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::digest::Digester;
use crate::limits;
use crate::name::Kind;
use crate::rejection::{Problem, Rejection};
use crate::task::check_token;

/// A version of the code of a workflow, such as `1.2.0` or `2.0.0-beta.1+7`. Versions are ordered
/// by precedence as in semantic versioning; build metadata after a `+` only distinguishes versions,
/// and breaks ties by text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeVersion {
    text: String,
    numbers: [u64; 3],
    /// The pre-release after the first `-`: it is older than the same version without.
    before: Vec<Part>,
}

/// Numbers sort before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

impl CodeVersion {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The capability that a workflow of this version requires, and a worker with the code offers.
    pub fn capability(&self, kind: &Kind) -> String {
        let text = format!("{kind}:{}", self.text);
        let is_one = limits::CAPABILITY.check(&text).and_then(|()| check_token("kind", &text));
        if is_one.is_ok() {
            return text;
        }
        // A kind may contain characters that a capability may not.
        let digester = Digester::new("version").part(kind.as_str().as_bytes());
        let digest = digester.part(self.text.as_bytes()).finish();
        format!("{digest}:{}", self.text)
    }
}

impl FromStr for CodeVersion {
    type Err = Rejection;

    fn from_str(text: &str) -> Result<Self, Rejection> {
        limits::VERSION.check(text)?;
        let field = limits::VERSION.field;
        read(text).ok_or(Rejection::Invalid { field, problem: Problem::InvalidVersion })
    }
}

fn read(text: &str) -> Option<CodeVersion> {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, b)| (rest, Some(b)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, b)| (core, Some(b)));
    let numbers: Vec<u64> = core.split('.').map(number).collect::<Option<_>>()?;
    let before = before.map_or(Some(Vec::new()), |b| b.split('.').map(part).collect())?;
    let is_word = |word: &str| !word.is_empty() && word.chars().all(is_plain);
    if !build.is_none_or(|build| build.split('.').all(is_word)) {
        return None;
    }
    Some(CodeVersion { text: text.to_owned(), numbers: numbers.try_into().ok()?, before })
}

/// Digits without a leading zero.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if plain && !padded { text.parse().ok() } else { None }
}

fn part(text: &str) -> Option<Part> {
    if text.is_empty() || !text.chars().all(is_plain) {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(Part::Number);
    }
    Some(Part::Text(text.to_owned()))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

impl Ord for CodeVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_final = self.before.is_empty().cmp(&other.before.is_empty());
        let numbers = self.numbers.cmp(&other.numbers).then(is_final);
        numbers.then(self.before.cmp(&other.before)).then(self.text.cmp(&other.text))
    }
}

impl PartialOrd for CodeVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for CodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_versions() {
        let versions = ["1.2.0", "0.0.0", "10.20.30", "1.0.0-alpha", "1.0.0-a.1-b", "1.0.0+x-1.0"];
        for text in versions {
            assert_eq!(
                text.parse::<CodeVersion>().map(|version| version.to_string()).as_deref(),
                Ok(text)
            );
        }
        let others = [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "1.2.03",
            "1.2.-3",
            "1.2.3-",
            "1.2.3-a..b",
            "1.2.3-01",
            "1.2.3+",
            "1.2.3+a_b",
            "1.2.3 ",
            "1,2,3",
            "99999999999999999999.0.0",
        ];
        for text in others {
            assert_eq!(text.parse::<CodeVersion>().unwrap_err().code(), "invalid", "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_by_precedence() {
        let order = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-beta",
            "1.0.0",
            "1.0.0+1",
            "1.0.1",
            "1.2.0",
            "1.10.0",
            "2.0.0-rc",
            "2.0.0",
        ];
        let versions: Vec<CodeVersion> = order.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted(), "{versions:?}");
    }

    #[test]
    fn a_capability_is_a_valid_token_for_any_kind() {
        let version: CodeVersion = "1.2.0+a".parse().unwrap();
        assert_eq!(version.capability(&"order".into()), "order:1.2.0+a");
        let long = "x".repeat(255);
        let mut seen = std::collections::BTreeSet::new();
        for kind in ["an order", "an,order", "an@order", &long] {
            let capability = version.capability(&kind.into());
            crate::task::Route::check(&[capability.clone()].into(), None).unwrap();
            assert!(seen.insert(capability));
        }
    }
}
