//! What products in bf16 would bring: a register tile like the engine's, 192 rows × 64 × 64, in f32, in bf16, and in
//! bf16 with both factors split in two so that exponents keep the precision of f32. One core; the conversion of the
//! rows is part of the time, that of the other factor is not, since it is packed once. Runs take turns and the best of
//! each counts.
//!
//! `rustc --edition 2024 -O -C target-cpu=native bench/speed/bf16.rs -o /tmp/bf16 && /tmp/bf16`

use std::arch::x86_64::*;
use std::mem::transmute;
use std::time::Instant;

const ROWS: usize = 192;
const DEPTH: usize = 64;
const COLUMNS: usize = 64;
/// Rows and columns of a tile in registers, in vectors of 16 numbers.
const TILE: (usize, usize) = (6, 4);

fn main() {
    if !is_x86_feature_detected!("avx512bf16") {
        println!("this processor has no AVX512-BF16");
        return;
    }
    let number = |i: usize| ((i * 7919 % 1000) as f32 - 500.0) / 500.0;
    let a: Vec<f32> = (0..ROWS * DEPTH).map(number).collect();
    let b: Vec<f32> = (0..DEPTH * COLUMNS).map(|i| number(i + 17)).collect();
    let (high, low) = split(&b);
    let (high, low) = (pairs(&high), pairs(&low));
    let mut wide = vec![0.0; ROWS * COLUMNS];
    let (mut plain, mut twofold) = (wide.clone(), wide.clone());
    let mut rows = (vec![0u32; ROWS * DEPTH / 2], vec![0u32; ROWS * DEPTH / 2]);
    let mut best = [f64::INFINITY; 3];
    for _ in 0..200 {
        // SAFETY: the processor has the instructions, and all slices have the sizes above.
        unsafe {
            best[0] = best[0].min(seconds(|| in_f32(&a, &b, &mut wide)));
            best[1] = best[1].min(seconds(|| {
                round(&a, &mut rows.0);
                plain.fill(0.0);
                in_bf16(&rows.0, &high, &mut plain);
            }));
            best[2] = best[2].min(seconds(|| {
                split_rows(&a, &mut rows.0, &mut rows.1);
                twofold.fill(0.0);
                in_bf16(&rows.0, &high, &mut twofold);
                in_bf16(&rows.0, &low, &mut twofold);
                in_bf16(&rows.1, &high, &mut twofold);
            }));
        }
    }
    let rate = 2.0 * (ROWS * DEPTH * COLUMNS) as f64 / best[0] / 1e9;
    let error = |x: &[f32]| {
        let square = |(x, y): (&f32, &f32)| f64::from(x - y).powi(2);
        let power: f64 = wide.iter().map(|y| f64::from(*y).powi(2)).sum();
        (x.iter().zip(&wide).map(square).sum::<f64>() / power).sqrt()
    };
    println!("f32: {rate:.0} GFLOP/s");
    for (name, time, out) in [("bf16", best[1], &plain), ("bf16, split in two", best[2], &twofold)] {
        println!("{name}: {:.2} × as fast, relative error {:.1e}", best[0] / time, error(out));
    }
}

/// The time of one call out of many.
fn seconds(mut work: impl FnMut()) -> f64 {
    const CALLS: u32 = 50;
    let start = Instant::now();
    (0..CALLS).for_each(|_| work());
    start.elapsed().as_secs_f64() / f64::from(CALLS)
}

/// The nearest bf16, as an f32.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
}

fn split(x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    x.iter().map(|x| (rounded(*x), rounded(x - rounded(*x)))).unzip()
}

/// Two rows of the right factor in one vector, as the instruction takes them.
fn pairs(b: &[f32]) -> Vec<u32> {
    let bits = |k: usize, c: usize| b[k * COLUMNS + c].to_bits() >> 16;
    let pair = |i: usize| {
        let (k, c) = (i / COLUMNS, i % COLUMNS);
        bits(2 * k, c) | bits(2 * k + 1, c) << 16
    };
    (0..DEPTH / 2 * COLUMNS).map(pair).collect()
}

#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn round(a: &[f32], out: &mut [u32]) {
    for i in (0..a.len()).step_by(32) {
        // SAFETY: `a` has a multiple of 32 numbers and `out` half as many pairs.
        unsafe {
            let (x, y) = (_mm512_loadu_ps(a.as_ptr().add(i)), _mm512_loadu_ps(a.as_ptr().add(i + 16)));
            let both: __m512i = transmute(_mm512_cvtne2ps_pbh(y, x));
            _mm512_storeu_si512(out.as_mut_ptr().add(i / 2).cast(), both);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn split_rows(a: &[f32], high: &mut [u32], low: &mut [u32]) {
    for i in (0..a.len()).step_by(32) {
        // SAFETY: as in `round`.
        unsafe {
            let (x, y) = (_mm512_loadu_ps(a.as_ptr().add(i)), _mm512_loadu_ps(a.as_ptr().add(i + 16)));
            let both = _mm512_cvtne2ps_pbh(y, x);
            let bits: __m512i = transmute(both);
            _mm512_storeu_si512(high.as_mut_ptr().add(i / 2).cast(), bits);
            let halves = (_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64::<1>(bits));
            let widened = |half: __m256i| {
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
            };
            let rest = (_mm512_sub_ps(x, widened(halves.0)), _mm512_sub_ps(y, widened(halves.1)));
            let bits: __m512i = transmute(_mm512_cvtne2ps_pbh(rest.1, rest.0));
            _mm512_storeu_si512(low.as_mut_ptr().add(i / 2).cast(), bits);
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn in_f32(a: &[f32], b: &[f32], out: &mut [f32]) {
    for row in (0..ROWS).step_by(TILE.0) {
        // SAFETY: six rows from `row` on are within `a` and `out`.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); TILE.1]; TILE.0];
            for k in 0..DEPTH {
                let right: [__m512; TILE.1] =
                    std::array::from_fn(|n| _mm512_loadu_ps(b.as_ptr().add(k * COLUMNS + 16 * n)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = _mm512_set1_ps(*a.get_unchecked((row + i) * DEPTH + k));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = _mm512_fmadd_ps(left, right, *sum);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.as_mut_ptr().add((row + i) * COLUMNS + 16 * n), *sum);
                }
            }
        }
    }
}

/// Adds to `out`.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn in_bf16(a: &[u32], b: &[u32], out: &mut [f32]) {
    for row in (0..ROWS).step_by(TILE.0) {
        // SAFETY: six rows from `row` on are within `a` and `out`.
        unsafe {
            let place = |i: usize, n: usize| (row + i) * COLUMNS + 16 * n;
            let mut sums: [[__m512; TILE.1]; TILE.0] = std::array::from_fn(|i| {
                std::array::from_fn(|n| _mm512_loadu_ps(out.as_ptr().add(place(i, n))))
            });
            for k in 0..DEPTH / 2 {
                let right: [__m512bh; TILE.1] = std::array::from_fn(|n| {
                    transmute(_mm512_loadu_si512(b.as_ptr().add(k * COLUMNS + 16 * n).cast()))
                });
                for (i, sums) in sums.iter_mut().enumerate() {
                    let pair = *a.get_unchecked((row + i) * DEPTH / 2 + k);
                    let left: __m512bh = transmute(_mm512_set1_epi32(pair.cast_signed()));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = _mm512_dpbf16_ps(*sum, left, right);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.as_mut_ptr().add(place(i, n)), *sum);
                }
            }
        }
    }
}
