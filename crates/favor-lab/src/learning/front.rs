//! Error against cost: what else could be had for as many operations, and for fewer or more.

use super::Learning;
use crate::{Error, Result};
use favor::diagnose::{Operations, relative_error};
use favor::reference::{Mask, attention_to, exact_key_sets, mean_of_values, window_keys};
use favor::{ExactKeys, FeatureMap, FeatureSpec, Matrix, Method, Moments};
use favor_figure::{Figure, Panel, Scale, Series};
use favor_inspect::head_attention;
use favor_io::progress::Counter;
use favor_io::{SequenceArrays, Sequences};
use rayon::prelude::*;

/// Tokens of the sequence that is measured: the plain definition looks at all pairs.
const MEASURED: usize = 512;

/// Slots and members where learning had none.
const ROUTED: (usize, usize) = (4, 8);

/// Multiply-adds per token and the error of the output, means over the heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) cost: f64,
    pub(super) error: f64,
}

/// The errors of several methods, each at several costs.
pub(super) struct Front {
    pub(super) tokens: usize,
    pub(super) series: Vec<(&'static str, Vec<Point>)>,
    pub(super) uniform: f64,
}

/// One way to spend operations.
#[derive(Debug, Clone, Copy)]
enum Budget {
    Window(usize),
    ClosedForm(usize),
    Learned(ExactKeys),
}

/// The series of the figure.
fn budgets(learning: &Learning, tokens: usize) -> Vec<(&'static str, Vec<Budget>)> {
    let features = learning.spec.features;
    let from = learning.from();
    let exact = from.map_or(ExactKeys::NONE, |from| from.exact);
    let near = exact.near.clamp(8, tokens);
    let (slots, members) = if exact.is_routed() { (exact.slots, exact.members) } else { ROUTED };
    let window = |near| exact.near(near).routed(0, 0);
    let routed = |slots: usize| window(near).routed(slots.clamp(1, features), members.min(tokens));
    let widths = [4, 8, 16, 32, 64, 128].into_iter().filter(|w| 2 * w < tokens);
    vec![
        ("window alone", widths.map(Budget::Window).collect()),
        ("features alone, closed form", {
            let counts = [features.div_ceil(2), features, 2 * features, 4 * features];
            counts.into_iter().map(Budget::ClosedForm).collect()
        }),
        ("learned features and a window", {
            let exact = [near / 2, near, 2 * near].map(window);
            let all = [ExactKeys::NONE].into_iter().chain(exact);
            all.map(Budget::Learned).collect()
        }),
        ("learned features, a window and routed keys", {
            let counts = [slots.div_ceil(2), slots, 2 * slots];
            counts.into_iter().map(routed).map(Budget::Learned).collect()
        }),
    ]
}

/// How many steps a front takes.
pub(super) fn steps(learning: &Learning) -> usize {
    learning.heads.len()
}

/// Measures all budgets at the beginning of a held-out sequence.
pub(super) fn measure(
    learning: &Learning,
    arrays: &SequenceArrays,
    counter: &Counter<'_>,
) -> Result<Option<Front>> {
    // A window needs as many queries as keys.
    if arrays.queries().shape()[2] != arrays.keys().shape()[2] {
        return Ok(None);
    }
    let tokens = learning.shown(arrays.keys(), 0, MEASURED).rows();
    let series = budgets(learning, tokens);
    let all: Vec<Budget> = series.iter().flat_map(|(_, budgets)| budgets.clone()).collect();
    let heads: Vec<Measured> = (0..learning.heads.len())
        .into_par_iter()
        .map(|h| {
            let head = Head::new(learning, arrays, h);
            let found = head.and_then(|head| {
                let points = all.iter().map(|budget| head.point(*budget));
                let points = points.collect::<favor::Result<_>>()?;
                Ok(Measured { points, uniform: head.uniform() })
            });
            counter.step("error against cost");
            found.map_err(|reason| Error::at(format!("head {h}: "), reason))
        })
        .collect::<Result<_>>()?;
    let mean = |f: &dyn Fn(&Measured) -> f64| heads.iter().map(f).sum::<f64>() / heads.len() as f64;
    let mut place = 0..all.len();
    let series = series.into_iter().map(|(name, budgets)| {
        let places: Vec<usize> = place.by_ref().take(budgets.len()).collect();
        let point = |p: usize| Point {
            cost: mean(&|m| m.points[p].cost),
            error: mean(&|m| m.points[p].error),
        };
        (name, places.into_iter().map(point).collect())
    });
    Ok(Some(Front { tokens, series: series.collect(), uniform: mean(&|m| m.uniform) }))
}

/// What was measured for a head: a point per budget, and the error of the mean of the values.
struct Measured {
    points: Vec<Point>,
    uniform: f64,
}

/// The beginning of a held-out sequence of a head.
struct Head<'a> {
    map: &'a FeatureMap,
    spec: FeatureSpec,
    moments: (Moments, Moments),
    causal: bool,
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
    exact: Matrix<f64>,
    operations: Operations,
}

impl<'a> Head<'a> {
    fn new(learning: &'a Learning, arrays: &SequenceArrays, head: usize) -> favor::Result<Self> {
        let map = &learning.heads[head].map;
        let causal = map.learned().is_some_and(|from| from.causal);
        let mut moments = (Moments::new(learning.dim), Moments::new(learning.dim));
        for sequence in 0..arrays.sequences() {
            moments.0.merge(&Moments::of(arrays.queries().head(sequence, head).view())?)?;
            moments.1.merge(&Moments::of(arrays.keys().head(sequence, head).view())?)?;
        }
        let shown = |x: &Sequences| learning.shown(x, head, MEASURED);
        let (q, k) = (shown(arrays.queries()), shown(arrays.keys()));
        let v = arrays.values().map_or_else(|| Matrix::identity(k.rows()), shown);
        let values = arrays.values().map_or(learning.dim, |v| v.shape()[3]);
        let exact = head_attention(Method::Exact(map.kernel()), &q, &k, &v, causal)?;
        let operations = Operations { features: map.features(), dim: learning.dim, values };
        Ok(Self { map, spec: learning.spec, moments, causal, q, k, v, exact, operations })
    }

    fn point(&self, budget: Budget) -> favor::Result<Point> {
        let Self { q, k, v, causal, operations, .. } = self;
        let length = q.rows();
        let window = |near: usize| move |i| window_keys(i, near, length, *causal);
        let per_query = |total: usize| total as f64 / length as f64;
        let (out, cost) = match budget {
            Budget::Window(near) => {
                let keys = per_query((0..length).map(|i| window(near)(i).len()).sum());
                let cost = Operations { features: 0, ..*operations }.per_token(keys);
                let (q, k, v) = (q.view(), k.view(), v.view());
                (attention_to(self.map.kernel(), q, k, v, window(near))?, cost)
            }
            Budget::ClosedForm(features) => {
                let spec = self.spec.features(features);
                let map = spec.fit(&self.moments.0, &self.moments.1)?;
                let out = head_attention(Method::Features(&[map]), q, k, v, *causal)?;
                (out, Operations { features, ..*operations }.per_token(0.0))
            }
            Budget::Learned(exact) => {
                let mask = Mask::new(*causal, None);
                let keys = if exact.is_none() {
                    0
                } else {
                    let sets = exact_key_sets(self.map, exact, q.view(), k.view(), mask)?;
                    sets.iter().map(Vec::len).sum()
                };
                let maps = std::slice::from_ref(self.map);
                let method = Method::Hybrid { maps, exact: &[exact] };
                let out = head_attention(method, q, k, v, *causal)?;
                (out, operations.per_token(per_query(keys)))
            }
        };
        Ok(Point { cost, error: relative_error(&out, &self.exact) })
    }

    fn uniform(&self) -> f64 {
        relative_error(&mean_of_values(self.v.view(), self.q.rows(), self.causal), &self.exact)
    }
}

impl Front {
    /// Errors against operations.
    pub(super) fn to_svg(&self) -> String {
        // What is far worse than the mean of the values would press the rest together.
        let mut panel = Panel::new("", "multiply-adds per token", "error of the output")
            .x_scale(Scale::Log10)
            .y_limits(0.0, 1.25 * self.uniform);
        for (name, points) in &self.series {
            let points = points.iter().map(|p| (p.cost, p.error)).collect();
            let series = Series::new(*name, points);
            let ours = name.starts_with("learned");
            panel = panel.series(if ours { series.emphasised() } else { series });
        }
        panel = panel.reference("plain mean of the values", self.uniform);
        Figure::new("").columns(1).plot_size(620.0, 330.0).panel(panel).to_svg()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_held_out;
    use super::*;
    use favor_io::progress::silent;
    use favor_io::stats::mean;

    /// With the exact keys of learning, the front has the errors that learning measured.
    #[test]
    fn the_front_is_measured_on_what_was_held_out() {
        for sequences in [4, 1] {
            let (learning, arrays) = one_held_out(sequences, true);
            let front = measure(&learning, &arrays, &Counter::new(&silent, 1)).unwrap().unwrap();
            let (name, points) = &front.series[3];
            assert_eq!((*name, front.tokens), ("learned features, a window and routed keys", 40));
            let after: Vec<f64> = learning.reports().map(|r| r.after).collect();
            // Learning computes in 32 bits.
            let off = (points[1].error - mean(&after)).abs();
            assert!(off < 1e-4, "{} sequences: {:?} for {after:?}", sequences, points[1]);
        }
    }
}
