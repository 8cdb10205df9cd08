//! The exact kernel against its definition, and the identities that the method rests on.

use crate::common::{cast, dot, log_kernel, normal};
use favor::{Error, Kernel, LogScaled, Matrix};
use proptest::prelude::*;

fn kernel_of(choice: usize, scale: f64) -> Kernel {
    Kernel::new([0.0, -0.5, 0.3, -2.0][choice], scale).unwrap()
}

/// The largest term of `log K`, relative to which it is rounded.
fn unit(kernel: Kernel, x: &[f64], y: &[f64]) -> f64 {
    (1.0 + kernel.alpha().abs()) * kernel.scale().powi(2) * (dot(x, x) + dot(y, y)) + 1.0
}

proptest! {
    #![proptest_config(crate::common::cases::config(60))]

    #[test]
    fn values_follow_the_definition(
        seed in 0..1000_u64, rows in 1..90_usize, keys in 1..70_usize, d in 1..9_usize,
        choice in 0..4_usize, scale in 0.1..3.0_f64,
    ) {
        let (x, y) = (normal(seed, rows, d, 0.3, 1.0), normal(seed + 1, keys, d, -0.2, 2.0));
        let kernel = kernel_of(choice, scale);
        let logs = kernel.log_matrix(x.view(), y.view()).unwrap();
        for i in 0..rows {
            for j in 0..keys {
                let expected = log_kernel(kernel, x.row(i), y.row(j));
                let off = (logs[(i, j)] - expected).abs();
                prop_assert!(off <= 1e-13 * unit(kernel, x.row(i), y.row(j)));
            }
        }
        let one = kernel.log_value(x.row(0), y.row(0)).unwrap();
        prop_assert!((one - logs[(0, 0)]).abs() <= 1e-12 * unit(kernel, x.row(0), y.row(0)));
        prop_assert_eq!(kernel.value(x.row(0), y.row(0)).unwrap(), one.exp());
    }

    /// `exp(xᵀy) = exp((x+c)ᵀ(y+e)) · exp(−xᵀe − cᵀy − cᵀe)`, and `xᵀy = (Gx)ᵀ(G⁻ᵀy)`: why any
    /// shift and any transform leave the estimator unbiased.
    #[test]
    fn shifts_and_transforms_leave_the_kernel_as_it_is(seed in 0..1000_u64, d in 1..7_usize) {
        let rows = normal(seed, 4, d, 0.0, 1.0);
        let (x, y, c, e) = (rows.row(0), rows.row(1), rows.row(2), rows.row(3));
        let kernel = Kernel::softmax();
        let plain = kernel.log_value(x, y).unwrap();
        let add = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        let moved = kernel.log_value(&add(x, c), &add(y, e)).unwrap();
        prop_assert!((moved - dot(x, e) - dot(c, y) - dot(c, e) - plain).abs() < 1e-12 * d as f64);

        let zeros = vec![0.0; d];
        let g = normal(seed + 9, d, d, 0.0, 1.0);
        let Ok(p) = favor::Parameters::new(zeros.clone(), g, zeros.clone(), zeros) else {
            return Ok(());
        };
        let turn = |r: &Matrix<f64>, x: &[f64]| (0..d).map(|l| dot(r.row(l), x)).collect::<Vec<_>>();
        let (gx, gy) = (turn(p.query_transform(), x), turn(p.key_transform(), y));
        let turned = kernel.log_value(&gx, &gy).unwrap();
        let size = (dot(&gx, &gx) * dot(&gy, &gy)).sqrt() + 1.0;
        prop_assert!((turned - plain).abs() < 1e-9 * size, "{} {}", turned, plain);
    }

    /// An input scale is the same as scaled inputs; α multiplies by `exp(α‖·‖²)` on each side.
    #[test]
    fn scale_and_alpha_act_on_each_side(
        seed in 0..1000_u64, d in 1..7_usize, choice in 0..4_usize, scale in 0.1..3.0_f64,
    ) {
        let (x, y) = (normal(seed, 3, d, 0.0, 1.0), normal(seed + 1, 5, d, 0.2, 1.0));
        let kernel = kernel_of(choice, scale);
        let logs = kernel.log_matrix(x.view(), y.view()).unwrap();
        let (sx, sy) = (x.view().to_f64(scale), y.view().to_f64(scale));
        let plain = Kernel::new(kernel.alpha(), 1.0).unwrap();
        let same = plain.log_matrix(sx.view(), sy.view()).unwrap();
        let softmax = Kernel::softmax().log_matrix(sx.view(), sy.view()).unwrap();
        for i in 0..3 {
            for j in 0..5 {
                let size = unit(kernel, x.row(i), y.row(j));
                prop_assert!((logs[(i, j)] - same[(i, j)]).abs() <= 1e-13 * size);
                let norms = dot(sx.row(i), sx.row(i)) + dot(sy.row(j), sy.row(j));
                let expected = softmax[(i, j)] + kernel.alpha() * norms;
                prop_assert!((logs[(i, j)] - expected).abs() <= 1e-13 * size);
            }
        }
    }

    /// `K·C` against the double loop, in blocks of more than one query and key block, and with
    /// logarithms up to thousands, where only their differences can be exponentiated.
    #[test]
    fn products_equal_the_double_loop(
        seed in 0..1000_u64, rows in 1..140_usize, keys in 1..1100_usize, choice in 0..4_usize,
        power in -1.0..2.0_f64,
    ) {
        let (d, scale) = (3, 10_f64.powf(power));
        let (x, y) = (normal(seed, rows, d, 0.0, scale), normal(seed + 1, keys, d, 0.1, scale));
        let c = normal(seed + 2, keys, 2, 0.3, 1.0);
        let kernel = kernel_of(choice, 1.0);
        let product = kernel.product(x.view(), y.view(), c.view()).unwrap();
        for i in (0..rows).step_by(7) {
            let logs: Vec<f64> =
                (0..keys).map(|j| log_kernel(kernel, x.row(i), y.row(j))).collect();
            let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for column in 0..2 {
                let (mut sum, mut size) = (0.0, 0.0);
                for (j, log) in logs.iter().enumerate() {
                    let term = (log - max).exp() * c[(j, column)];
                    sum += term;
                    size += term.abs();
                }
                let ours = product.values[(i, column)] * (product.log_scale[i] - max).exp();
                let largest = (0..keys).map(|j| unit(kernel, x.row(i), y.row(j))).fold(0.0, f64::max);
                prop_assert!((ours - sum).abs() <= 1e-13 * largest * size.max(1e-300));
            }
        }
    }
}

/// Near one another and far from zero: the distance must not be lost in the norms.
#[test]
fn gaussian_distances_survive_a_far_centre() {
    let (x, y) = (normal(1, 4, 5, 0.0, 1.0), normal(2, 6, 5, 0.0, 1.0));
    let far = |m: &Matrix<f64>| Matrix::from_fn(m.rows(), 5, |i, l| (m[(i, l)] + 1e6) - 1e6);
    let (x, y) = (far(&x), far(&y)); // so that adding 1e6 is exact below
    let moved = |m: &Matrix<f64>| Matrix::from_fn(m.rows(), 5, |i, l| m[(i, l)] + 1e6);
    let kernel = Kernel::gaussian();
    let near = kernel.log_matrix(x.view(), y.view()).unwrap();
    let away = kernel.log_matrix(moved(&x).view(), moved(&y).view()).unwrap();
    // The centre itself is rounded to 1e6·2⁻⁵³, and enters the distance once.
    assert!(crate::common::largest_difference(&near, &away) < 1e-8);
    let own = kernel.log_matrix(moved(&x).view(), moved(&x).view()).unwrap();
    (0..4).for_each(|i| assert!(own[(i, i)].abs() < 1e-12));
    assert!(own.as_slice().iter().all(|v| *v <= 0.0));
}

#[test]
fn number_formats_agree_to_their_rounding() {
    let (x, y) = (normal(3, 20, 4, 0.0, 1.0), normal(4, 30, 4, 0.0, 1.0));
    let c = normal(5, 30, 3, 0.0, 1.0);
    let (x, y, c) = (cast::<f32>(&x), cast::<f32>(&y), cast::<f32>(&c));
    let wide = |m: &Matrix<f32>| m.view().to_f64(1.0);
    for kernel in [Kernel::softmax(), Kernel::gaussian()] {
        let narrow = kernel.product(x.view(), y.view(), c.view()).unwrap().to_matrix().unwrap();
        let exact = kernel.product(wide(&x).view(), wide(&y).view(), wide(&c).view()).unwrap();
        let exact = exact.to_matrix().unwrap();
        let size = exact.as_slice().iter().fold(0.0_f64, |a, v| a.max(v.abs()));
        let off = crate::common::largest_difference(&wide(&narrow), &exact);
        assert!(off <= 4.0 * f64::from(f32::EPSILON) * size, "{off}");
    }
}

#[test]
fn a_logarithmic_scale_becomes_a_plain_matrix_where_it_fits() {
    let scaled = |scale: f64, values: Vec<f64>| LogScaled {
        log_scale: vec![scale],
        values: Matrix::new(values, 1, 3).unwrap(),
    };
    let plain = scaled(2.0, vec![1.0, -0.5, 0.0]).to_matrix().unwrap();
    let e2 = 2_f64.exp();
    for (ours, expected) in plain.as_slice().iter().zip([e2, -0.5 * e2, 0.0]) {
        crate::common::assert_close("plain", *ours, expected, 1e-15);
    }
    // The factor alone would overflow (e^720) or vanish (e^-800); the products do neither.
    let up = scaled(720.0, vec![1e-30, -1e-30, 0.0]).to_matrix().unwrap();
    let expected = (720.0 + 1e-30_f64.ln()).exp();
    crate::common::assert_close("large", up[(0, 0)], expected, 1e-12);
    crate::common::assert_close("large", up[(0, 1)], -expected, 1e-12);
    assert_eq!(up[(0, 2)], 0.0);
    let down = scaled(-800.0, vec![1e100, 0.0, -1e100]).to_matrix().unwrap();
    crate::common::assert_close("small", down[(0, 0)], (-800.0 + 1e100_f64.ln()).exp(), 1e-12);
    assert_eq!(scaled(-1e9, vec![1.0; 3]).to_matrix().unwrap().as_slice(), [0.0; 3]);

    let refused = scaled(710.0, vec![1.0; 3]).to_matrix().unwrap_err();
    assert!(matches!(refused, Error::Overflow { format: "f64", .. }), "{refused}");
    assert!(scaled(1e9, vec![0.0; 3]).to_matrix().is_ok());
    let narrow = LogScaled { log_scale: vec![89.0], values: Matrix::from_fn(1, 1, |_, _| 1.0_f32) };
    assert!(matches!(narrow.to_matrix(), Err(Error::Overflow { format: "f32", .. })));
}
