//! `K(X,Y)·C` by features in fused tiles, forward and backward.

use super::backward::{GivenKeys, key_gradients};
use super::forward::{piece, query_tile_features, sum_keys};
use super::key_sums::apply_tiles;
use crate::engine::tensor::Strided;
use crate::engine::tile::Scratch;
use crate::engine::tile::Sums;
use crate::engine::tile::{GradientTile, SumGradients, add_outer, feature_panels};
use crate::kernel::{check_sides, check_values};
use crate::map::{Cached, PackedMap};
use crate::simd::Constants;
use crate::{Error, FeatureMap, Float, LogScaled, Matrix, Result, Rows, reference};

/// `K(X,Y)·C` by features, in time linear in the numbers of queries and keys.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Rows, kernel_product};
/// let x = Rows::new(&[0.5_f64, 0.0, 0.0, 0.5], 2, 2)?;
/// let m = Moments::of(x)?;
/// let map = FeatureSpec::new(Family::Balanced, 128).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let ones = Rows::new(&[1.0, 1.0], 2, 1)?;
/// let sums = kernel_product(&map, x, x, ones)?.to_matrix()?;
/// assert!((sums[(0, 0)] - 1.78).abs() < 0.2); // 1 + e^{−1/4}
/// # Ok::<(), favor::Error>(())
/// ```
pub fn kernel_product<T: Float>(
    map: &FeatureMap,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    T::kernel_product(map, x, y, c)
}

pub(crate) fn product<T: Float>(
    map: &FeatureMap,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    check(map, x, y, c)?;
    let fast = map.packed::<T::Real>().map(|packed| fast_product(packed, x, y, c));
    match fast {
        Some(Ok(product)) => Ok(product),
        Some(Err(error)) if !matches!(error, Error::Overflow { .. }) => Err(error),
        // A trigonometric map, or numbers beyond the format.
        _ => reference::kernel_product(map, x, y, c),
    }
}

fn check<T: Float>(map: &FeatureMap, x: Rows<'_, T>, y: Rows<'_, T>, c: Rows<'_, T>) -> Result<()> {
    check_sides("kernel_product", x, y)?;
    check_values("kernel_product", y, c)?;
    if x.columns() == map.dim() {
        return Ok(());
    }
    Err(Error::Shape {
        operation: "kernel_product",
        left: "feature map",
        left_shape: (map.features(), map.dim()),
        right: "queries",
        right_shape: x.shape(),
    })
}

fn fast_product<T: Float>(
    map: &PackedMap<T::Real>,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    let sums = sum_keys(&map.key, Strided::of(y), Strided::of(c), None)?;
    apply_tiles(map, &sums, (c.columns(), piece(x.rows())), x)
}

/// The logarithms of the queries' factors: their exponents, their row terms and the mean over M.
pub(super) fn row_scales<R: Cached>(
    map: &PackedMap<R>,
    rows: usize,
    scratch: &mut Scratch<R>,
    out: &mut [f64],
) {
    scratch.compute_terms(&map.query, rows);
    let mean = (map.query.features as f64).ln();
    for ((out, e), r) in out.iter_mut().zip(&scratch.row_exponents).zip(&scratch.terms) {
        *out = (e.to_f64() + r.to_f64()) * std::f64::consts::LN_2 - mean;
    }
}

/// The gradients of a product with respect to queries, keys and values.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Rows, kernel_product_backward};
/// let x = Rows::new(&[0.5_f64, 0.0, 0.0, 0.5], 2, 2)?;
/// let m = Moments::of(x)?;
/// let map = FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let ones = Rows::new(&[1.0, 1.0], 2, 1)?;
/// let gradients = kernel_product_backward(&map, x, x, ones, ones)?;
/// assert_eq!((gradients.x.shape(), gradients.c.shape()), ((2, 2), (2, 1)));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ProductGradients<T> {
    /// With respect to the queries.
    pub x: Matrix<T>,
    /// With respect to the keys.
    pub y: Matrix<T>,
    /// With respect to the values.
    pub c: Matrix<T>,
}

/// The gradients of [`kernel_product`], given the gradient with respect to the plain product (the
/// one without a logarithmic scale).
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Rows, kernel_product, kernel_product_backward};
/// let x = Rows::new(&[0.5_f64, 0.0, 0.0, 0.5], 2, 2)?;
/// let m = Moments::of(x)?;
/// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let values = Rows::new(&[2.0, 3.0], 2, 1)?;
/// let ones = Rows::new(&[1.0, 1.0], 2, 1)?; // the gradient of the sum of the product
/// let gradients = kernel_product_backward(&map, x, x, values, ones)?;
///
/// // The product is linear in the values, so the sum is their gradient times the values.
/// let product = kernel_product(&map, x, x, values)?.to_matrix()?;
/// let sum = product[(0, 0)] + product[(1, 0)];
/// assert!((2.0 * gradients.c[(0, 0)] + 3.0 * gradients.c[(1, 0)] - sum).abs() < 1e-9);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn kernel_product_backward<T: Float>(
    map: &FeatureMap,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
    gradient: Rows<'_, T>,
) -> Result<ProductGradients<T>> {
    T::kernel_product_backward(map, x, y, c, gradient)
}

pub(crate) fn product_backward<T: Float>(
    map: &FeatureMap,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
    gradient: Rows<'_, T>,
) -> Result<ProductGradients<T>> {
    check(map, x, y, c)?;
    if gradient.shape() != (x.rows(), c.columns()) {
        return Err(Error::Shape {
            operation: "kernel_product_backward",
            left: "queries",
            left_shape: x.shape(),
            right: "gradient",
            right_shape: gradient.shape(),
        });
    }
    gradient.check_finite("gradient")?;
    let Some(packed) = map.packed::<T::Real>() else {
        let reason = "gradients need a positive family whose numbers fit the data's format";
        return Err(Error::invalid("map", reason));
    };
    let sums = sum_keys(&packed.key, Strided::of(y), Strided::of(c), None)?;
    let mut out = ProductGradients {
        x: Matrix::zeros(x.rows(), x.columns()),
        y: Matrix::zeros(y.rows(), y.columns()),
        c: Matrix::zeros(c.rows(), c.columns()),
    };
    let through = query_part(packed, &sums, x, gradient, &mut out.x)?;
    key_gradients(
        packed,
        &sums,
        &through,
        GivenKeys { k: Strided::of(y), v: Strided::of(c), mask: None, terms: &[], of_terms: &[] },
        out.y.as_mut_slice(),
        out.c.as_mut_slice(),
    )?;
    Ok(out)
}

/// Writes the gradients of the queries; returns those of the sums. One tile after the other: the
/// factors of the rows make the sums' gradients anything but alike in size.
fn query_part<T: Float>(
    map: &PackedMap<T::Real>,
    sums: &Sums<T::Real>,
    x: Rows<'_, T>,
    gradient: Rows<'_, T>,
    out: &mut Matrix<T>,
) -> Result<SumGradients<T::Real>> {
    let side = &map.query;
    let columns = gradient.columns();
    let mut scratch = Scratch::new(side, columns, x.rows());
    let mut tile_gradient = GradientTile::new(side, &scratch);
    let mut through = SumGradients::like(sums);
    let panels = feature_panels(&sums.values, sums.width, side.features);
    let rows: Vec<usize> = (0..x.rows()).collect();
    let (zeros, none) =
        (vec![T::Real::ZERO; scratch.capacity], vec![T::Real::ZERO; side.weights.width]);
    let mut g = vec![T::Real::ZERO; scratch.capacity * sums.width];
    let mut scales = vec![0.0; scratch.capacity];
    for rows in rows.chunks(scratch.capacity) {
        query_tile_features(side, sums, Strided::of(x), rows, &mut scratch)?;
        row_scales(map, rows.len(), &mut scratch, &mut scales[..rows.len()]);
        for ((&i, g), scale) in rows.iter().zip(g.chunks_mut(sums.width)).zip(&scales) {
            let factor = scale.exp();
            for (g, v) in g.iter_mut().zip(gradient.row(i)) {
                *g = T::Real::from_f64(Float::to_f64(*v) * factor);
                if !g.is_finite() {
                    return Err(crate::engine::tile::overflow::<T>());
                }
            }
        }
        let tile = scratch.tile(side, rows.len());
        tile_gradient.through_sums(&panels, tile, &g, sums.width);
        let target = out.as_mut_slice();
        tile_gradient.finish(side, &scratch, &zeros, &none, Some(&[]), rows, 0, target);
        let (features, kernels) = (&scratch.features, scratch.kernels);
        add_outer(kernels, tile, features, side.features, &g, sums.width, &mut through.values);
    }
    Ok(through)
}
