use super::rule::Rule;
use super::{function, purity, root, shape, vocabulary, words};
use crate::matrix::Matrix;
use crate::source::Source;
use crate::tree;

pub(crate) fn run() -> Result<(), String> {
    let sources = tree::sources()?;
    let own: Vec<&Source> = sources.iter().filter(|source| !source.is_test()).collect();
    print_size(&own);
    let mut rules = shape::rules(&own);
    rules.extend(purity::rules(&own)?);
    rules.extend(root::rules()?);
    rules.push(words::rule(&sources)?);
    rules.push(vocabulary::rule(&sources)?);
    rules.push(matrix_rule(&sources));
    for rule in &rules {
        println!("{}: {}", rule.title, rule.findings.len());
        for finding in &rule.findings {
            println!("    {finding}");
        }
    }
    match rules.iter().map(|rule| rule.findings.len()).sum() {
        0 => Ok(()),
        1 => Err("tidy: 1 finding".into()),
        count => Err(format!("tidy: {count} findings")),
    }
}

fn print_size(own: &[&Source]) {
    let functions: usize = own.iter().map(|source| function::functions(source.code()).len()).sum();
    let mut crates: Vec<(&str, usize)> = shape::lines_by_crate(own).into_iter().collect();
    crates.sort_by_key(|&(_, lines)| std::cmp::Reverse(lines));
    let lines: usize = crates.iter().map(|&(_, lines)| lines).sum();
    println!("{lines} lines outside tests, {functions} functions");
    for (folder, lines) in crates {
        println!("{lines:10} {folder}");
    }
}

fn matrix_rule(sources: &[Source]) -> Rule {
    let findings = match Matrix::read(sources) {
        Ok(matrix) => {
            println!("{}", matrix.size());
            matrix.gaps()
        }
        Err(problem) => vec![problem],
    };
    Rule { title: "gaps in the tables of core", findings }
}
