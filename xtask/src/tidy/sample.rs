//! A random sample of comments, for a reader to judge.

use crate::source::Source;
use crate::tree;

const SIZE: usize = 40;

/// Prints comments of the tree. The same seed and tree give the same ones.
pub(crate) fn sample(seed: u64) -> Result<(), String> {
    let sources = tree::sources()?;
    for comment in drawn(&sources, seed) {
        println!("{comment}\n");
    }
    Ok(())
}

/// The drawn comments with their places, in the order of the tree.
fn drawn(sources: &[Source], seed: u64) -> Vec<String> {
    let each = |source: &Source| -> Vec<String> {
        let blocks = source.comment_blocks().into_iter();
        blocks.map(|(at, text)| format!("{}\n{}", source.location(at), dedented(text))).collect()
    };
    let comments: Vec<String> = sources.iter().flat_map(each).collect();
    let chosen = choose(comments.len(), seed);
    chosen.into_iter().map(|index| comments[index].clone()).collect()
}

/// The first steps of a Fisher-Yates shuffle of the indexes, sorted.
fn choose(count: usize, seed: u64) -> Vec<usize> {
    let mut indexes: Vec<usize> = (0..count).collect();
    let mut random = SplitMix(seed);
    let size = SIZE.min(count);
    for at in 0..size {
        indexes.swap(at, at + random.below(count - at));
    }
    indexes.truncate(size);
    indexes.sort_unstable();
    indexes
}

fn dedented(comment: &str) -> String {
    comment.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

/// SplitMix64.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound. Its bias is negligible for bounds far below 2^64.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = SplitMix(1_234_567);
        let found = [random.next(), random.next(), random.next()];
        assert_eq!(
            found,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_seed_always_chooses_the_same() {
        assert_eq!(choose(1_000, 7), choose(1_000, 7));
        assert_ne!(choose(1_000, 7), choose(1_000, 8));
        for count in [0, 1, 39, 40, 41, 1_000] {
            let mut chosen = choose(count, 3);
            chosen.dedup();
            assert_eq!(chosen.len(), count.min(SIZE), "each once");
            assert!(chosen.iter().all(|index| *index < count));
        }
    }

    #[test]
    fn a_comment_is_shown_whole_with_its_location() {
        let text = "x\n    /// A lease.\n    /// It expires.\n    fn f() {} // why\n";
        let found = drawn(&[Source::new("a.rs", text)], 1);
        assert_eq!(found, ["a.rs:2\n/// A lease.\n/// It expires.", "a.rs:4\n// why"]);
    }
}
