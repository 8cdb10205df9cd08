//! A budget, spread over the heads of a layer according to measurements on held-out sequences.

use super::head::{Found, Head};
use super::options::{Calibration, LearnOptions};
use super::{each_head, split};
use crate::engine::tensor::Scalar;
use crate::{Error, ExactKeys, FeatureMap, FeatureSpec, Result};

/// What the heads of a layer may cost.
///
/// [`plan_heads`] spends it; its page has an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Multiplications and additions per token and head, on average over the heads.
    Operations(f64),
    /// The largest relative error of a head's output; every head is as cheap as that allows.
    Error(f64),
}

/// How a head is computed: its map and exact keys, for [`Method::Hybrid`](crate::Method::Hybrid).
///
/// One entry of a [`LayerPlan`], which has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HeadPlan {
    /// The map; switched off if the exact keys alone were best.
    pub map: FeatureMap,
    /// Whether it is not.
    pub has_features: bool,
    /// The exact keys; all keys if the head is to be exact.
    pub exact: ExactKeys,
    /// Its cost and its error.
    pub point: FrontPoint,
}

/// A cost and an error.
///
/// [`LayerPlan::front`] is a list of them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FrontPoint {
    /// Multiplications and additions per token and head.
    pub operations: f64,
    /// Relative error of the outputs on held-out sequences; for several heads, the root mean square.
    pub error: f64,
}

/// How the heads of a layer are computed.
///
/// ```
/// use favor::learned::{Budget, Calibration, LearnOptions, plan_heads};
/// use favor::{AttentionOptions, Family, FeatureSpec, Kernel, Method, Qkv, Tensor, attention};
/// use favor::draw::Stream;
/// let mut noise = Stream::new(1, 0);
/// let x: Vec<f32> = (0..4 * 32 * 4).map(|_| noise.normal() as f32).collect();
/// let t = Tensor::new(&x, [4, 1, 32, 4])?;
/// let spec = FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::attention(4));
/// let options = LearnOptions::new().steps(5);
/// let plan = plan_heads(spec, Calibration::new(t, t), &options, Budget::Error(0.5))?;
///
/// let maps: Vec<_> = plan.heads.iter().map(|head| head.map.clone()).collect();
/// let exact: Vec<_> = plan.heads.iter().map(|head| head.exact).collect();
/// let method = Method::Hybrid { maps: &maps, exact: &exact };
/// let out = attention(method, Qkv::new(t, t, t), &AttentionOptions::new())?;
/// assert_eq!(out.len(), x.len());
/// assert!(plan.front.is_sorted_by(|a, b| a.operations <= b.operations));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayerPlan {
    /// One plan per head.
    pub heads: Vec<HeadPlan>,
    /// What other budgets would give, from the cheapest to exact attention.
    pub front: Vec<FrontPoint>,
}

/// A measured way to compute a head.
struct Candidate {
    point: FrontPoint,
    exact: ExactKeys,
    /// Which of the head's maps it uses; none for the exact keys alone.
    map: Option<usize>,
    divergence: f64,
}

/// Learns maps of several sizes for each head, measures them with several kinds of exact keys on held-out
/// sequences, and spends the budget where it lowers the error most.
///
/// Maps have a quarter, a half and all of the features of `spec`. Exact keys are subsets of those of
/// `options`: none, the window, and the window with global keys and members. Windows alone and exact
/// attention are candidates too.
///
/// ```
/// use favor::learned::{Budget, Calibration, LearnOptions, plan_heads};
/// use favor::{ExactKeys, Family, FeatureSpec, Kernel, Tensor, draw::Stream};
/// let mut noise = Stream::new(1, 0);
/// let x: Vec<f32> = (0..8 * 64 * 4).map(|_| 2.0 * noise.normal() as f32).collect();
/// let t = Tensor::new(&x, [8, 1, 64, 4])?;
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// let options = LearnOptions::new().exact(ExactKeys::NONE.near(4).routed(2, 4)).steps(20);
/// let plan = plan_heads(spec, Calibration::new(t, t), &options, Budget::Error(0.5))?;
/// assert!(plan.heads[0].point.error <= 0.5);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn plan_heads<T: Scalar>(
    spec: FeatureSpec,
    data: Calibration<'_, T>,
    options: &LearnOptions<'_>,
    budget: Budget,
) -> Result<LayerPlan> {
    let (Budget::Operations(limit) | Budget::Error(limit)) = budget;
    if !(limit.is_finite() && limit >= 0.0) {
        return Err(Error::invalid("budget", format!("{limit} is not a number of at least zero")));
    }
    let sizes = sizes(spec.features);
    let sets = learned_sets(options.exact);
    let runs = sizes.len() * sets.len();
    let heads = each_head(spec, &data, options, runs, |number, parallel, done| {
        let head = Head::new(spec, split(&data, number, options)?, options, parallel)?;
        let mut found = vec![];
        for &features in &sizes {
            let start = head.start(features)?;
            for &exact in &sets {
                found.push((head.learn(&start, exact, done)?, features, exact));
            }
        }
        let candidates = candidates(&head, &found, options.exact);
        Ok((head, found, pareto(candidates)))
    })?;
    let fronts: Vec<&[Candidate]> = heads.iter().map(|(_, _, front)| &front[..]).collect();
    let (chosen, front) = spend(&fronts, budget);
    let plans = heads.iter().zip(chosen).map(|((head, found, front), place)| {
        let Candidate { point, exact, map, divergence } = &front[place];
        let numbers = &found[map.unwrap_or(0)].0;
        let kl = (*divergence, *divergence);
        Ok(HeadPlan {
            map: head.map(numbers, *exact, map.is_none(), kl)?,
            has_features: map.is_some(),
            exact: *exact,
            point: *point,
        })
    });
    Ok(LayerPlan { heads: plans.collect::<Result<_>>()?, front })
}

/// A quarter, a half and all of the features.
fn sizes(features: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = [4, 2, 1].iter().map(|part| (features / part).max(1)).collect();
    sizes.dedup();
    sizes
}

/// Exact keys to learn with: some must be in place to learn the scale of features relative to exact keys.
fn learned_sets(exact: ExactKeys) -> Vec<ExactKeys> {
    if exact.near == 0 {
        vec![ExactKeys::NONE]
    } else {
        vec![ExactKeys::NONE, ExactKeys::NONE.near(exact.near)]
    }
}

/// Everything that is measured for a head.
fn candidates(
    head: &Head<'_>,
    found: &[(Found, usize, ExactKeys)],
    wanted: ExactKeys,
) -> Vec<Candidate> {
    let mut all = vec![];
    for (n, (numbers, features, learned)) in found.iter().enumerate() {
        for exact in measured_sets(*learned, wanted, *features) {
            let score = head.score(numbers, exact);
            let point = FrontPoint {
                operations: head.operations(*features).per_token(score.exact_keys()),
                error: score.error(),
            };
            let divergence = score.divergence();
            all.push(Candidate { point, exact, map: Some(n), divergence });
        }
    }
    let length = head.length();
    let Some((numbers, ..)) = found.first() else { return all };
    for near in std::iter::successors(Some(4_usize), |n| Some(2 * n)).take_while(|n| *n < length) {
        let exact = ExactKeys::NONE.near(near);
        let score = head.score(numbers, exact);
        let operations = head.operations(0).per_token(score.exact_keys());
        let point = FrontPoint { operations, error: score.alone() };
        all.push(Candidate { point, exact, map: None, divergence: 0.0 });
    }
    let seen = if head.causal() { 0.5 } else { 1.0 } * length as f64;
    let point = FrontPoint { operations: head.operations(0).per_token(seen), error: 0.0 };
    all.push(Candidate { point, exact: ExactKeys::ALL, map: None, divergence: 0.0 });
    all
}

/// What is measured with a map that was learned with these exact keys.
fn measured_sets(learned: ExactKeys, wanted: ExactKeys, features: usize) -> Vec<ExactKeys> {
    let mut sets = vec![learned];
    if learned.is_none() && wanted.near > 0 {
        return sets;
    }
    if wanted.global > 0 {
        sets.push(learned.global(wanted.global));
    }
    if wanted.is_routed() {
        let slots = wanted.slots.min(features);
        for (slots, members) in
            [(slots.div_ceil(2), wanted.members.div_ceil(2)), (slots, wanted.members)]
        {
            sets.push(learned.routed(slots, members));
        }
        if wanted.global > 0 {
            sets.push(learned.global(wanted.global).routed(slots, wanted.members));
        }
    }
    sets.dedup();
    sets
}

/// The candidates that no other beats in both cost and error, cheapest first.
fn pareto(mut all: Vec<Candidate>) -> Vec<Candidate> {
    let key = |c: &Candidate| (c.point.operations, c.point.error);
    all.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    let mut front: Vec<Candidate> = vec![];
    for next in all {
        if front.last().is_none_or(|last| next.point.error < last.point.error) {
            front.push(next);
        }
    }
    front
}

/// Which candidate each head gets, and what other budgets would give: one upgrade after the other, where it
/// lowers the sum of squared errors most for its cost.
fn spend(fronts: &[&[Candidate]], budget: Budget) -> (Vec<usize>, Vec<FrontPoint>) {
    let mut places = vec![0; fronts.len()];
    let count = fronts.len() as f64;
    let state = |places: &[usize]| {
        let points = || fronts.iter().zip(places).map(|(front, p)| front[*p].point);
        let operations = points().map(|p| p.operations).sum::<f64>() / count;
        FrontPoint {
            operations,
            error: (points().map(|p| p.error.powi(2)).sum::<f64>() / count).sqrt(),
        }
    };
    let mut front = vec![state(&places)];
    let mut chosen = match budget {
        Budget::Operations(_) => places.clone(),
        Budget::Error(limit) => fronts
            .iter()
            .map(|front| {
                front.iter().position(|c| c.point.error <= limit).unwrap_or(front.len() - 1)
            })
            .collect(),
    };
    loop {
        // The upgrade of each head that lowers its squared error most for its cost.
        let best_step = |h: usize| {
            let now = fronts[h][places[h]].point;
            let gain = |next: FrontPoint| {
                (now.error.powi(2) - next.error.powi(2)) / (next.operations - now.operations)
            };
            let later = (places[h] + 1..fronts[h].len()).map(|p| (h, p, gain(fronts[h][p].point)));
            later.max_by(|a, b| a.2.total_cmp(&b.2).then(b.1.cmp(&a.1)))
        };
        let best = (0..fronts.len())
            .filter_map(best_step)
            .max_by(|a, b| a.2.total_cmp(&b.2).then(b.0.cmp(&a.0)));
        let Some((head, place, _)) = best else { break };
        places[head] = place;
        let now = state(&places);
        if matches!(budget, Budget::Operations(limit) if now.operations <= limit) {
            chosen.clone_from(&places);
        }
        front.push(now);
    }
    (chosen, front)
}
