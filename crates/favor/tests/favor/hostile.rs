//! Input that no one means is refused, with a message that says what and where.

use crate::common::{cast, moments, normal};
use favor::diagnose::Estimator;
use favor::reference::{Baseline, Mask, baseline_attention, exact_attention, feature_attention};
use favor::{
    Error, Family, FeatureMap, FeatureSpec, Float, Kernel, KeySums, Matrix, Moments, Parameters,
    Rows, Scalar, Side, kernel_product,
};

fn map(family: Family, d: usize) -> FeatureMap {
    let x = normal(1, 10, d, 0.0, 0.5);
    FeatureSpec::new(family, 6).fit(&moments(&x), &moments(&x)).unwrap()
}

/// Asserts an error whose message holds every one of `parts`.
#[track_caller]
fn refused<T>(result: favor::Result<T>, parts: &[&str]) {
    let Err(error) = result else { panic!("accepted; expected an error about {parts:?}") };
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn what_is_not_finite_is_named_by_row_and_column() {
    fn check<T: Float + Scalar>(bad: f64, name: &str) {
        let good = cast::<T>(&normal(2, 5, 3, 0.0, 1.0));
        let mut spoiled = good.clone();
        spoiled[(3, 1)] = T::from_f64(bad);
        spoiled[(4, 0)] = T::from_f64(f64::NAN); // only the first is named
        let (g, s) = (good.view(), spoiled.view());
        let place = [name, "row 3", "column 1"];
        let with = |what: &'static str| [what, place[0], place[1], place[2]];
        refused(Moments::of(s), &place);
        let kernel = Kernel::gaussian();
        refused(kernel.log_matrix(s, g), &with("queries"));
        refused(kernel.log_matrix(g, s), &with("keys"));
        refused(kernel.product(g, g, s), &with("values"));
        for family in Family::ALL {
            let map = map(family, 3);
            refused(map.features_of(Side::Query, s), &with("queries"));
            refused(map.features_of(Side::Key, s), &with("keys"));
            let mut sums = KeySums::new(&map, 3);
            refused(sums.add(&map, s, g), &with("keys"));
            refused(sums.add(&map, g, s), &with("values"));
            refused(sums.apply(&map, s), &with("queries"));
            assert_eq!(sums, KeySums::new(&map, 3), "a refused piece leaves nothing behind");
            refused(kernel_product(&map, s, g, g), &with("queries"));
            let estimator = Estimator::of(&map).unwrap();
            refused(estimator.log_relative_variances(s, g), &with("queries"));
            refused(estimator.log_second_moments(g, s), &with("keys"));
            for causal in [false, true] {
                let mask = Mask::new(causal, None);
                refused(feature_attention(&map, s, g, g, mask), &with("queries"));
                refused(feature_attention(&map, g, s, g, mask), &with("keys"));
                refused(feature_attention(&map, g, g, s, mask), &with("values"));
            }
        }
        let none = Mask::none();
        refused(exact_attention(kernel, s, g, g, none), &with("queries"));
        refused(exact_attention(kernel, g, s, g, none), &with("keys"));
        refused(exact_attention(kernel, g, g, s, none), &with("values"));
        refused(baseline_attention(&Baseline::Elu, g, s, g, none), &with("keys"));
        // Behind a mask the row keeps its own number.
        let keys = [false, true, true, true, true];
        refused(exact_attention(kernel, g, s, g, none.keys(Some(&keys))), &with("keys"));
        refused(Moments::of_masked(s, &keys), &place);
    }
    for (bad, name) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        check::<f64>(bad, name);
        check::<f32>(bad, name);
    }
}

#[test]
fn a_refused_piece_does_not_change_moments() {
    let mut m = moments(&normal(1, 4, 2, 0.0, 1.0));
    let before = m.clone();
    let mut bad = Matrix::<f64>::zeros(5000, 2);
    bad[(4999, 1)] = f64::NAN;
    refused(m.add(bad.view()), &["NaN", "row 4999", "column 1"]);
    assert_eq!(m, before);
}

#[test]
fn empty_sets_are_refused() {
    let some = normal(1, 3, 2, 0.0, 1.0);
    let none = Matrix::<f64>::zeros(0, 2);
    let flat = Matrix::<f64>::zeros(3, 0);
    let kernel = Kernel::softmax();
    refused(kernel.log_matrix(none.view(), some.view()), &["queries", "0 rows"]);
    refused(kernel.log_matrix(some.view(), none.view()), &["keys", "0 rows"]);
    refused(kernel.log_matrix(flat.view(), flat.view()), &["queries", "0 columns"]);
    refused(kernel.product(some.view(), some.view(), flat.view()), &["values", "0 columns"]);
    assert_eq!(Moments::of(none.view()).unwrap().count(), 0);
    for family in Family::ALL {
        refused(family.fit(&Moments::new(2), &moments(&some)), &["queries", "0 rows"]);
        refused(family.fit(&moments(&some), &Moments::new(2)), &["keys", "0 rows"]);
        let flat = Moments::of(flat.view()).unwrap();
        refused(family.fit(&flat, &flat), &["queries", "0 columns"]);
        let map = map(family, 2);
        let (s, n) = (some.view(), none.view());
        refused(feature_attention(&map, n, s, s, Mask::none()), &["queries", "0 rows"]);
        refused(feature_attention(&map, s, n, n, Mask::none()), &["keys", "0 rows"]);
        refused(kernel_product(&map, s, n, n), &["keys", "0 rows"]);
        refused(FeatureSpec::new(family, 0).fit(&moments(&some), &moments(&some)), &["0 rows"]);
    }
    refused(exact_attention(kernel, none.view(), some.view(), some.view(), Mask::none()), &["0"]);
}

#[test]
fn shapes_that_do_not_fit_are_both_named() {
    let (a, b) = (normal(1, 4, 3, 0.0, 1.0), normal(2, 5, 2, 0.0, 1.0));
    let (a, b) = (a.view(), b.view());
    let both = ["(4, 3)", "(5, 2)"];
    let kernel = Kernel::softmax();
    refused(kernel.log_matrix(a, b), &both);
    refused(kernel.product(a, a, b), &both);
    refused(exact_attention(kernel, a, b, b, Mask::none()), &both);
    refused(exact_attention(kernel, a, a, b, Mask::none()), &both);
    refused(baseline_attention(&Baseline::Elu, a, b, b, Mask::none()), &both);
    let (ma, mb) = (Moments::of(a).unwrap(), Moments::of(b).unwrap());
    refused(ma.clone().merge(&mb), &["(3, 3)", "(2, 2)"]);
    refused(ma.clone().add(b), &["(3, 3)", "(5, 2)"]);
    refused(Moments::of_masked(a, &[true; 3]), &["(4, 3)", "(3, 1)"]);
    let longer = normal(3, 6, 3, 0.0, 1.0);
    let causal = Mask::causal();
    refused(
        exact_attention(kernel, a, longer.view(), longer.view(), causal),
        &["(4, 3)", "(6, 3)"],
    );
    let short = [true; 3];
    let masked = Mask::none().keys(Some(&short));
    refused(exact_attention(kernel, a, a, a, masked), &["(3, 1)", "(4, 3)"]);
    for family in Family::ALL {
        refused(family.fit(&ma, &mb), &["3", "(5, 2)"]);
        let map = map(family, 3);
        refused(map.features_of(Side::Key, b), &["(6, 3)", "(5, 2)"]);
        refused(kernel_product(&map, a, b, b), &both);
        refused(feature_attention(&map, a, a, b, Mask::none()), &both);
        refused(feature_attention(&map, a, a, a, masked), &["(3, 1)", "(4, 3)"]);
        let mut sums = KeySums::new(&map, 2);
        refused(sums.add(&map, a, a), &["(6, 2)", "(4, 3)"]);
        refused(sums.merge(&KeySums::new(&map, 3)), &["(6, 2)", "(6, 3)"]);
        let other = FeatureSpec::new(family, 7).fit(&ma, &ma).unwrap();
        refused(sums.apply(&other, a), &["(7, 3)", "(6, 2)"]);
        let estimator = Estimator::of(&map).unwrap();
        if family.is_positive() {
            refused(estimator.log_relative_variances(b, b), &["(3, 3)", "(5, 2)"]);
        }
    }
    refused(Rows::new(&[0.0; 5], 2, 3), &["2 rows", "3 columns", "5 numbers"]);
    refused(Rows::new(&[0.0; 5], usize::MAX, 2), &["5 numbers"]);
    refused(Rows::with_stride(&[0.0; 5], 2, 3, 2), &["2 apart"]);
    refused(Rows::with_stride(&[0.0; 5], usize::MAX, 3, usize::MAX), &["5 numbers"]);
    refused(Matrix::new(vec![0.0; 5], 2, 3), &["5 numbers"]);
}

#[test]
fn parameters_that_are_no_estimator_are_refused() {
    let eye = Matrix::<f64>::identity(2);
    let zero = vec![0.0; 2];
    let new = |a: Vec<f64>, g: Matrix<f64>, c: Vec<f64>, e: Vec<f64>| Parameters::new(a, g, c, e);
    for a in [0.125, 0.2, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refused(new(vec![0.0, a], eye.clone(), zero.clone(), zero.clone()), &["a[1]", "8a < 1"]);
        let b = Parameters::from_projections(vec![a, 0.0], &eye, &eye, zero.clone(), zero.clone());
        refused(b, &["a[0]", "8a < 1"]);
    }
    let singular = Matrix::new(vec![1.0, 2.0, 2.0, 4.0], 2, 2).unwrap();
    assert!(new(zero.clone(), singular, zero.clone(), zero.clone()).is_err());
    let nothing = Matrix::zeros(2, 2);
    assert!(new(zero.clone(), nothing, zero.clone(), zero.clone()).is_err());
    let mut nan = eye.clone();
    nan[(1, 0)] = f64::NAN;
    refused(new(zero.clone(), nan.clone(), zero.clone(), zero.clone()), &["transform", "NaN"]);
    refused(new(zero.clone(), Matrix::identity(3), zero.clone(), zero.clone()), &["(3, 3)", "2"]);
    refused(new(zero.clone(), Matrix::zeros(2, 3), zero.clone(), zero.clone()), &["(2, 3)"]);
    refused(new(zero.clone(), eye.clone(), vec![0.0; 3], zero.clone()), &["query shift", "3", "2"]);
    refused(new(zero.clone(), eye.clone(), zero.clone(), vec![]), &["key shift", "0", "2"]);
    let bad = vec![0.0, f64::INFINITY];
    refused(new(zero.clone(), eye.clone(), zero.clone(), bad), &["key shift", "entry 1", "inf"]);
    assert!(new(vec![], Matrix::zeros(0, 0), vec![], vec![]).is_err());

    // B₁ᵀ(I−4A)⁻¹B₂ = I is what makes it unbiased.
    let from = |a: Vec<f64>, b1: &Matrix<f64>, b2: &Matrix<f64>| {
        Parameters::from_projections(a, b1, b2, vec![0.0; 2], vec![0.0; 2])
    };
    assert!(from(zero.clone(), &eye, &eye).is_ok());
    refused(from(vec![-0.1, 0.0], &eye, &eye), &["unbiased", "(0,0)"]);
    let mut off = eye.clone();
    off[(0, 1)] = 1e-4;
    refused(from(zero.clone(), &eye, &off), &["unbiased", "(0,1)"]);
    refused(from(zero.clone(), &nan, &eye), &["NaN"]);
    refused(from(zero.clone(), &Matrix::identity(3), &eye), &["(3, 3)"]);

    let p = from(zero.clone(), &eye, &eye).unwrap();
    for family in [Family::Trig, Family::TrigPair] {
        refused(FeatureSpec::new(family, 4).with_parameters(p.clone()), &[family.name()]);
        assert!(Estimator::new(family, Kernel::softmax(), Some(p.clone())).is_err());
    }
    assert!(Estimator::new(Family::Pos, Kernel::softmax(), None).is_err());
    let m = moments(&normal(1, 4, 3, 0.0, 1.0));
    refused(p.objective(&m, &m), &["(2, 2)", "(4, 3)"]);
    refused(p.spread(&Moments::new(2), &Moments::new(2)), &["empty"]);
}

#[test]
fn kernels_and_baselines_refuse_what_they_cannot_use() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refused(Kernel::new(bad, 1.0), &["alpha"]);
        refused(Kernel::new(0.0, bad), &["scale"]);
        refused(Kernel::softmax().scaled(bad), &["scale"]);
    }
    refused(Kernel::new(0.0, 0.0), &["scale", "positive"]);
    refused(Kernel::new(0.0, -1.0), &["scale", "-1"]);
    assert!(Kernel::attention(0).scale().is_finite());
    let x = normal(1, 3, 2, 0.0, 1.0);
    let run = |baseline: Baseline| {
        baseline_attention(&baseline, x.view(), x.view(), x.view(), Mask::none())
    };
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(run(Baseline::Relu { epsilon }), &["epsilon"]);
    }
    let omega = Matrix::identity(3);
    refused(run(Baseline::ReluProjected { omega, epsilon: 1.0 }), &["omega", "(3, 3)"]);
    let omega = Matrix::zeros(0, 2);
    refused(run(Baseline::ReluProjected { omega, epsilon: 1.0 }), &["omega", "(0, 2)"]);
    let omega = Matrix::from_fn(4, 2, |i, _| if i == 2 { f64::NAN } else { 1.0 });
    refused(run(Baseline::ReluProjected { omega, epsilon: 1.0 }), &["omega", "NaN", "row 2"]);
    assert!("softmax".parse::<Family>().is_err());
}

#[test]
fn weights_must_be_numbers_not_below_zero() {
    let x = normal(1, 3, 2, 0.0, 1.0);
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        let mut m = Moments::new(2);
        refused(m.add_weighted(x.view(), &[1.0, bad, 1.0]), &["row 1", &bad.to_string()]);
        assert_eq!(m, Moments::new(2));
    }
}

#[test]
fn overflow_says_what_to_do() {
    let huge = Matrix::from_fn(2, 2, |_, _| 1e200);
    let error = Kernel::softmax().log_matrix(huge.view(), huge.view()).unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }) && error.to_string().contains("divide"));
    let spread = normal(1, 4, 2, 0.0, 1e200);
    refused(Moments::of(spread.view()), &["second moment", "divide"]);
}
