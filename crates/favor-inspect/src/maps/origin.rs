//! What maps were learned on, in a line.

use favor::diagnose::median;
use favor::{FeatureMap, LearnedFrom};
use favor_io::numbers::figures;
use serde::Serialize;

/// What some of the maps were learned on, and what that gained.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MapOrigin {
    /// What they were learned on, as whoever learned them put it; empty if nothing was said.
    pub source: String,
    /// The number of maps with this origin.
    pub maps: usize,
    /// The number of sequences learned from.
    pub sequences: usize,
    /// The number of their tokens together.
    pub tokens: usize,
    /// The number of held-out sequences.
    pub held_out: usize,
    /// Whether queries saw only their own and earlier keys.
    pub causal: bool,
    /// The seed of the order of the sequences.
    pub seed: u64,
    /// The divergence of the weights on held-out sequences before learning, the median over the maps.
    pub kl_before: f64,
    /// The same afterwards. A median, because maps whose features are switched off have enormous ones.
    pub kl_after: f64,
}

impl MapOrigin {
    /// The origins of learned maps, in the order of their first maps.
    pub(super) fn of(maps: &[FeatureMap]) -> Vec<Self> {
        fn shared(from: &LearnedFrom) -> (&str, usize, usize, usize, bool, u64) {
            let LearnedFrom { source, sequences, tokens, held_out, causal, seed, .. } = from;
            (source, *sequences, *tokens, *held_out, *causal, *seed)
        }
        let mut groups: Vec<Vec<&LearnedFrom>> = vec![];
        for from in maps.iter().filter_map(FeatureMap::learned) {
            match groups.iter_mut().find(|group| shared(group[0]) == shared(from)) {
                Some(group) => group.push(from),
                None => groups.push(vec![from]),
            }
        }
        let origin = |group: Vec<&LearnedFrom>| {
            let (source, sequences, tokens, held_out, causal, seed) = shared(group[0]);
            Self {
                source: source.to_owned(),
                maps: group.len(),
                sequences,
                tokens,
                held_out,
                causal,
                seed,
                kl_before: median(group.iter().map(|from| from.kl_before)),
                kl_after: median(group.iter().map(|from| from.kl_after)),
            }
        };
        groups.into_iter().map(origin).collect()
    }

    /// A line for people.
    pub(super) fn to_text(&self) -> String {
        let several = |count: usize| if count == 1 { "" } else { "s" };
        format!(
            "{} map{} learned from {} {}sequence{} of {} tokens in all{}, {} held out, seed {}; \
             {}divergence there {} before, {} after",
            self.maps,
            several(self.maps),
            self.sequences,
            if self.causal { "causal " } else { "" },
            several(self.sequences),
            self.tokens,
            if self.source.is_empty() { String::new() } else { format!(" ({})", self.source) },
            self.held_out,
            self.seed,
            if self.maps == 1 { "" } else { "median " },
            figures(self.kl_before),
            figures(self.kl_after)
        )
    }
}
