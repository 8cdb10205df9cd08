//! How far the recognised text is from the truth.

use crate::plain;
use favor::draw::Stream;
use serde::{Deserialize, Serialize};

/// The random stream of the bootstrap.
const PURPOSE: u64 = 0x626f_6f74;

/// The number of bootstrap samples.
const SAMPLES: usize = 1000;

/// The fewest changes that turn one sequence into another; among those, the ones with the most correct
/// elements, so that the counts are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Edits {
    /// Elements replaced.
    pub replaced: usize,
    /// Elements of the truth that are missing.
    pub missing: usize,
    /// Elements that the truth does not have.
    pub added: usize,
    /// Elements of the truth.
    pub truth: usize,
}

impl Edits {
    /// The changes from `truth` to `heard`.
    pub fn between<T: PartialEq>(truth: &[T], heard: &[T]) -> Self {
        let start = |added| Self { added, truth: truth.len(), ..Self::default() };
        let mut row: Vec<Self> = (0..=heard.len()).map(start).collect();
        for (i, said) in truth.iter().enumerate() {
            let mut corner = row[0];
            row[0].missing = i + 1;
            for (j, got) in heard.iter().enumerate() {
                let mut by_pair = corner;
                by_pair.replaced += usize::from(said != got);
                let (mut by_missing, mut by_added) = (row[j + 1], row[j]);
                by_missing.missing += 1;
                by_added.added += 1;
                corner = row[j + 1];
                let ways = [by_pair, by_missing, by_added];
                row[j + 1] =
                    ways.into_iter().min_by_key(|e| (e.count(), e.replaced)).unwrap_or(by_pair);
            }
        }
        row[heard.len()]
    }

    /// All changes.
    pub fn count(&self) -> usize {
        self.replaced + self.missing + self.added
    }
}

/// An error rate over utterances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The rate.
    pub value: f64,
    /// The range of the rate in 95 % of samples of the utterances, drawn with replacement.
    pub range: [f64; 2],
}

/// The errors in a set of utterances. Texts are compared in lower case and without punctuation.
///
/// ```
/// use favor_speech::Errors;
/// let errors = Errors::of([("One two three", "one three four"), ("Yes.", "yes")], 0);
/// assert_eq!(errors.words.value, 2.0 / 4.0); // two is missing, four is added
/// assert_eq!(errors.normalised.value, 2.0 / 5.0); // one, two, three, four; yes
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Word error rate: words replaced, missing and added, divided by words said.
    pub words: Rate,
    /// The same for characters, including spaces.
    pub characters: Rate,
    /// Normalised word error rate: words replaced, missing and added, divided by the length of the
    /// alignment (words said plus words added), so it is never above one.
    pub normalised: Rate,
    /// The word changes in total.
    pub edits: Edits,
    /// Utterances.
    pub utterances: usize,
    /// The changes of words of each.
    pub each: Vec<Edits>,
}

impl Errors {
    /// The errors of pairs of truth and recognised text.
    pub fn of<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>, seed: u64) -> Self {
        let (mut words, mut characters) = (Vec::new(), Vec::new());
        for (truth, heard) in pairs {
            let (truth, heard) = (plain(truth), plain(heard));
            let split =
                |text: &str| text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
            let (a, b): (Vec<String>, Vec<String>) = (split(&truth), split(&heard));
            words.push(Edits::between(&a, &b));
            let (a, b): (Vec<char>, Vec<char>) = (truth.chars().collect(), heard.chars().collect());
            characters.push(Edits::between(&a, &b));
        }
        let by_truth = |e: &Edits| [e.count(), e.truth];
        let by_places = |e: &Edits| [e.count(), e.truth + e.added];
        let edits = words.iter().fold(Edits::default(), |sum, e| Edits {
            replaced: sum.replaced + e.replaced,
            missing: sum.missing + e.missing,
            added: sum.added + e.added,
            truth: sum.truth + e.truth,
        });
        Self {
            words: rate(&words, by_truth, seed),
            characters: rate(&characters, by_truth, seed),
            normalised: rate(&words, by_places, seed),
            edits,
            utterances: words.len(),
            each: words,
        }
    }

    /// The word error rate less that of another recogniser on the same utterances. Both are drawn together, so
    /// that what is hard for both does not blur the difference.
    ///
    /// ```
    /// use favor_speech::Errors;
    /// let one = Errors::of([("a b", "a"), ("c", "c")], 0);
    /// let other = Errors::of([("a b", "a b"), ("c", "c")], 0);
    /// assert_eq!(one.less(&other, 0).unwrap().value, 1.0 / 3.0);
    /// assert_eq!(one.less(&one, 0).unwrap().range, [0.0, 0.0]);
    /// assert!(one.less(&Errors::of([("a", "a")], 0), 0).is_none());
    /// ```
    pub fn less(&self, other: &Self, seed: u64) -> Option<Rate> {
        let same = |(a, b): (&Edits, &Edits)| a.truth == b.truth;
        if self.each.len() != other.each.len() || !self.each.iter().zip(&other.each).all(same) {
            return None;
        }
        let pairs = self.each.iter().zip(&other.each);
        let parts = pairs.map(|(a, b)| [a.count() as i64 - b.count() as i64, a.truth as i64]);
        Some(bootstrap(&parts.collect::<Vec<_>>(), seed))
    }
}

fn rate(edits: &[Edits], parts: impl Fn(&Edits) -> [usize; 2], seed: u64) -> Rate {
    let parts: Vec<[i64; 2]> = edits.iter().map(|e| parts(e).map(|n| n as i64)).collect();
    bootstrap(&parts, seed)
}

/// Sums of the first numbers by sums of the second, over all and over samples.
fn bootstrap(parts: &[[i64; 2]], seed: u64) -> Rate {
    let of = |chosen: &mut dyn Iterator<Item = &[i64; 2]>| {
        let [errors, all] = chosen.fold([0, 0], |sum, p| [sum[0] + p[0], sum[1] + p[1]]);
        // If nothing was said, each word is an error.
        errors as f64 / all.max(1) as f64
    };
    let mut stream = Stream::new(seed, PURPOSE);
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| of(&mut (0..parts.len()).map(|_| &parts[stream.index(parts.len())])))
        .collect();
    samples.sort_by(f64::total_cmp);
    let at = |part: f64| samples[(part * (SAMPLES - 1) as f64).round() as usize];
    Rate { value: of(&mut parts.iter()), range: [at(0.025), at(0.975)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(truth: &str, heard: &str) -> [usize; 4] {
        let (a, b): (Vec<char>, Vec<char>) = (truth.chars().collect(), heard.chars().collect());
        let Edits { replaced, missing, added, truth } = Edits::between(&a, &b);
        [replaced, missing, added, truth]
    }

    #[test]
    fn the_fewest_changes() {
        assert_eq!(edits("kitten", "sitting"), [2, 0, 1, 6]);
        assert_eq!(edits("", "ab"), [0, 0, 2, 0]);
        assert_eq!(edits("ab", ""), [0, 2, 0, 2]);
        assert_eq!(edits("abc", "abc"), [0, 0, 0, 3]);
        assert_eq!(edits("abcd", "xabd"), [0, 1, 1, 4]);
        // Two replacements would be as few changes.
        assert_eq!(edits("abc", "acd"), [0, 1, 1, 3]);
    }

    /// With half of 400 one-word utterances wrong, the rate has a standard error of 0.025.
    #[test]
    fn ranges_are_as_wide_as_they_should_be() {
        let pairs = (0..400).map(|i| ("one", if i % 2 == 0 { "one" } else { "two" }));
        let found = Errors::of(pairs, 3);
        let [low, high] = found.words.range;
        assert_eq!(found.words.value, 0.5);
        let half = 1.96 * 0.025;
        for (end, ideal) in [(low, 0.5 - half), (high, 0.5 + half)] {
            // The quantiles of 1000 samples are known to within about 0.0025.
            assert!((end - ideal).abs() < 0.008, "{low} {high}");
        }
        let none = Errors::of([("", "")], 0);
        assert_eq!((none.words.value, none.normalised.value), (0.0, 0.0));
        assert_eq!(Errors::of([("", "a b")], 0).normalised.value, 1.0);
    }
}
