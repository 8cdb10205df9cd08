//! Random cases for properties: sizes and choices that shrink, data that a seed decides.

use super::normal;
use favor::{Coupling, Family, FeatureMap, FeatureSpec, Kernel, Matrix};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases every time: a failure is there for all who look.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(2024);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// Attention-like data and a map for it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) d: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) columns: usize,
    pub(crate) features: usize,
    pub(crate) family: Family,
    pub(crate) coupling: Coupling,
    /// Standard deviation of the numbers of queries and keys.
    pub(crate) scale: f64,
}

impl Case {
    pub(crate) fn q(&self) -> Matrix<f64> {
        normal(self.seed, self.queries, self.d, 0.1, self.scale)
    }

    pub(crate) fn k(&self) -> Matrix<f64> {
        normal(self.seed + 1, self.keys, self.d, -0.3, 1.5 * self.scale)
    }

    pub(crate) fn v(&self) -> Matrix<f64> {
        normal(self.seed + 2, self.keys, self.columns, 0.5, 1.0)
    }

    pub(crate) fn spec(&self, kernel: Kernel) -> FeatureSpec {
        let spec = FeatureSpec::new(self.family, self.features).kernel(kernel);
        spec.coupling(self.coupling).seed(self.seed)
    }

    /// A map fitted to other data of the same kind, so that it does not change with the rows.
    pub(crate) fn map(&self) -> FeatureMap {
        let (q, k) =
            (normal(5, 40, self.d, 0.1, self.scale), normal(6, 40, self.d, -0.3, self.scale));
        let kernel = Kernel::attention(self.d);
        self.spec(kernel).fit(&super::moments(&q), &super::moments(&k)).unwrap()
    }

    /// A permutation of `0..n` that the seed decides.
    pub(crate) fn permutation(&self, n: usize) -> Vec<usize> {
        let mut stream = favor::draw::Stream::new(self.seed, 31);
        let mut out: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| out.swap(i, stream.index(i + 1)));
        out
    }

    /// A mask with some keys visible and some not, when there is more than one.
    pub(crate) fn mask(&self, n: usize) -> Vec<bool> {
        let mut stream = favor::draw::Stream::new(self.seed, 32);
        let mut out: Vec<bool> = (0..n).map(|_| stream.uniform() < 0.6).collect();
        out[n - 1] = false;
        out[0] = true;
        out
    }
}

/// Cases of the positive families.
pub(crate) fn positive() -> impl Strategy<Value = Case> {
    any_case().prop_filter("positive", |case| case.family.is_positive())
}

/// Cases of all families.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let sizes = (1..7_usize, 1..40_usize, 2..60_usize, 1..4_usize, 1..24_usize);
    let choices = (0..Family::ALL.len(), 0..Coupling::ALL.len(), 0.05..1.5_f64);
    (0..1_000_000_u64, sizes, choices).prop_map(|(seed, sizes, choices)| {
        let (d, queries, keys, columns, features) = sizes;
        let (family, coupling, scale) = choices;
        let (family, coupling) = (Family::ALL[family], Coupling::ALL[coupling]);
        Case { seed, d, queries, keys, columns, features, family, coupling, scale }
    })
}
