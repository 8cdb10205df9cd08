//! A budget, spread over the heads of a layer according to measurements on held-out sequences.

use super::head::{Found, Head};
use super::options::{Calibration, LearnOptions};
use super::{Kept, each_head, split};
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
    /// How many these are per query, on held-out sequences.
    pub exact_keys: f64,
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

/// Learns maps of several sizes for each head, measures them with several kinds of exact keys on held-out
/// sequences, and spends the budget where it lowers the error most.
///
/// Maps have a quarter, a half and all of the features of `spec`. Exact keys are subsets of those of
/// `options`: none, half of the window, the window, and the window with half or all of the global keys, with half
/// or all of slots and members, or with both. Windows alone and exact attention are candidates too. On held-out sequences, a head with
/// features is never worse than its closed-form start with the same exact keys, nor than these keys alone;
/// as in [`learn_maps`](super::learn_maps), this is measured at some of the queries of long sequences.
///
/// Fails if the budget is less than the cheapest plan takes.
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
    let runs = sizes.iter().map(|&m| learned_sets(options.exact, m).len()).sum();
    let fronts = each_head(spec, &data, options, runs, |number, parallel, done| {
        let head = Head::new(spec, split(&data, number, options)?, options, parallel)?;
        let starts = sizes.iter().map(|&m| head.start(m)).collect::<Result<Vec<_>>>()?;
        let mut candidates = without_features(&head, &starts[0], options.exact)?;
        // Costs do not depend on what is learned, so a budget that is too small is refused before.
        let cheapest = head.operations(sizes[0]).per_token(0.0);
        let costs = candidates.iter().map(|plan| plan.point.operations);
        budget.check(costs.fold(cheapest, f64::min))?;
        for start in &starts {
            for exact in learned_sets(options.exact, start.features()) {
                let learned = head.learn(start, exact, done)?;
                for exact in measured_sets(exact, options.exact, start.features()) {
                    candidates.push(with_features(&head, start, &learned, exact)?);
                }
            }
        }
        Ok(pareto(candidates))
    })?;
    let points: Vec<Vec<FrontPoint>> =
        fronts.iter().map(|front| front.iter().map(|plan| plan.point).collect()).collect();
    let (chosen, front) = spend(&points, budget);
    let heads = fronts.into_iter().zip(chosen).map(|(mut front, place)| front.swap_remove(place));
    Ok(LayerPlan { heads: heads.collect(), front })
}

impl Budget {
    /// Refuses less than the cheapest plan takes.
    fn check(self, least: f64) -> Result<()> {
        match self {
            Self::Operations(limit) if limit < least => {
                let least = least.ceil();
                let reason = format!(
                    "{limit} is too little: the cheapest plan takes {least} operations per token and head"
                );
                Err(Error::invalid("budget", reason))
            }
            _ => Ok(()),
        }
    }
}

/// A quarter, a half and all of the features.
fn sizes(features: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = [4, 2, 1].iter().map(|part| (features / part).max(1)).collect();
    sizes.dedup();
    sizes
}

/// Exact keys to learn with: none, and the window or, without one, all that are wanted. Some must be in place
/// to learn the scale of features relative to exact keys.
fn learned_sets(wanted: ExactKeys, features: usize) -> Vec<ExactKeys> {
    let some = if wanted.near > 0 {
        ExactKeys::NONE.near(wanted.near)
    } else {
        wanted.routed(wanted.slots.min(features), wanted.members)
    };
    let mut sets = vec![ExactKeys::NONE];
    if !some.is_none() {
        sets.push(some);
    }
    sets
}

/// Windows alone and exact attention.
fn without_features(head: &Head<'_>, start: &Found, wanted: ExactKeys) -> Result<Vec<HeadPlan>> {
    let plan = |exact, divergences, exact_keys: f64, error| {
        let operations = head.operations(0).per_token(exact_keys);
        Ok(HeadPlan {
            map: head.map(start, exact, true, divergences)?,
            has_features: false,
            exact,
            exact_keys,
            point: FrontPoint { operations, error },
        })
    };
    let seen = head.score(start, ExactKeys::NONE).seen();
    let mut all = vec![plan(ExactKeys::ALL, (0.0, 0.0), seen, 0.0)?];
    if !head.has_windows() {
        return Ok(all);
    }
    let length = head.length();
    let powers = std::iter::successors(Some(4_usize), |n| Some(2 * n));
    let powers = powers.take_while(|near| *near < length);
    for near in powers.chain((1..length).contains(&wanted.near).then_some(wanted.near)) {
        let exact = ExactKeys::NONE.near(near);
        let (before, alone) = (head.score(start, exact), head.score_alone(start, exact));
        let divergences = (before.divergence(), alone.divergence());
        all.push(plan(exact, divergences, alone.exact_keys(), alone.error())?);
    }
    Ok(all)
}

/// The best of a start and what was learned from it with these exact keys.
fn with_features(
    head: &Head<'_>,
    start: &Found,
    learned: &Found,
    exact: ExactKeys,
) -> Result<HeadPlan> {
    let best = head.best(start, learned, exact);
    let switched_off = best.kept == Kept::ExactAlone;
    let divergences = (best.start.divergence(), best.score.divergence());
    // Even if they are switched off, features may be needed to find the exact keys.
    let needed = !switched_off || exact.depend_on_map();
    let operations = head.operations(if needed { start.features() } else { 0 });
    Ok(HeadPlan {
        map: head.map(best.found, exact, switched_off, divergences)?,
        has_features: !switched_off,
        exact,
        exact_keys: best.score.exact_keys(),
        point: FrontPoint {
            operations: operations.per_token(best.score.exact_keys()),
            error: best.score.error(),
        },
    })
}

/// What is measured with a map that was learned with these exact keys.
fn measured_sets(learned: ExactKeys, wanted: ExactKeys, features: usize) -> Vec<ExactKeys> {
    let mut sets = vec![learned];
    if learned.is_none() {
        return sets;
    }
    let mut add = |set: ExactKeys| {
        if !sets.contains(&set) {
            sets.push(set);
        }
    };
    let window = ExactKeys::NONE.near(wanted.near);
    if wanted.near > 1 {
        add(ExactKeys::NONE.near(wanted.near.div_ceil(2)));
    }
    if wanted.global > 0 {
        add(window.global(wanted.global.div_ceil(2)));
        add(window.global(wanted.global));
    }
    if wanted.is_routed() {
        let slots = wanted.slots.min(features);
        add(window.routed(slots.div_ceil(2), wanted.members.div_ceil(2)));
        add(window.routed(slots, wanted.members));
        if wanted.global > 0 {
            add(window.global(wanted.global).routed(slots, wanted.members));
        }
    }
    sets
}

/// The candidates that no other beats in both cost and error, cheapest first.
fn pareto(mut all: Vec<HeadPlan>) -> Vec<HeadPlan> {
    let key = |plan: &HeadPlan| (plan.point.operations, plan.point.error);
    all.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    let mut front: Vec<HeadPlan> = vec![];
    for next in all {
        if front.last().is_none_or(|last| next.point.error < last.point.error) {
            front.push(next);
        }
    }
    front
}

/// Which point of its front each head gets, and what other budgets would give.
fn spend(fronts: &[Vec<FrontPoint>], budget: Budget) -> (Vec<usize>, Vec<FrontPoint>) {
    let chosen = match budget {
        Budget::Operations(limit) => upgrade(fronts, limit).0,
        Budget::Error(limit) => {
            let place = |front: &Vec<FrontPoint>| front.iter().position(|p| p.error <= limit);
            fronts.iter().map(|front| place(front).unwrap_or(front.len() - 1)).collect()
        }
    };
    (chosen, upgrade(fronts, f64::INFINITY).1)
}

/// One upgrade after the other, where it lowers the sum of squared errors most for its cost, as long as one
/// leaves the mean cost within the limit: the place of each head at the end, and all states on the way.
fn upgrade(fronts: &[Vec<FrontPoint>], limit: f64) -> (Vec<usize>, Vec<FrontPoint>) {
    let mut places = vec![0; fronts.len()];
    let count = fronts.len() as f64;
    let state = |places: &[usize]| {
        let points = || fronts.iter().zip(places).map(|(front, p)| front[*p]);
        let operations = points().map(|p| p.operations).sum::<f64>() / count;
        FrontPoint {
            operations,
            error: (points().map(|p| p.error.powi(2)).sum::<f64>() / count).sqrt(),
        }
    };
    let mut states = vec![state(&places)];
    loop {
        // The upgrade of each head that lowers its squared error most for its cost.
        let best_step = |h: usize| {
            let now = fronts[h][places[h]];
            let gain = |next: FrontPoint| {
                (now.error.powi(2) - next.error.powi(2)) / (next.operations - now.operations)
            };
            let fits = |place: &usize| {
                let mut next = places.clone();
                next[h] = *place;
                state(&next).operations <= limit
            };
            let later = (places[h] + 1..fronts[h].len()).filter(fits);
            let later = later.map(|p| (h, p, gain(fronts[h][p])));
            later.max_by(|a, b| a.2.total_cmp(&b.2).then(b.1.cmp(&a.1)))
        };
        let best = (0..fronts.len())
            .filter_map(best_step)
            .max_by(|a, b| a.2.total_cmp(&b.2).then(b.0.cmp(&a.0)));
        let Some((head, place, _)) = best else { return (places, states) };
        places[head] = place;
        states.push(state(&places));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(points: &[(f64, f64)]) -> Vec<FrontPoint> {
        points.iter().map(|&(operations, error)| FrontPoint { operations, error }).collect()
    }

    /// The upgrade that would gain most is too expensive; the money is spent on the others.
    #[test]
    fn what_is_too_expensive_is_skipped() {
        let fronts = [
            front(&[(10.0, 1.0), (110.0, 0.1)]),
            front(&[(10.0, 0.5), (20.0, 0.45), (200.0, 0.0)]),
            front(&[(10.0, 0.2), (30.0, 0.1)]),
        ];
        let spent = |limit| spend(&fronts, Budget::Operations(limit / 3.0)).0;
        assert_eq!(spent(30.0), [0, 0, 0]);
        assert_eq!(spent(40.0), [0, 1, 0]);
        assert_eq!(spent(60.0), [0, 1, 1]);
        assert_eq!(spent(130.0), [1, 0, 0]);
        assert_eq!(spent(160.0), [1, 1, 1]);
        assert_eq!(spent(1e6), [1, 2, 1]);
        // The front itself leaves nothing out.
        let path = spend(&fronts, Budget::Error(0.3)).1;
        assert!(path.windows(2).all(|w| w[0].operations < w[1].operations));
        assert_eq!(path.len(), 5);
    }

    /// Whatever is measured with exact keys was learned with some in place, and slots fit every size.
    #[test]
    fn maps_are_learned_with_exact_keys_in_place() {
        let none = ExactKeys::NONE;
        assert_eq!(learned_sets(none, 4), [none]);
        assert_eq!(learned_sets(none.routed(3, 0), 4), [none]);
        assert_eq!(learned_sets(none.near(3).global(2), 4), [none, none.near(3)]);
        let wanted = none.global(2).routed(6, 3);
        assert_eq!(learned_sets(wanted, 4), [none, wanted.routed(4, 3)]);
        for (wanted, count) in [(none, 1), (wanted, 6), (wanted.near(3), 8), (none.routed(2, 4), 3)]
        {
            let pairs = learned_sets(wanted, 4).into_iter().flat_map(|learned| {
                let measured = measured_sets(learned, wanted, 4).into_iter();
                measured.map(move |measured| (learned, measured))
            });
            let pairs: Vec<_> = pairs.collect();
            assert_eq!(pairs.len(), count, "{pairs:?}");
            for (learned, measured) in pairs {
                assert_eq!(learned.is_none(), measured.is_none());
                // Less than the whole window is met only by half of it alone.
                let half = wanted.near == 3 && measured == none.near(2);
                assert!(measured.check(4).is_ok() && (half || measured.near == learned.near));
            }
        }
    }

    #[test]
    fn less_than_the_cheapest_plan_takes_is_refused() {
        assert!(Budget::Operations(12.5).check(12.5).is_ok());
        let refused = Budget::Operations(12.4).check(12.5).unwrap_err().to_string();
        assert!(refused.contains("12.4 is") && refused.contains("takes 13 op"), "{refused}");
        assert!(Budget::Error(0.0).check(12.5).is_ok());
    }
}
