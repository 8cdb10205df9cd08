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
use crate::simd::Real;
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
        let raw = (rows(1.3, 0.2), rows(1.1, -0.3), rows(1.0, 0.0));
        let visible: Vec<bool> = (0..LENGTH).map(|j| !masked || j % 7 != 3).collect();
        let spec = FeatureSpec::new(Family::Balanced, 12).kernel(kernel).seed(seed);
        let seen = seen(&raw, &visible);
        let (queries, keys) = (&seen.queries, &seen.keys);
        let moments = [queries, keys].map(|m| Moments::of(m.view()).unwrap());
        let map = spec.fit(&moments[0], &moments[1]).unwrap();
        let sides = (
            Coordinates::new(&map, Side::Query, &moments[0]).unwrap(),
            Coordinates::new(&map, Side::Key, &moments[1]).unwrap(),
        );
        let some = Matrix::from_fn(4, DIM, |i, l| queries[(9 * i, l)]);
        let probes = probes(some, &[keys], kernel);
        let sequence = Sequence::new(seen, kernel, &sides.0, &sides.1);
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
        Self { sequence, numbers, sides, raw, visible, probes, spec, view }
    }

    fn weights(&self) -> Weights<f64> {
        self.weights_of(self.numbers.shape)
    }

    fn weights_of<R: Real>(&self, shape: Shape) -> Weights<R> {
        let rows = ProbeRows::new(&self.probes, self.spec.kernel, &self.sides.0);
        Weights::new(shape, Some(Arc::new(rows)))
    }

    /// The gradient, and which keys are exact for each query.
    fn gradient<R: Real>(
        &self,
        numbers: &Numbers<R>,
        sequence: &Sequence<R>,
        outputs: f64,
    ) -> (Numbers<R>, Vec<Vec<usize>>) {
        let (mut weights, queries) = (self.weights_of(numbers.shape), self.queries());
        let mut out = Numbers::zeros(numbers.shape);
        add_gradient(&mut weights, numbers, sequence, self.view, &queries, outputs, &mut out);
        let mut exact = vec![];
        for tile in queries.chunks(TILE) {
            weights.tile(numbers, sequence, self.view, tile);
            exact.extend(weights.rows.iter().map(|row| row.exact_keys().collect()));
        }
        (out, exact)
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
            source: String::new(),
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

impl Case {
    /// Numbers and sequence, each number changed by up to this fraction.
    fn rounded(&self, seed: u64, unit: f64) -> (Numbers<f64>, Sequence<f64>) {
        let mut noise = Stream::new(seed, 1);
        let raw = seen(&self.raw, &self.visible);
        let mut s = Sequence::<f64>::new(raw, self.spec.kernel, &self.sides.0, &self.sides.1);
        let mut numbers = self.numbers.clone();
        let parts = [
            &mut numbers.values,
            &mut s.queries,
            &mut s.keys,
            &mut s.key_constants,
            &mut s.query_constants,
            &mut s.query_coordinates,
            &mut s.key_coordinates,
            &mut s.key_rows,
            &mut s.query_terms,
            &mut s.key_terms,
        ];
        let values = s.values.iter_mut().flat_map(|v| [&mut v.numbers, &mut v.columns]);
        for x in parts.into_iter().chain(values).flatten() {
            *x *= 1.0 + unit * (2.0 * noise.uniform() - 1.0);
        }
        (numbers, s)
    }
}

/// What is not padding.
fn seen((q, k, v): &(Matrix<f64>, Matrix<f64>, Matrix<f64>), visible: &[bool]) -> Raw {
    let places: Vec<usize> = (0..LENGTH).filter(|&j| visible[j]).collect();
    let pick = |m: &Matrix<f64>| Matrix::from_fn(places.len(), DIM, |i, l| m[(places[i], l)]);
    Raw {
        queries: pick(q),
        keys: pick(k),
        values: Some(pick(v)),
        query_places: places.clone(),
        key_places: places,
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
        let gradient = case.gradient(&case.numbers, &case.sequence, outputs).0;
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

/// Maps are learned in 32 bits: the same gradient up to rounding. What that is comes from gradients in 64 bits with
/// every input changed by up to 2⁻²⁴ of itself. Sums of these products are rounded as often and as much as their
/// factors, and the errors are within four times their root mean square. Where they cancel, in a direction in which the
/// objective does not change, what is left is the rounding of the contributions of the queries: weights that sum to
/// two, times coordinates or their squares.
#[test]
fn the_gradient_in_single_precision_is_close() {
    let unit = 0.5 * f64::from(f32::EPSILON);
    for (c, case) in cases().iter().enumerate() {
        let raw = seen(&case.raw, &case.visible);
        let sequence = Sequence::new(raw, case.spec.kernel, &case.sides.0, &case.sides.1);
        let numbers = narrow(&case.numbers);
        let coordinates = case.sequence.query_coordinates.iter().chain(&case.sequence.key_rows);
        let largest = coordinates.fold(0.0_f64, |m, z| m.max(z.abs()));
        for outputs in [0.0, 0.7] {
            let (wide, exact) = case.gradient(&case.numbers, &case.sequence, outputs);
            let (narrow, same) = case.gradient::<f32>(&numbers, &sequence, outputs);
            assert_eq!(exact, same, "case {c}: other exact keys");
            let draws = 8;
            let mut squares = [0.0; 5];
            for seed in 0..draws {
                let (numbers, sequence) = case.rounded(seed, unit);
                let (rounded, _) = case.gradient(&numbers, &sequence, outputs);
                squares.iter_mut().zip(distances(&wide, &rounded)).for_each(|(s, d)| *s += d * d);
            }
            let found = distances(&wide, &narrow);
            for (part, (name, rows)) in named(&wide).into_iter().enumerate() {
                let inner = [largest, largest, 1.0, largest.powi(2), largest.powi(2)][part];
                let share = (rows.concat().len() as f64 / exact.len() as f64).sqrt();
                let root = (squares[part] / draws as f64).sqrt();
                let bound = 2.0 * 4.0 * root + 2.0 * unit * inner * share;
                assert!(found[part] < bound, "case {c}, {name}: {:e} {bound:e}", found[part]);
            }
        }
    }
}

/// How far apart the parts of two gradients are.
fn distances<R: Real>(a: &Numbers<f64>, b: &Numbers<R>) -> Vec<f64> {
    let distance =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let pairs = named(a).into_iter().zip(named(b));
    pairs.map(|((_, a), (_, b))| distance(&a.concat(), &b.concat())).collect()
}

/// The same numbers in 32 bits, whose rows are padded to longer vectors.
fn narrow(from: &Numbers<f64>) -> Numbers<f32> {
    let old = from.shape;
    let new = Shape::new::<f32>(old.features, old.dim);
    let mut to = Numbers::zeros(new);
    let (a, b) = (from.parts(), to.parts_mut());
    for m in 0..old.features {
        b.constants[m] = a.constants[m] as f32;
        for l in 0..DIM {
            b.query[l * new.features_padded + m] = a.query[l * old.features_padded + m] as f32;
            b.key[m * new.dim_padded + l] = a.key[m * old.dim_padded + l] as f32;
        }
    }
    for l in 0..DIM {
        b.query_rho[l] = a.query_rho[l] as f32;
        b.key_rho[l] = a.key_rho[l] as f32;
    }
    to
}

/// The numbers of a vector without padding, by name: matrices have one row per feature.
fn named<R: Real>(numbers: &Numbers<R>) -> Vec<(&'static str, Vec<Vec<f64>>)> {
    let Shape { features, dim, features_padded, dim_padded } = numbers.shape;
    let p = numbers.parts();
    let wide = |part: &[R]| part.iter().map(|x| x.to_f64()).collect();
    let row = |m: usize| (0..dim).map(|l| p.query[l * features_padded + m].to_f64()).collect();
    vec![
        ("query", (0..features).map(row).collect()),
        ("key", (0..features).map(|m| wide(&p.key[m * dim_padded..][..dim])).collect()),
        ("constants", vec![wide(&p.constants[..features])]),
        ("query_rho", vec![wide(p.query_rho)]),
        ("key_rho", vec![wide(p.key_rho)]),
    ]
}

/// The cases that `autograd.json` has gradients of.
fn cases_of_autograd() -> Vec<(usize, Case, f64)> {
    let some = cases().into_iter().enumerate().filter(|(c, _)| [0, 3, 4, 5, 7].contains(c));
    some.flat_map(|(c, case)| {
        let again = cases().swap_remove(c);
        [(c, case, 0.0), (c, again, 0.6)]
    })
    .collect()
}

/// What `autograd.py` reads: a case per line.
fn inputs_of_autograd() -> String {
    let mut lines = String::new();
    for (number, case, outputs) in cases_of_autograd() {
        let Sequence { query_places, key_places, stride, .. } = &case.sequence;
        let (q, k) = (query_places.len(), key_places.len());
        let s = &case.sequence;
        let exact = case.gradient(&case.numbers, s, outputs).1;
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
        lines += &format!("{json}\n");
    }
    lines
}

/// The gradient against PyTorch's autograd on a plain form of the objective: `autograd.json` is what `autograd.py` makes
/// of the cases, which are written to the file named by `FAVOR_AUTOGRAD` if it is set.
#[test]
fn the_gradient_is_that_of_autograd() {
    if let Some(path) = std::env::var_os("FAVOR_AUTOGRAD") {
        std::fs::write(path, inputs_of_autograd()).unwrap();
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
        let gradient = case.gradient(&case.numbers, &case.sequence, outputs).0;
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
