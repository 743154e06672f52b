use crate::script::{Script, Step};
use crate::violation::Kind;

/// The maximum number of runs.
const MOST_TRIES: usize = 3_000;

/// Removes steps as long as the same kind of rule is still broken: first many at once, then one
/// by one.
pub(crate) fn shrink(script: &Script, kind: Kind, run: impl Fn(&Script) -> Option<Kind>) -> Script {
    let mut best = script.clone();
    let mut tries = 0;
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        let mut shorter = false;
        while from < best.steps.len() && tries < MOST_TRIES {
            let candidate = without(&best, from, size);
            tries += 1;
            if run(&candidate) == Some(kind) {
                best = candidate;
                shorter = true;
            } else {
                from += size;
            }
        }
        if !(shorter && size == 1) {
            size /= 2;
        }
    }
    best
}

fn without(script: &Script, from: usize, size: usize) -> Script {
    let to = (from + size).min(script.steps.len());
    let remaining: Vec<Step> = [&script.steps[..from], &script.steps[to..]].concat();
    Script { steps: remaining, ..script.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use crate::script::Action;

    #[test]
    fn only_the_steps_that_break_the_rule_remain() {
        let script = generate::script(3);
        let crashes =
            |step: &&Step| matches!(step.action, Action::Ask { .. } | Action::Advance { .. });
        let run = |candidate: &Script| {
            let asks = candidate.steps.iter().filter(crashes).count();
            (asks >= 2).then_some(Kind::Stuck)
        };
        let shrunk = shrink(&script, Kind::Stuck, run);
        assert_eq!(shrunk.steps.len(), 2);
        assert_eq!(shrink(&script, Kind::Key, run), script);
    }
}
