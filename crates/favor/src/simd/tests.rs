//! Every level of the processor against plain arithmetic, and `2^x` over all of `f32`.

// Indices address several matrices at once here.
#![allow(clippy::needless_range_loop)]

use super::{
    Gather, Gemm, GemmTransposed, Kernels, Layout, PairGradientRows, PairRows, Prefetch, Real,
    Transpose,
};
use crate::draw::Stream;
use rayon::prelude::*;

/// Distance in units of the last place of the exact value.
fn ulps(ours: f32, exact: f64) -> f64 {
    if exact > f64::from(f32::MAX) * (1.0 + 2.0_f64.powi(-25)) {
        return if ours == f32::INFINITY { 0.0 } else { f64::INFINITY };
    }
    let rounded = exact as f32;
    let unit = if rounded < f32::MIN_POSITIVE {
        2.0_f64.powi(-149)
    } else {
        2.0_f64.powi(rounded.to_bits() as i32 / (1 << 23) - 127 - 23)
    };
    (f64::from(ours) - exact).abs() / unit
}

/// All 2³² bit patterns, a slice of each in every block, for the best level; every other level on a part
/// of them.
#[test]
fn exp2_is_within_two_units_everywhere() {
    for (n, kernels) in f32::all_kernels().into_iter().enumerate() {
        // An interpreter is slower by four orders of magnitude.
        let step = match (cfg!(miri), n) {
            (true, _) => 50_021,
            (false, 0) => 1,
            (false, _) => 61,
        };
        let worst = (0..1_u64 << 12)
            .into_par_iter()
            .map(|block| {
                let mut worst = (0.0_f64, 0.0_f32);
                let inputs: Vec<f32> = ((block << 20)..((block + 1) << 20))
                    .step_by(step)
                    .map(|bits| f32::from_bits(bits as u32))
                    .filter(|x| *x >= -160.0 && *x <= 130.0)
                    .collect();
                let mut x = inputs.clone();
                x.resize(inputs.len().next_multiple_of(kernels.lanes), 0.0);
                let count = x.len();
                kernels.exp2(&mut x, count);
                for (input, ours) in inputs.iter().zip(&x) {
                    let error = ulps(*ours, f64::from(*input).exp2());
                    if error > worst.0 || error.is_nan() {
                        worst = (error, *input);
                    }
                }
                worst
            })
            .reduce(|| (0.0, 0.0), |a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a });
        assert!(worst.0 <= 2.0, "{}: 2^{} is off by {} ulp", kernels.name, worst.1, worst.0);
    }
}

#[test]
fn exp2_of_doubles_is_within_two_units() {
    for kernels in f64::all_kernels() {
        let mut stream = Stream::new(1, 1);
        let inputs: Vec<f64> = (0..if cfg!(miri) { 500 } else { 200_000 })
            .map(|_| 2108.0 * stream.uniform() - 1082.0)
            .collect();
        let mut x = inputs.clone();
        kernels.exp2(&mut x, inputs.len());
        for (input, ours) in inputs.iter().zip(&x) {
            let exact = input.exp2();
            // The reference itself is off by up to one unit; Miri adds some at random.
            let allowed = if cfg!(miri) { 12.0 } else { 2.0 };
            let unit = (exact * f64::EPSILON).max(f64::from_bits(1));
            let same = *ours == exact || (ours - exact).abs() <= allowed * unit;
            assert!(same, "{}: 2^{input} = {ours}, not {exact}", kernels.name);
        }
    }
}

/// Units of one: the measure for bounded features. The argument is exact in both formats.
#[test]
fn cosines_are_within_two_units() {
    fn check<R: Real>(kernels: &Kernels<R>, unit: f64) {
        let mut stream = Stream::new(4, 4);
        let inputs: Vec<f64> = (0..if cfg!(miri) { 512 } else { 1 << 17 })
            .map(|i| match i % 4 {
                0 => (stream.uniform() * 4096.0).round() / 4096.0,
                _ => f64::from((20.0 * stream.normal()) as f32),
            })
            .collect();
        let mut x: Vec<R> = inputs.iter().map(|v| R::from_f64(*v)).collect();
        kernels.cosines(R::ONE, &mut x);
        for (input, ours) in inputs.iter().zip(&x) {
            // Reduced first: the product with 2π would round a long angle.
            let exact = (std::f64::consts::TAU * (input - input.round())).cos();
            let error = (ours.to_f64() - exact).abs();
            assert!(error <= 2.0 * unit, "{}: cos(2π {input}) is off by {error}", kernels.name);
        }
    }
    f32::all_kernels().into_iter().for_each(|k| check(k, f64::from(f32::EPSILON)));
    f64::all_kernels().into_iter().for_each(|k| check(k, f64::EPSILON));
}

fn matrix(stream: &mut Stream, n: usize) -> Vec<f64> {
    (0..n).map(|_| stream.normal()).collect()
}

/// Products of every shape and stride against the definition.
#[test]
fn products_follow_the_definition() {
    fn check<R: Real>(kernels: &Kernels<R>, tolerance: f64) {
        let mut stream = Stream::new(2, 2);
        for case in 0..if cfg!(miri) { 20 } else { 200 } {
            let rows = 1 + stream.index(30);
            let vectors = stream.index(6);
            let columns = if vectors == 0 { kernels.narrow } else { kernels.lanes * vectors };
            let depth = stream.index(20);
            let accumulate = stream.index(2) == 0;
            let transposed = stream.index(2) == 0;
            let a_stride = if transposed { (1, rows + 3) } else { (depth + 2, 1) };
            let a = matrix(&mut stream, (rows + 3) * (depth + 2) + 64);
            let b = matrix(&mut stream, (depth + 1) * columns);
            let c = matrix(&mut stream, rows * (columns + 1));
            let real = |v: &[f64]| v.iter().map(|x| R::from_f64(*x)).collect::<Vec<R>>();
            let shape = Gemm {
                rows,
                columns,
                depth,
                a: a_stride,
                b_row: columns,
                b_panel: 2 * kernels.lanes,
                c_row: columns + 1,
                accumulate,
                in_parts: stream.index(2) == 0,
                prefetch: Prefetch::of(&c),
            };
            let mut out = real(&c);
            kernels.gemm(&shape, &real(&a), &real(&b), &mut out);
            for i in 0..rows {
                for j in 0..columns {
                    let sum: f64 = (0..depth)
                        .map(|k| a[i * a_stride.0 + k * a_stride.1] * b[k * columns + j])
                        .sum();
                    let at = i * (columns + 1) + j;
                    let expected = sum + if accumulate { c[at] } else { 0.0 };
                    let error = (out[at].to_f64() - expected).abs();
                    assert!(error < tolerance, "{} case {case}: {error}", kernels.name);
                }
                // The product must not touch the numbers between the rows.
                let between = i * (columns + 1) + columns;
                assert_eq!(out[between], R::from_f64(c[between]));
            }
            let columns = columns.next_multiple_of(kernels.lanes);
            let inner = GemmTransposed {
                rows,
                columns: 1 + case % 9,
                depth: columns,
                a_row: columns,
                b_row: columns,
                c_row: 9,
            };
            let (left, right) =
                (matrix(&mut stream, rows * columns), matrix(&mut stream, 9 * columns));
            let mut out = vec![R::ZERO; rows * 9];
            kernels.inner(&inner, &real(&left), &real(&right), &mut out);
            for i in 0..rows {
                for j in 0..inner.columns {
                    let row = |m: &[f64], i: usize| m[i * columns..(i + 1) * columns].to_vec();
                    let expected: f64 =
                        row(&left, i).iter().zip(&row(&right, j)).map(|(a, b)| a * b).sum();
                    let error = (out[i * 9 + j].to_f64() - expected).abs();
                    assert!(error < tolerance * 10.0, "{} case {case}: {error}", kernels.name);
                }
            }
        }
    }
    f32::all_kernels().into_iter().for_each(|k| check(k, 1e-4));
    f64::all_kernels().into_iter().for_each(|k| check(k, 1e-13));
}

/// A single row has the very sums that it has among others, unless it is summed in parts.
#[test]
fn a_row_alone_is_the_row_among_others() {
    fn check<R: Real>(kernels: &Kernels<R>) {
        let mut stream = Stream::new(3, 3);
        let (rows, depth, panel) = (5, 19, 2 * kernels.lanes);
        for panels in 1..6 {
            let columns = panel * panels - kernels.lanes * (panels % 2);
            let mut random = |n| matrix(&mut stream, n).into_iter().map(R::from_f64).collect();
            let (a, b): (Vec<R>, Vec<R>) = (random(rows * depth), random(panels * panel * depth));
            // Panels one after the other, as weights have them.
            let product = |rows: usize, a: &[R]| {
                let shape = Gemm {
                    rows,
                    columns,
                    depth,
                    a: (depth, 1),
                    b_row: panel,
                    b_panel: depth * panel,
                    c_row: columns,
                    accumulate: false,
                    in_parts: false,
                    prefetch: Prefetch::default(),
                };
                let mut out = vec![R::ZERO; rows * columns];
                kernels.gemm(&shape, a, &b, &mut out);
                out
            };
            let all = product(rows, &a);
            for (row, expected) in a.chunks(depth).zip(all.chunks(columns)) {
                assert!(product(1, row) == expected, "{}, {columns} columns", kernels.name);
            }
        }
    }
    f32::all_kernels().into_iter().for_each(check);
    f64::all_kernels().into_iter().for_each(check);
}

/// Online softmax in two blocks equals softmax in one, on every level; masked logits have no weight.
#[test]
fn softmax_in_blocks_equals_softmax() {
    for kernels in f64::all_kernels() {
        let mut stream = Stream::new(3, 3);
        let width = 2 * kernels.lanes;
        let logits: Vec<f64> = (0..4 * width).map(|_| 300.0 * stream.normal()).collect();
        let (mut e, mut d, mut s) = ([f64::NEG_INFINITY; 2], [0.0; 2], [0.0; 2]);
        let tile = Layout { rows: 2, columns: width, stride: width };
        let mut first: Vec<f64> = [&logits[..width], &logits[2 * width..3 * width]].concat();
        first[width - 1] = f64::MIN / 4.0;
        kernels.softmax_rows(tile, &mut first, None, &mut e, &mut d, &mut s);
        assert_eq!(first[width - 1], 0.0);
        // The second block's logits come in two summands.
        let constants: Vec<f64> = (0..width).map(|j| j as f64).collect();
        let mut second: Vec<f64> = [&logits[width..2 * width], &logits[3 * width..]].concat();
        let summands = constants.iter().cycle();
        second.iter_mut().zip(summands).for_each(|(x, c)| *x -= c);
        kernels.softmax_rows(tile, &mut second, Some(&constants), &mut e, &mut d, &mut s);
        for row in 0..2 {
            let mut all = logits[row * 2 * width..(row + 1) * 2 * width].to_vec();
            if row == 0 {
                all.remove(width - 1);
            }
            let max = all.iter().copied().fold(f64::MIN, f64::max);
            let exact = max + all.iter().map(|x| (x - max).exp2()).sum::<f64>().log2();
            let ours = e[row] + d[row].log2();
            assert!((ours - exact).abs() < 1e-10, "{}: {ours} against {exact}", kernels.name);
        }
    }
}

/// Weights and gradients of pairs on every level: each row sees some of its columns, and nothing else counts.
#[test]
fn pairs_follow_their_definition() {
    fn check<R: Real>(kernels: &Kernels<R>, tolerance: f64) {
        let mut stream = Stream::new(6, 6);
        for case in 0..if cfg!(miri) { 20 } else { 200 } {
            let (rows, columns) = (1 + stream.index(5), kernels.lanes * (1 + stream.index(4)));
            let mut draw = |count: usize| -> Vec<f64> {
                (0..count).map(|_| R::from_f64(stream.normal()).to_f64()).collect()
            };
            let (w, h, t) = (draw(rows * columns), draw(rows * columns), draw(rows * columns));
            let h: Vec<f64> = h.into_iter().map(|h| h.max(0.0)).collect();
            let (constants, delta, factors) = (draw(columns), draw(rows), draw(rows));
            let seen: Vec<(usize, usize)> = (0..rows)
                .map(|_| {
                    let start = stream.index(columns + 1);
                    (start, start + stream.index(columns + 1 - start))
                })
                .collect();
            let exponents: Vec<f64> = (0..rows).map(|_| stream.index(7) as f64 - 3.0).collect();
            let real = |m: &[f64]| -> Vec<R> { m.iter().map(|x| R::from_f64(*x)).collect() };
            let zeros = vec![R::ZERO; rows];
            let (mut e, mut f, mut d, mut s) =
                (real(&exponents), real(&factors), zeros.clone(), zeros.clone());
            let tile = Layout { rows, columns, stride: columns };
            let mut out = real(&w);
            let added = real(&constants);
            let mut sums = PairRows {
                seen: &seen,
                constants: Some(&added),
                exponents: &mut e,
                factors: &mut f,
                denominators: &mut d,
                shrink: &mut s,
            };
            kernels.correct(tile, &mut out, &real(&h), &mut sums);
            let (mut gw, mut gh, mut gt) = (real(&w), real(&h), real(&t));
            let mut of_rows = zeros;
            let mut back = PairGradientRows {
                seen: &seen,
                constants: &added,
                exponents: &e,
                factors: &f,
                delta: &real(&delta),
                sums: &mut of_rows,
            };
            kernels.pair_gradients(tile, (&mut gw, &mut gh, &mut gt), &mut back);
            for i in 0..rows {
                let (start, end) = seen[i];
                let at = |j: usize| i * columns + j;
                let largest = (start..end).map(|j| w[at(j)] + constants[j]);
                let exponent = largest.fold(f64::MIN, f64::max).round().max(exponents[i]);
                assert_eq!(e[i].to_f64(), exponent, "{} case {case}", kernels.name);
                let factor = factors[i] * (exponents[i] - exponent).exp2();
                let (mut denominator, mut sum) = (0.0, 0.0);
                for j in 0..columns {
                    let near = |ours: R, exact: f64| {
                        let error = (ours.to_f64() - exact).abs();
                        assert!(error < tolerance, "{} case {case}: {error}", kernels.name);
                    };
                    let is_seen = (start..end).contains(&j);
                    let h = if is_seen { h[at(j)] } else { 0.0 };
                    let weight = (w[at(j)] + constants[j] - exponent).exp2();
                    let weight = if is_seen { weight } else { 0.0 };
                    let t = t[at(j)] + delta[i];
                    denominator += weight - factor * h;
                    sum += weight * t;
                    near(out[at(j)], weight - factor * h);
                    near(gt[at(j)], weight - factor * h);
                    near(gw[at(j)], weight * t);
                    near(gh[at(j)], if h > 0.0 { -factor * t } else { 0.0 });
                }
                let error = (d[i].to_f64() - denominator).abs() + (of_rows[i].to_f64() - sum).abs();
                assert!(error < tolerance * columns as f64, "{} case {case}", kernels.name);
                assert_eq!(s[i].to_f64(), (exponents[i] - exponent).exp2());
            }
        }
    }
    f32::all_kernels().into_iter().for_each(|k| check(k, 1e-4));
    f64::all_kernels().into_iter().for_each(|k| check(k, 1e-12));
}

/// Every number of a transposed matrix is where it belongs, and nothing between its rows is touched.
#[test]
fn transposing_moves_every_number_to_its_place() {
    fn check<R: Real>(kernels: &Kernels<R>) {
        let mut stream = Stream::new(4, 4);
        for _ in 0..if cfg!(miri) { 20 } else { 200 } {
            let vectors = stream.index(4);
            let width = if vectors == 0 { kernels.narrow } else { kernels.lanes * vectors };
            let (rows, columns) = (stream.index(width + 1), 1 + stream.index(40));
            let (row_stride, out_stride) = (columns + stream.index(3), width + stream.index(3));
            let x: Vec<R> = (0..rows * row_stride).map(|n| R::from_f64(1.0 + n as f64)).collect();
            let untouched = R::from_f64(-1.0);
            let mut out = vec![untouched; columns * out_stride];
            kernels.transpose(
                &Transpose { rows, columns, row_stride, width, out_stride },
                &x,
                &mut out,
            );
            for l in 0..columns {
                for j in 0..out_stride {
                    let expected = match j {
                        _ if j < rows => x[j * row_stride + l],
                        _ if j < width => R::ZERO,
                        _ => untouched,
                    };
                    assert_eq!(out[l * out_stride + j], expected, "{}", kernels.name);
                }
            }
        }
    }
    f32::all_kernels().into_iter().for_each(check);
    f64::all_kernels().into_iter().for_each(check);
}

/// Products of scattered rows, and sums of rows in groups, against their definitions.
#[test]
fn gathered_rows_follow_the_definition() {
    fn check<R: Real>(kernels: &Kernels<R>, tolerance: f64) {
        let mut stream = Stream::new(5, 5);
        for case in 0..if cfg!(miri) { 10 } else { 100 } {
            let vectors = stream.index(4);
            let columns = if vectors == 0 { kernels.narrow } else { kernels.lanes * vectors };
            let (depth, count, total) = (stream.index(20), stream.index(20), 30);
            let real = |v: &[f64]| v.iter().map(|x| R::from_f64(*x)).collect::<Vec<R>>();
            let (a, b) = (matrix(&mut stream, total * 20), matrix(&mut stream, depth * columns));
            let rows: Vec<usize> = (0..count).map(|_| stream.index(total)).collect();
            // Targets that do not overlap, out of order.
            let targets: Vec<usize> = (0..count).map(|n| (n * 7 % count) * (columns + 1)).collect();
            let distinct: std::collections::HashSet<_> = targets.iter().collect();
            if distinct.len() < count {
                continue;
            }
            let mut out = vec![R::ZERO; count * (columns + 1)];
            let shape = Gather { columns, depth, a_row: 20 };
            kernels.gather(&shape, (&rows, &targets), &real(&a), &real(&b), &mut out);
            for (row, target) in rows.iter().zip(&targets) {
                for j in 0..columns {
                    let sum: f64 = (0..depth).map(|k| a[row * 20 + k] * b[k * columns + j]).sum();
                    let error = (out[target + j].to_f64() - sum).abs();
                    assert!(error < tolerance, "{} case {case}: {error}", kernels.name);
                }
            }
            let (room, width) = (1 + stream.index(9), kernels.lanes * (1 + stream.index(6)));
            let starts: Vec<usize> = (0..1 + stream.index(4)).map(|_| stream.index(12)).collect();
            let (weights, x) =
                (matrix(&mut stream, starts.len() * room), matrix(&mut stream, 20 * width));
            let start = matrix(&mut stream, width);
            let mut sums = real(&start);
            kernels.add_places(room, &starts, &real(&weights), &real(&x), &mut sums);
            for l in 0..width {
                let pairs = starts.iter().enumerate();
                let all = pairs.flat_map(|(g, s)| (0..room).map(move |c| (g * room + c, s + c)));
                let sum: f64 = all.map(|(w, row)| weights[w] * x[row * width + l]).sum();
                let error = (sums[l].to_f64() - start[l] - sum).abs();
                assert!(error < tolerance, "{} case {case}: {error}", kernels.name);
            }
        }
    }
    f32::all_kernels().into_iter().for_each(|k| check(k, 1e-4));
    f64::all_kernels().into_iter().for_each(|k| check(k, 1e-13));
}

/// The largest products of a row against sorting, equal ones included, and the columns that exceed a bound.
#[test]
fn largest_columns_are_those_of_a_stable_sort() {
    fn check<R: Real>(kernels: &Kernels<R>) {
        let mut stream = Stream::new(6, 6);
        for _ in 0..if cfg!(miri) { 10 } else { 100 } {
            let (rows, columns) = (1 + stream.index(5), kernels.lanes * (1 + stream.index(4)));
            let most = 1 + stream.index(columns);
            let tile = Layout { rows, columns, stride: columns + 2 };
            // Small integers: many are equal, and their products are exact.
            let mut draw = |n: usize| -> Vec<R> {
                (0..n).map(|_| R::from_f64(stream.index(6) as f64)).collect()
            };
            let (t, z) = (draw(rows * tile.stride), draw(columns));
            let (mut scores, mut out) = (vec![R::ZERO; columns], vec![usize::MAX; rows * most]);
            kernels.largest_columns(tile, &t, &z, &mut scores, (&mut out, most));
            let vectors = columns / kernels.lanes;
            let (terms, mut over) = (draw(rows), vec![u32::MAX; rows * vectors]);
            kernels.columns_over(tile, &t, &terms, &z, &mut over);
            for i in 0..rows {
                let row = &t[i * tile.stride..][..columns];
                let score = |j: &usize| (row[*j] * z[*j]).to_f64();
                let mut order: Vec<usize> = (0..columns).collect();
                order.sort_by(|a, b| score(b).total_cmp(&score(a)));
                assert_eq!(out[i * most..][..most], order[..most], "{}", kernels.name);
                for j in 0..columns {
                    let bits = over[i * vectors + j / kernels.lanes];
                    let is_over = bits >> (j % kernels.lanes) & 1 == 1;
                    assert_eq!(is_over, row[j] + terms[i] > z[j], "{}", kernels.name);
                }
            }
        }
    }
    f32::all_kernels().into_iter().for_each(check);
    f64::all_kernels().into_iter().for_each(check);
}

/// Slopes of row terms against their definition, with the other row and without.
#[test]
fn slopes_follow_the_definition() {
    for kernels in f64::all_kernels() {
        let mut stream = Stream::new(7, 7);
        let (rows, columns) = (5, 3 * kernels.lanes);
        let tile = Layout { rows, columns, stride: columns };
        let stride = columns + kernels.lanes;
        let mut draw = |n: usize| matrix(&mut stream, n);
        let (start, v, factors) = (draw(rows * columns), draw(rows * columns), draw(rows));
        let (a, b, transformed) = (draw(columns), draw(columns), draw(rows * stride));
        for with in [false, true] {
            let mut out = start.clone();
            let other = with.then_some((&transformed[..], stride));
            kernels.add_slopes(tile, &mut out, &v, &factors, (&a, &b), other);
            for (i, factor) in factors.iter().enumerate() {
                for l in 0..columns {
                    let at = i * columns + l;
                    let other = if with { transformed[i * stride + l] } else { 0.0 };
                    let expected = start[at] + factor * (2.0 * a[l] * v[at] + b[l] - other);
                    assert!((out[at] - expected).abs() < 1e-13, "{}", kernels.name);
                }
            }
        }
    }
}
