//! Sums over keys, in plain `f64`.

use crate::kernel::check_sums;
use crate::linalg::{product, transposed_product};
use crate::map::{BLOCK, Block};
use crate::{FeatureMap, Float, KeySums, LogScaled, Matrix, Result, Rows, Side};
use rayon::prelude::*;

/// The same as [`KeySums::add`], block by block in `f64`.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, KeySums, Moments, Rows, reference};
/// let y = Rows::new(&[0.1_f64, 0.2, -0.3, 0.1], 2, 2)?;
/// let ones = Rows::new(&[1.0, 1.0], 2, 1)?;
/// let m = Moments::of(y)?;
/// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let mut plain = KeySums::new(&map, 1);
/// reference::add_keys(&mut plain, &map, y, ones)?;
/// let near = reference::apply_sums(&plain, &map, y)?.to_matrix()?;
/// assert!((near[(0, 0)] - 1.92).abs() < 0.2); // 1 + e^{−0.085}
/// # Ok::<(), favor::Error>(())
/// ```
pub fn add_keys<T: Float>(
    sums: &mut KeySums,
    map: &FeatureMap,
    keys: Rows<'_, T>,
    values: Rows<'_, T>,
) -> Result<()> {
    sums.check_piece(map, keys, values)?;
    map.check_rows(Side::Key, keys)?;
    values.check_finite("values")?;
    // Blocks of a fixed size, merged in order: no dependence on the number of threads.
    let starts: Vec<usize> = (0..keys.rows()).step_by(BLOCK).collect();
    let mut total = sums.clone();
    for group in starts.chunks(64) {
        let parts: Result<Vec<KeySums>> = group
            .par_iter()
            .map(|&start| {
                let block = map.block(Side::Key, keys.slice(start, start + BLOCK))?;
                Ok(of_block(block, values.slice(start, start + BLOCK)))
            })
            .collect();
        parts?.iter().try_for_each(|part| total.merge(part))?;
    }
    *sums = total;
    Ok(())
}

fn of_block<T: Float>(block: Block, values: Rows<'_, T>) -> KeySums {
    let (log_scale, features) = match block {
        Block::Positive(mut logs) => {
            let mut max = vec![f64::NEG_INFINITY; logs.columns()];
            for i in 0..logs.rows() {
                max.iter_mut().zip(logs.row(i)).for_each(|(m, v)| *m = m.max(*v));
            }
            for i in 0..logs.rows() {
                logs.row_mut(i).iter_mut().zip(&max).for_each(|(v, m)| *v = (*v - m).exp());
            }
            (max, logs)
        }
        // Features of either sign share the scale of the largest key.
        Block::Signed { row_log, mut values } => {
            let max = row_log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for (i, log) in row_log.iter().enumerate() {
                let factor = (log - max).exp();
                values.row_mut(i).iter_mut().for_each(|v| *v *= factor);
            }
            (vec![max; values.columns()], values)
        }
    };
    KeySums { log_scale, sums: transposed_product(&features, &values.to_f64(1.0)) }
}

/// The same as [`KeySums::apply`], block by block in `f64`.
///
/// [`add_keys`] has an example with both.
pub fn apply_sums<T: Float>(
    sums: &KeySums,
    map: &FeatureMap,
    queries: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    sums.check_map(map)?;
    map.check_rows(Side::Query, queries)?;
    let blocks: Vec<_> = queries.blocks(BLOCK).collect();
    let parts: Result<Vec<_>> = blocks
        .into_par_iter()
        .map(|block| Ok(apply_block(sums, map.block(Side::Query, block)?)))
        .collect();
    let mut log_scale = Vec::with_capacity(queries.rows());
    let mut values = Vec::with_capacity(queries.rows() * sums.sums.columns());
    for (scales, part) in parts? {
        log_scale.extend(scales);
        values.extend(part.as_slice().iter().map(|v| T::from_f64(*v)));
    }
    let values = Matrix::new(values, queries.rows(), sums.sums.columns())?;
    check_sums(&values)?;
    Ok(LogScaled { log_scale, values })
}

/// The rows of a block of queries and their logarithmic scales.
fn apply_block(sums: &KeySums, block: Block) -> (Vec<f64>, Matrix<f64>) {
    let weight = -(sums.log_scale.len() as f64).ln();
    let (mut scales, features) = match block {
        Block::Positive(mut logs) => {
            for i in 0..logs.rows() {
                let pairs = logs.row_mut(i).iter_mut().zip(&sums.log_scale);
                pairs.for_each(|(v, s)| *v += s);
            }
            Block::Positive(logs).row_scaled()
        }
        Block::Signed { mut row_log, values } => {
            row_log.iter_mut().for_each(|v| *v += sums.log_scale[0]);
            (row_log, values)
        }
    };
    scales.iter_mut().for_each(|s| *s += weight);
    if sums.log_scale[0] == f64::NEG_INFINITY {
        return (vec![0.0; scales.len()], Matrix::zeros(scales.len(), sums.sums.columns()));
    }
    (scales, product(&features, &sums.sums))
}

/// The same as [`kernel_product`](crate::kernel_product), by [`add_keys`] and [`apply_sums`].
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, kernel_product, reference};
/// let x = Matrix::from_fn(20, 3, |i, l| ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 32).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let plain = reference::kernel_product(&map, x.view(), x.view(), x.view())?.to_matrix()?;
/// let fast = kernel_product(&map, x.view(), x.view(), x.view())?.to_matrix()?;
/// assert!((plain[(3, 1)] - fast[(3, 1)]).abs() < 1e-9);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn kernel_product<T: Float>(
    map: &FeatureMap,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    let mut sums = KeySums::new(map, c.columns());
    add_keys(&mut sums, map, y, c)?;
    apply_sums(&sums, map, x)
}
