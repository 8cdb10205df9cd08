//! Data sets, ordinary and degenerate, and what rounding may do to an objective on them.

use super::{dot, normal};
use favor::draw::Stream;
use favor::{Matrix, Moments, Parameters};

/// A pair of sets with a name for messages.
#[derive(Debug)]
pub(crate) struct Sets {
    pub(crate) name: String,
    pub(crate) x: Matrix<f64>,
    pub(crate) y: Matrix<f64>,
}

impl Sets {
    pub(crate) fn moments(&self) -> (Moments, Moments) {
        (super::moments(&self.x), super::moments(&self.y))
    }
}

/// An ordinary pair of sets: full rank, moderate scales, means apart, columns of unlike spread.
pub(crate) fn ordinary(seed: u64) -> Sets {
    let mut stream = Stream::new(seed, 1);
    let d = 1 + stream.index(6);
    let (rows, scale) = (3 * d + 4 + stream.index(20), (2.0 * stream.uniform() - 1.3).exp());
    let side = |purpose: u64| {
        let mix = normal(seed * 4 + purpose, d, d, 0.0, scale);
        let means = normal(seed * 4 + purpose + 2, 1, d, 0.0, scale);
        let base = normal(seed * 4 + purpose + (1 << 40), rows, d, 0.0, 1.0);
        let mut mixed = super::matmul(&base, &mix);
        for i in 0..rows {
            mixed.row_mut(i).iter_mut().zip(means.row(0)).for_each(|(v, m)| *v += m);
        }
        mixed
    };
    let (x, y) = (side(0), side(1));
    Sets { name: format!("ordinary {seed} (d = {d})"), x, y }
}

const KINDS: usize = 18;

/// A pair of sets that is degenerate in one of many ways, chosen by the seed.
pub(crate) fn degenerate(seed: u64) -> Sets {
    let kind = seed as usize % KINDS;
    let Sets { mut x, mut y, .. } = ordinary(seed);
    let d = x.columns();
    let mut stream = Stream::new(seed, 2);
    let column = stream.index(d);
    let each = |m: &mut Matrix<f64>, f: &mut dyn FnMut(usize, f64) -> f64| {
        for i in 0..m.rows() {
            m.row_mut(i).iter_mut().enumerate().for_each(|(l, v)| *v = f(l, *v));
        }
    };
    let name = match kind {
        0 => {
            each(&mut x, &mut |l, v| if l == column { 0.7 } else { v });
            "constant query column"
        }
        1 => {
            each(&mut x, &mut |l, v| if l == column { 0.0 } else { v });
            "zero query column"
        }
        2 => {
            each(&mut y, &mut |l, v| if l == column { 0.0 } else { v });
            "zero key column"
        }
        3 => {
            x = super::pick(x.view(), &[0, 0, 1, 1, 1, 0]);
            "duplicate rows"
        }
        4 => {
            x = super::pick(x.view(), &[0, 1]);
            y = super::pick(y.view(), &[3]);
            "fewer rows than dimensions"
        }
        5 => {
            x = super::pick(x.view(), &[0]);
            y = super::pick(y.view(), &[0]);
            "one row a side"
        }
        6 => {
            x = super::pick(x.view(), &[2; 7]);
            y = super::pick(y.view(), &[1; 5]);
            "all rows identical"
        }
        7 | 8 => {
            let powers: Vec<f64> =
                (0..2 * d).map(|_| 10_f64.powf(12.0 * stream.uniform() - 6.0)).collect();
            each(&mut x, &mut |l, v| v * powers[l]);
            // Kind 7 scales the sides alike, kind 8 apart.
            each(&mut y, &mut |l, v| v * powers[l + (kind - 7) * d]);
            "columns from 1e-6 to 1e6"
        }
        9 => {
            x = normal(seed, 9, 1, 0.3, 0.5);
            y = normal(seed + 1, 4, 1, -0.2, 0.8);
            "one dimension"
        }
        10 => {
            each(&mut x, &mut |l, v| v + 1e6 * (l as f64 + 1.0));
            each(&mut y, &mut |l, v| v - 2e6 * (l as f64 - 0.5));
            "huge means"
        }
        11 => {
            each(&mut x, &mut |_, v| v * 1e30);
            each(&mut y, &mut |_, v| v * 1e-30);
            "1e30 against 1e-30"
        }
        12 => {
            each(&mut x, &mut |_, v| v * 1e30);
            each(&mut y, &mut |_, v| v * 1e30);
            "1e30 on both sides"
        }
        13 => {
            each(&mut x, &mut |_, v| v * 1e-30);
            each(&mut y, &mut |_, v| v * 1e-30);
            "1e-30 on both sides"
        }
        14 => {
            y = x.clone();
            "keys equal to queries"
        }
        15 => {
            each(&mut x, &mut |_, _| 0.0);
            each(&mut y, &mut |_, _| 0.0);
            "zeros"
        }
        16 => {
            each(&mut x, &mut |_, _| 0.0);
            "zero queries"
        }
        _ => {
            // Two columns the same on both sides: moments of deficient rank that are not diagonal.
            for m in [&mut x, &mut y] {
                for i in 0..m.rows() {
                    let first = m[(i, 0)];
                    m.row_mut(i)[d - 1] = first;
                }
            }
            "equal columns"
        }
    };
    Sets { name: format!("{name}, seed {seed} (d = {})", x.columns()), x, y }
}

/// `L̄` over its floor, `Σ_l log(1−4a) − ½log(1−8a) + φ/(1−8a)`. The floor itself is left out: with
/// huge means it would swallow every digit of the rest.
pub(crate) fn excess(p: &Parameters, x: &Moments, y: &Moments) -> f64 {
    let spread = p.spread(x, y).unwrap();
    p.quadratic().iter().zip(&spread).map(|(&a, &phi)| excess_of(a, phi)).sum()
}

pub(crate) fn excess_of(a: f64, phi: f64) -> f64 {
    (-4.0 * a).ln_1p() - 0.5 * (-8.0 * a).ln_1p() + phi / (1.0 - 8.0 * a)
}

/// How much `excess(p)` would grow if every direction of the data had a variance larger by
/// `fraction` of the average one. The families floor variances at 1e-12 of the average, so their
/// optimum is that of data within this; and backward-stable decompositions move moments by no more
/// than a small multiple of 2⁻⁵³.
pub(crate) fn slack(p: &Parameters, x: &Moments, y: &Moments, fraction: f64) -> f64 {
    let trace = |m: &Moments| (0..m.dim()).map(|l| m.second_moment()[(l, l)]).sum::<f64>();
    let average = |m: &Moments, other: &Moments| match trace(m) {
        0.0 => trace(other) / m.dim() as f64,
        own => own / m.dim() as f64,
    };
    let (tx, ty) = (average(x, y), average(y, x));
    (0..p.dim())
        .map(|l| {
            let (q, k) = (p.query_transform().row(l), p.key_transform().row(l));
            fraction * (tx * dot(q, q) + ty * dot(k, k)) / (1.0 - 8.0 * p.quadratic()[l])
        })
        .sum()
}

/// What a comparison `excess(best) ≤ excess(other)` may be off by: the floors on the side of
/// `other`, rounding on both.
pub(crate) fn tolerance(best: &Parameters, other: &Parameters, x: &Moments, y: &Moments) -> f64 {
    const FLOOR: f64 = 1e-12;
    const ROUNDING: f64 = 1e-14;
    let sums = slack(other, x, y, FLOOR + ROUNDING) + slack(best, x, y, ROUNDING);
    sums + 1e-13 * (p_scale(best) + p_scale(other))
}

/// The magnitude of the logarithms that an excess adds up.
fn p_scale(p: &Parameters) -> f64 {
    p.quadratic().iter().map(|a| 1.0 + (-8.0 * a).abs().ln_1p()).sum()
}
