//! Public types are named with terms of the vocabulary.

use std::collections::BTreeSet;

use super::rule::Rule;
use super::split::words;
use crate::matrix;
use crate::source::{Source, is_word, mentions};
use crate::tree;

const TABLE: &str = "ARCHITECTURE.md";
const TERMS_MAX: usize = 80;
const CORE: &str = "crates/core/src/";
/// The files that re-export what callers name.
const ENTRIES: [&str; 3] =
    ["crates/windlass/src/lib.rs", "crates/windlass/src/workflow.rs", "crates/tower/src/lib.rs"];

/// Head nouns that need no definition: a Rust or Postgres programmer knows them.
const GENERAL: &str = "\
    Builder Cancellation Category Cause Change Class Clock Config Context Count Definition \
    Either End Engine Entry Error Failure Filter Function Handle Hint Id Index Info Join Key \
    Kind Layer Lookup Matcher Metadata Name Nondeterminism Of Options Policy Principal Progress \
    Range Reason Record Report Response Result Row Scan Secret Select Signature Slice Slot Spec \
    Start State Stats Status Stream Table Timeout Timestamp Update Url Value Version Wait Window";

pub(super) fn rule(sources: &[Source]) -> Result<Rule, String> {
    let terms = terms(&tree::read(TABLE)?);
    let mut findings = Vec::new();
    if terms.len() > TERMS_MAX {
        findings.push(format!("{TABLE} has {} terms, {TERMS_MAX} at most", terms.len()));
    }
    let vocabulary = vocabulary(&terms);
    // A command is named by its verb.
    let commands = matrix::commands(sources)?;
    for (location, name) in public_types(sources) {
        if !commands.contains(&name) && !is_in_vocabulary(&name, &vocabulary) {
            let noun = head(&name);
            findings.push(format!("{location} {name}: {noun} is not in the vocabulary of {TABLE}"));
        }
    }
    Ok(Rule { title: "types named outside the vocabulary", findings })
}

/// The term and the types of each row of the vocabulary.
fn terms(document: &str) -> Vec<(String, String)> {
    let section = document.split("\n## ").find(|section| section.starts_with("Vocabulary\n"));
    let rows = section.unwrap_or_default().lines().filter(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        Some((cells.next()?, cells.nth(1)?))
    };
    // After the header and its rule.
    rows.skip(2).filter_map(cells).collect()
}

/// The words of all terms, the head nouns of all types, and the general nouns, in lower case.
fn vocabulary(terms: &[(String, String)]) -> BTreeSet<String> {
    let mut vocabulary: BTreeSet<String> =
        GENERAL.split_whitespace().map(str::to_lowercase).collect();
    for (term, types) in terms {
        vocabulary.extend(words(term).iter().map(|word| word.text.to_lowercase()));
        let names = types.split(|c| !is_word(c)).filter(|name| !name.is_empty());
        vocabulary.extend(names.map(|name| head(name).to_lowercase()));
    }
    vocabulary
}

fn is_in_vocabulary(name: &str, vocabulary: &BTreeSet<String>) -> bool {
    let noun = head(name).to_lowercase();
    vocabulary.contains(&noun) || noun.strip_suffix('s').is_some_and(|one| vocabulary.contains(one))
}

/// The last word of a name, without a number after it.
fn head(name: &str) -> &str {
    let last = words(name).last().map_or(name, |word| word.text);
    last.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// The public types: each one's location and name, in the order of the sources.
fn public_types(sources: &[Source]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for source in sources {
        if source.path.starts_with(CORE) && !source.is_test() {
            found.extend(defined(source));
        }
        if ENTRIES.contains(&source.path.as_str()) {
            found.extend(reexported(source));
        }
    }
    let mut unique = BTreeSet::new();
    found.retain(|(_, name)| unique.insert(name.clone()));
    found
}

fn defined(source: &Source) -> Vec<(String, String)> {
    let code = source.code();
    let mut found: Vec<(usize, &str)> = Vec::new();
    for keyword in ["pub struct", "pub enum", "pub trait"] {
        for at in mentions(code, keyword) {
            let name = code[at + keyword.len()..].trim_start();
            found.push((at, &name[..name.find(|c| !is_word(c)).unwrap_or(name.len())]));
        }
    }
    found.sort_unstable();
    // A macro fills in the others.
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    named.map(|(at, name)| (source.location(at), name.to_owned())).collect()
}

/// The types of every `pub use`, under the names that callers see.
fn reexported(source: &Source) -> Vec<(String, String)> {
    let code = source.code();
    let mut found = Vec::new();
    for at in mentions(code, "pub use") {
        let list = code[at + "pub use".len()..].split(';').next().unwrap_or_default();
        let mut item_at = at + "pub use".len();
        for item in list.split([',', '{', '}']) {
            let end = item_at + item.trim_end().len();
            item_at += item.len() + 1;
            let name = item.trim().rsplit([' ', ':']).next().unwrap_or_default();
            // Not a module, nor a constant.
            let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
            if is_type {
                found.push((source.location(end - name.len()), name.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n\n## Vocabulary\n\n| term | meaning | type | table |\n|---|---|---|---|\n\
         | dead letter | x y | `Lifecycle::Failed` | task |\n\
         | settle | z | `Settle`, `LeaseLoss` | - |\n\n## B\n\n| other | x | `Y` | z |\n";

    #[test]
    fn terms_are_read_from_their_section() {
        let found = terms(DOCUMENT);
        assert_eq!(found.len(), 2);
        let vocabulary = vocabulary(&found);
        for (name, expected) in [
            ("DeadLetter", true),
            ("DeadLetters", true),
            ("Lifecycle", true),
            ("FirstLoss", true),
            ("LeaseHolder", false),
            ("Lease", false),
            ("X", false),
            ("Y", false),
            ("Task", false),
        ] {
            assert_eq!(is_in_vocabulary(name, &vocabulary), expected, "{name}");
        }
    }

    #[test]
    fn public_types_are_found_where_callers_see_them() {
        let names = |path: &str, text: &str| {
            let found = public_types(&[Source::new(path, text)]);
            found.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ")
        };
        let core = "pub struct A<T>(T);\npub enum B {}\npub trait C: D {}\npub(crate) struct E;\n\
            struct F;\npub struct $Name;\n#[cfg(test)]\nmod tests {\npub struct G;\n}";
        assert_eq!(names("crates/core/src/a.rs", core), "A B C");
        assert_eq!(names("crates/core/tests/a.rs", core), "");
        let entry = "pub use a::Bc;\npub use d::{Ef as Gh, MOST, i, j::{Kl, Mn}};\nuse o::Pq;";
        assert_eq!(names(ENTRIES[0], entry), "Bc Gh Kl Mn");
        let entry = ENTRIES[0];
        let source = Source::new(ENTRIES[0], "pub use a::{\n    Bc,\n    d::Ef as Gh,\n};");
        let locations: Vec<String> =
            reexported(&source).into_iter().map(|(location, _)| location).collect();
        assert_eq!(locations, [format!("{entry}:2"), format!("{entry}:3")]);
    }
}
