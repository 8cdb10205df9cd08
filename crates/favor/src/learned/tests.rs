//! The gradient against finite differences and autograd, and the weights against their definition.

use super::gradient::add_gradient;
use super::measure::measure;
use super::numbers::{Coordinates, Numbers, Shape};
use super::probes::{ProbeRows, probes};
use super::sequence::{Raw, Sequence};
use super::weights::{OFF, TILE, View, Weights};
use crate::diagnose::relative_error;
use crate::draw::Stream;
use crate::map::{Learned, LearnedFrom, Probes};
use crate::reference::{Mask, exact_attention, hybrid_attention};
use crate::{ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Moments, Side};
use std::sync::Arc;

const LENGTH: usize = 90;
const DIM: usize = 5;

/// A head with numbers that are neither the start nor anything special.
struct Case {
    sequence: Sequence<f64>,
    numbers: Numbers<f64>,
    sides: (Coordinates, Coordinates),
    raw: (Matrix<f64>, Matrix<f64>, Matrix<f64>),
    visible: Vec<bool>,
    probes: Probes,
    spec: FeatureSpec,
    view: View,
}

impl Case {
    fn new(seed: u64, kernel: Kernel, exact: ExactKeys, causal: bool, masked: bool) -> Self {
        let mut noise = Stream::new(seed, 0);
        let mut rows = |scale: f64, mean: f64| {
            Matrix::from_fn(LENGTH, DIM, |_, _| mean + scale * noise.normal())
        };
        let (q, k, v) = (rows(1.3, 0.2), rows(1.1, -0.3), rows(1.0, 0.0));
        let visible: Vec<bool> = (0..LENGTH).map(|j| !masked || j % 7 != 3).collect();
        let places: Vec<usize> = (0..LENGTH).filter(|&j| visible[j]).collect();
        let pick = |m: &Matrix<f64>| Matrix::from_fn(places.len(), DIM, |i, l| m[(places[i], l)]);
        let spec = FeatureSpec::new(Family::Balanced, 12).kernel(kernel).seed(seed);
        let (queries, keys) = (pick(&q), pick(&k));
        let moments = [&queries, &keys].map(|m| Moments::of(m.view()).unwrap());
        let map = spec.fit(&moments[0], &moments[1]).unwrap();
        let sides = (
            Coordinates::new(&map, Side::Query, &moments[0]).unwrap(),
            Coordinates::new(&map, Side::Key, &moments[1]).unwrap(),
        );
        let some = Matrix::from_fn(4, DIM, |i, l| queries[(9 * i, l)]);
        let probes = probes(some, &[&keys], kernel);
        let raw = Raw {
            queries,
            keys,
            values: Some(pick(&v)),
            query_places: places.clone(),
            key_places: places,
        };
        let sequence = Sequence::new(raw, kernel, &sides.0, &sides.1);
        let mut numbers = Numbers::of_start(&sides.0, &sides.1);
        let shape = numbers.shape;
        let parts = numbers.parts_mut();
        for m in 0..shape.features {
            parts.constants[m] += 0.3 * noise.normal();
            for l in 0..DIM {
                parts.query[l * shape.features_padded + m] += 0.2 * noise.normal();
                parts.key[m * shape.dim_padded + l] += 0.2 * noise.normal();
            }
        }
        for l in 0..DIM {
            parts.query_rho[l] += 0.1 * noise.normal();
            parts.key_rho[l] += 0.1 * noise.normal();
        }
        let view = View { exact, causal, switched_off: false };
        Self { sequence, numbers, sides, raw: (q, k, v), visible, probes, spec, view }
    }

    fn weights(&self) -> Weights<f64> {
        let rows = ProbeRows::new(&self.probes, self.spec.kernel, &self.sides.0);
        Weights::new(self.numbers.shape, Some(Arc::new(rows)))
    }

    fn queries(&self) -> Vec<usize> {
        (0..self.sequence.query_places.len()).collect()
    }

    /// The objective: the squared error of the outputs counts with the fraction `outputs`.
    fn objective(&self, numbers: &Numbers<f64>, outputs: f64) -> f64 {
        let (mut weights, queries) = (self.weights(), self.queries());
        let score = measure(&mut weights, numbers, &self.sequence, self.view, &queries);
        (1.0 - outputs) * score.divergence() + outputs * score.error().powi(2)
    }

    fn map(&self) -> FeatureMap {
        let (mut query, key) = self.numbers.sides(&self.sides.0, &self.sides.1);
        if self.view.switched_off {
            query.constants.iter_mut().for_each(|c| *c -= OFF);
        }
        let from = LearnedFrom {
            sequences: 1,
            tokens: LENGTH,
            held_out: 1,
            steps: 1,
            exact: self.view.exact,
            causal: self.view.causal,
            seed: 0,
            kl_before: 0.0,
            kl_after: 0.0,
        };
        let probes = self.probes.clone();
        FeatureMap::from_learned(self.spec, Learned { query, key, probes, from }).unwrap()
    }
}

fn cases() -> Vec<Case> {
    let (plain, wide) = (Kernel::attention(DIM), Kernel::new(-0.2, 0.7).unwrap());
    let none = ExactKeys::NONE;
    vec![
        Case::new(1, plain, none, false, false),
        Case::new(2, plain, none, true, true),
        Case::new(3, wide, none.near(3), false, true),
        Case::new(4, plain, none.near(6), true, false),
        Case::new(5, plain, none.near(2).routed(2, 4), false, false),
        Case::new(6, wide, none.near(4).routed(3, 5), true, true),
        Case::new(7, plain, none.near(2).global(6), false, true),
        Case::new(8, plain, none.global(5).routed(2, 3), true, false),
        Case::new(9, plain, none.routed(2, 3), true, true),
    ]
}

#[test]
fn the_gradient_is_that_of_the_objective() {
    let all = cases();
    let both = all.iter().enumerate().flat_map(|case| [(case, 0.0), (case, 0.7)]);
    for ((c, case), outputs) in both {
        let mut gradient = Numbers::zeros(case.numbers.shape);
        let queries = case.queries();
        let (sequence, view) = (&case.sequence, case.view);
        add_gradient(
            &mut case.weights(),
            &case.numbers,
            sequence,
            view,
            &queries,
            outputs,
            &mut gradient,
        );
        let sizes = {
            let p = case.numbers.parts();
            [p.query.len(), p.key.len(), p.constants.len(), p.query_rho.len(), p.key_rho.len()]
        };
        let mut noise = Stream::new(40 + c as u64, 0);
        let mut start = 0;
        for (part, size) in sizes.into_iter().enumerate() {
            let mut direction = vec![0.0; case.numbers.values.len()];
            direction[start..start + size].iter_mut().for_each(|d| *d = noise.normal());
            start += size;
            let at = |step: f64| {
                let mut moved = case.numbers.clone();
                moved.values.iter_mut().zip(&direction).for_each(|(v, d)| *v += step * d);
                case.objective(&moved, outputs)
            };
            let step = 1e-5;
            let found = (at(step) - at(-step)) / (2.0 * step);
            let expected: f64 = gradient.values.iter().zip(&direction).map(|(g, d)| g * d).sum();
            // Rounding of the divergence divided by the step, and the next order.
            let bound = 1e-14 / step + 1e-7 * (1.0 + expected.abs());
            let off = (found - expected).abs();
            assert!(
                off < bound,
                "case {c}, part {part}, outputs {outputs}: {expected:e} for {found:e}"
            );
        }
    }
}

/// The numbers of a vector without padding, by name: matrices have one row per feature.
fn named(numbers: &Numbers<f64>) -> Vec<(&'static str, Vec<Vec<f64>>)> {
    let Shape { features, dim, features_padded, dim_padded } = numbers.shape;
    let p = numbers.parts();
    let row = |m: usize| (0..dim).map(|l| p.query[l * features_padded + m]).collect();
    vec![
        ("query", (0..features).map(row).collect()),
        ("key", (0..features).map(|m| p.key[m * dim_padded..][..dim].to_vec()).collect()),
        ("constants", vec![p.constants[..features].to_vec()]),
        ("query_rho", vec![p.query_rho.to_vec()]),
        ("key_rho", vec![p.key_rho.to_vec()]),
    ]
}

/// The cases that `autograd.json` has gradients of.
fn cases_of_autograd() -> Vec<(usize, Case, f64)> {
    let some = cases().into_iter().enumerate().filter(|(c, _)| [0, 3, 4, 7].contains(c));
    some.flat_map(|(c, case)| {
        let again = cases().swap_remove(c);
        [(c, case, 0.0), (c, again, 0.6)]
    })
    .collect()
}

/// Prints what `autograd.py` reads.
fn print_cases_of_autograd() {
    for (number, case, outputs) in cases_of_autograd() {
        let Sequence { query_places, key_places, stride, .. } = &case.sequence;
        let (q, k) = (query_places.len(), key_places.len());
        let s = &case.sequence;
        let mut weights = case.weights();
        weights.load(&case.numbers, s, case.view);
        let mut exact = vec![];
        for queries in case.queries().chunks(TILE) {
            weights.tile(&case.numbers, s, case.view, queries);
            exact.extend(weights.rows.iter().map(|row| row.exact_keys().collect::<Vec<_>>()));
        }
        let logit = |i: usize, j: usize| {
            let inner = (0..DIM).map(|l| s.queries[i * DIM + l] * s.keys[l * stride + j]);
            inner.sum::<f64>() + s.key_constants[j] + s.query_constants[i]
        };
        let values = s.values.as_ref().unwrap();
        let mut json = serde_json::json!({
            "case": number,
            "outputs": outputs,
            "z_q": s.query_coordinates.chunks(DIM).collect::<Vec<_>>(),
            "z_k": (0..k)
                .map(|j| (0..DIM).map(|l| s.key_coordinates[l * stride + j]).collect::<Vec<_>>())
                .collect::<Vec<_>>(),
            "query_terms": s.query_terms,
            "key_terms": s.key_terms[..k],
            "logits": (0..q)
                .map(|i| (0..k).map(|j| logit(i, j)).collect::<Vec<_>>())
                .collect::<Vec<_>>(),
            "values": values.numbers.chunks(values.width).map(|r| &r[..DIM]).collect::<Vec<_>>(),
            "seen": (0..q).map(|i| s.seen(i, case.view.causal)).collect::<Vec<_>>(),
            "exact": exact,
        });
        for (name, rows) in named(&case.numbers) {
            let one = rows.len() == 1;
            json[name] = if one { serde_json::json!(rows[0]) } else { serde_json::json!(rows) };
        }
        println!("{json}");
    }
}

/// The gradient against PyTorch's autograd on a plain form of the objective (`autograd.py`, whose input it prints if
/// `FAVOR_AUTOGRAD` is set).
#[test]
fn the_gradient_is_that_of_autograd() {
    if std::env::var_os("FAVOR_AUTOGRAD").is_some() {
        print_cases_of_autograd();
    }
    let wanted: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("autograd.json")).unwrap();
    let all = cases_of_autograd();
    assert_eq!(wanted.len(), all.len());
    for (wanted, (number, case, outputs)) in wanted.iter().zip(all) {
        assert_eq!(
            (wanted["case"].as_u64(), wanted["outputs"].as_f64()),
            (Some(number as u64), Some(outputs))
        );
        let mut gradient = Numbers::zeros(case.numbers.shape);
        let (mut weights, queries) = (case.weights(), case.queries());
        let (numbers, sequence, view) = (&case.numbers, &case.sequence, case.view);
        add_gradient(&mut weights, numbers, sequence, view, &queries, outputs, &mut gradient);
        for (name, rows) in named(&gradient) {
            let ours: Vec<f64> = rows.into_iter().flatten().collect();
            let theirs: Vec<f64> =
                wanted[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            assert_eq!(ours.len(), theirs.len());
            let largest = theirs.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
            for (a, b) in ours.iter().zip(&theirs) {
                // Some hundred sums in another order; what cancels is zero up to rounding.
                let off = (a - b).abs();
                assert!(off < 1e-11 * largest.max(1e-3), "case {number}, {name}: {a:e} for {b:e}");
            }
        }
    }
}

/// The map made from the numbers has, by definition, the outputs that were measured, switched off too: it
/// then finds other global keys, and features still carry queries without any exact key.
#[test]
fn the_numbers_are_those_of_the_map() {
    let switched_off = cases().into_iter().map(|mut case| {
        case.view.switched_off = true;
        case
    });
    for (c, case) in cases().into_iter().chain(switched_off).enumerate() {
        let (q, k, v) = (case.raw.0.view(), case.raw.1.view(), case.raw.2.view());
        let mask = Mask::new(case.view.causal, Some(&case.visible));
        let hybrid = hybrid_attention(&case.map(), case.view.exact, q, k, v, mask).unwrap();
        let exact = exact_attention(case.spec.kernel, q, k, v, mask).unwrap();
        let places = &case.sequence.query_places;
        let pick = |m: &Matrix<f64>| Matrix::from_fn(places.len(), DIM, |i, l| m[(places[i], l)]);
        let expected = relative_error(&pick(&hybrid), &pick(&exact));
        let (sequence, view, queries) = (&case.sequence, case.view, case.queries());
        let found = measure(&mut case.weights(), &case.numbers, sequence, view, &queries).error();
        assert!((found - expected).abs() < 1e-10 * expected, "case {c}: {found} for {expected}");
    }
}
