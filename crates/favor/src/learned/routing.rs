//! Which keys the slots point at while a map is learned.

use crate::ExactKeys;
use crate::simd::Real;

/// The largest of a stream of scores, in descending order; of two equal ones, the earlier stays ahead.
#[derive(Debug, Clone)]
pub(super) struct Largest<R> {
    most: usize,
    entries: Vec<(R, usize)>,
}

impl<R: Real> Largest<R> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: Vec::with_capacity(most + 1) }
    }

    pub(super) fn offer(&mut self, score: R, which: usize) {
        let full = self.entries.len() == self.most;
        if full && self.entries.last().is_none_or(|(least, _)| least.to_f64() >= score.to_f64()) {
            return;
        }
        let place = self.entries.partition_point(|(s, _)| s.to_f64() >= score.to_f64());
        self.entries.insert(place, (score, which));
        self.entries.truncate(self.most);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|(_, which)| *which)
    }
}

/// What the keys say about where queries should look.
pub(super) struct Scores<'a, R> {
    /// Log-features and the features themselves, rows `stride` apart.
    pub(super) logs: &'a [R],
    pub(super) features: &'a [R],
    pub(super) stride: usize,
    /// The error of the map at each key.
    pub(super) errors: &'a [f64],
    pub(super) places: &'a [usize],
}

/// Members of all slots, shares of all slots and worst keys, before each block of a causal sequence, or once
/// for all queries.
pub(super) struct Routes<R> {
    blocks: Vec<Block<R>>,
    /// Where the keys are, if a query is routed by those before it.
    places: Option<Vec<usize>>,
    first: usize,
    slots: usize,
}

#[derive(Clone)]
struct Block<R> {
    members: Vec<Largest<R>>,
    totals: Vec<f64>,
    worst: Largest<f64>,
}

impl<R: Real> Routes<R> {
    pub(super) fn new(
        exact: ExactKeys,
        keys: Scores<'_, R>,
        has_probes: bool,
        causal: bool,
    ) -> Self {
        let Scores { logs, features, stride, errors, places } = keys;
        let (first, worst) = exact.split_global(has_probes);
        let (first, worst) = (first.min(places.len()), worst.min(places.len()));
        let slots = if exact.is_routed() { features.len() / stride.max(1) } else { 0 };
        let count = if causal { places.len() / ExactKeys::BLOCK + 1 } else { 1 };
        let mut now = Block {
            members: vec![Largest::new(exact.members.min(places.len())); slots],
            totals: vec![0.0; slots],
            worst: Largest::new(worst),
        };
        let mut blocks = vec![];
        let mut next = 0;
        for b in 0..count {
            let end = if causal { b * ExactKeys::BLOCK } else { places.len() };
            for m in 0..slots {
                for j in next..end {
                    now.members[m].offer(logs[m * stride + j], j);
                    now.totals[m] += features[m * stride + j].to_f64();
                }
            }
            if worst > 0 {
                (next.max(first)..end).for_each(|j| now.worst.offer(errors[j], j));
            }
            next = end;
            blocks.push(now.clone());
        }
        let places = causal.then(|| places.to_vec());
        Self { blocks, places, first, slots: exact.slots }
    }

    /// Adds the global keys and the members of the slots that a query prefers, given its features.
    pub(super) fn add(&self, place: usize, features: &[R], out: &mut Vec<usize>) {
        let before = |places: &Vec<usize>| places.partition_point(|&p| p < place);
        let block = &self.blocks[self.places.as_ref().map_or(0, before) / ExactKeys::BLOCK];
        out.extend(0..self.first);
        out.extend(block.worst.iter());
        let mut preferred = Largest::<f64>::new(self.slots);
        for (m, (feature, total)) in features.iter().zip(&block.totals).enumerate() {
            preferred.offer(feature.to_f64() * total, m);
        }
        for m in preferred.iter() {
            out.extend(block.members[m].iter());
        }
    }
}

/// The exact keys of the query at this position, as indices of keys: a range of those near it, and others
/// outside the range, in order. It sees the first `seen` keys and has these features.
pub(super) fn exact_places<R: Real>(
    place: usize,
    keys: &[usize],
    seen: usize,
    near: usize,
    routes: Option<&Routes<R>>,
    features: &[R],
) -> ((usize, usize), Vec<usize>) {
    let window = if near == 0 {
        (0, 0)
    } else {
        let first = keys.partition_point(|&p| p.saturating_add(near) < place);
        let last = keys.partition_point(|&p| p <= place.saturating_add(near));
        (first.min(seen), last.min(seen))
    };
    let mut others = vec![];
    if let Some(routes) = routes {
        routes.add(place, features, &mut others);
        others.retain(|j| *j < seen && !(window.0..window.1).contains(j));
        others.sort_unstable();
        others.dedup();
    }
    (window, others)
}
