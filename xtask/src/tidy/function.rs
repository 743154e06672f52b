//! Functions, found by their braces.

use crate::source::{is_word, mentions};

pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) lines: usize,
}

/// The functions with a body. The code is without comments and literals.
pub(super) fn functions(code: &str) -> Vec<Function<'_>> {
    mentions(code, "fn").filter_map(|at| function(code, at)).collect()
}

fn function(code: &str, at: usize) -> Option<Function<'_>> {
    let signature = &code[at + "fn".len()..];
    let name = signature.trim_start();
    let name = &name[..name.find(|c| !is_word(c)).unwrap_or(name.len())];
    // A type such as `fn(u8)`, or a name that a macro fills in.
    if name.is_empty() {
        return None;
    }
    let end = at + "fn".len() + body_end(signature)?;
    Some(Function { name, at, lines: 1 + code[at..end].matches('\n').count() })
}

/// The offset of the brace that closes the body, if there is a body.
fn body_end(signature: &str) -> Option<usize> {
    let (mut nested, mut braces) = (0, 0);
    for (at, c) in signature.char_indices() {
        match c {
            '(' | '[' => nested += 1,
            ')' | ']' => nested -= 1,
            ';' if nested == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && nested == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        for (code, expected) in [
            ("fn a() {}", "a 1"),
            ("pub(crate) async fn a(x: [u8; 2])\nwhere\n    X: Y,\n{\n    {}\n}\n", "a 6"),
            ("trait T {\n    fn a(&self);\n    fn b(&self) {\n    }\n}", "b 2"),
            ("fn a() {\n    fn b() {\n    }\n}", "a 4, b 2"),
            ("type F = fn(u8) -> u8;", ""),
            ("fn $name() {}", ""),
        ] {
            let found = functions(code);
            let shown: Vec<String> =
                found.iter().map(|f| format!("{} {}", f.name, f.lines)).collect();
            assert_eq!(shown.join(", "), expected, "{code}");
        }
    }
}
