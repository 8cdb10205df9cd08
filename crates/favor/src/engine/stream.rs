//! Key sums in fused tiles, for the workers of a stream: each call stays on its own thread, since
//! a stream has its threads already.

use super::forward::query_tile_features;
use super::number::Number;
use super::product::row_scales;
use super::strided::Strided;
use super::sums::Sums;
use super::tile::{Scratch, overflow, times_rows};
use crate::kernel::check_values;
use crate::map::{Cached, PackedMap, PackedSide};
use crate::simd::Constants;
use crate::{Element, Error, FeatureMap, KeySums, LogScaled, Matrix, Result, Rows};
use std::f64::consts::LN_2;

/// Rows that are summed in the data's own format before they are added in `f64`.
const PIECE: usize = 8192;

impl KeySums {
    /// What [`KeySums::add`] does, by the fast engine, on the calling thread. For workers that each
    /// have their share of a stream and merge their sums.
    ///
    /// ```
    /// use favor::{Family, FeatureSpec, Kernel, KeySums, Moments, Rows};
    /// let y = Rows::new(&[0.1_f32, 0.2, -0.3, 0.1], 2, 2)?;
    /// let ones = Rows::new(&[1.0_f32, 1.0], 2, 1)?;
    /// let m = Moments::of(y)?;
    /// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::gaussian()).fit(&m, &m)?;
    /// let mut sums = KeySums::new(&map, 1);
    /// sums.add_tiled(&map, y, ones)?;
    /// let near = sums.apply_tiled(&map, y)?.to_matrix()?;
    /// assert!((near[(0, 0)] - 1.92).abs() < 0.2); // 1 + e^{−0.085}
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn add_tiled<T: Element + Number>(
        &mut self,
        map: &FeatureMap,
        keys: Rows<'_, T>,
        values: Rows<'_, T>,
    ) -> Result<()> {
        check_values("add_tiled", keys, values)?;
        self.check_map(map)?;
        if values.columns() != self.sums().columns() || keys.columns() != map.dim() {
            // The plain way knows how to say it.
            return self.add(map, keys, values);
        }
        let fast = map.packed::<T::Real>().map(|packed| fast_sums(&packed.key, keys, values));
        match fast {
            Some(Ok(sums)) => self.merge(&sums),
            Some(Err(error)) if !matches!(error, Error::Overflow { .. }) => Err(error),
            // A trigonometric map, or numbers beyond the format.
            _ => self.add(map, keys, values),
        }
    }

    /// What [`KeySums::apply`] does, by the fast engine, on the calling thread.
    pub fn apply_tiled<T: Element + Number>(
        &self,
        map: &FeatureMap,
        queries: Rows<'_, T>,
    ) -> Result<LogScaled<T>> {
        self.check_map(map)?;
        let seen = self.log_scale().iter().all(|s| s.is_finite());
        let fast = match map.packed::<T::Real>() {
            Some(packed) if seen && queries.columns() == map.dim() => {
                to_tiles(self, &packed.key).map(|sums| fast_apply(packed, self, &sums, queries))
            }
            _ => None,
        };
        match fast {
            Some(Ok(product)) => Ok(product),
            Some(Err(error)) if !matches!(error, Error::Overflow { .. }) => Err(error),
            _ => self.apply(map, queries),
        }
    }
}

fn fast_sums<T: Element + Number>(
    side: &PackedSide<T::Real>,
    keys: Rows<'_, T>,
    values: Rows<'_, T>,
) -> Result<KeySums> {
    let mut scratch = Scratch::new(side, values.columns(), keys.rows());
    // A column of ones would add up to what the totals are.
    let ones = values.columns() == 1 && values.iter().all(|v| v[0].to_f64() == 1.0);
    let mut total: Option<KeySums> = None;
    for start in (0..keys.rows()).step_by(PIECE) {
        let rows: Vec<usize> = (start..(start + PIECE).min(keys.rows())).collect();
        let mut sums = Sums::new(side, values.columns());
        let part = if ones {
            sums.count(side, Strided::of(keys), &rows, &mut scratch)?;
            from_tiles(&sums, side.features, 1, |m, _| sums.totals[m])?
        } else {
            sums.add(side, Strided::of(keys), Strided::of(values), &rows, &mut scratch)?;
            let entry = |m: usize, c: usize| sums.values[m * sums.width + c];
            from_tiles(&sums, side.features, values.columns(), entry)?
        };
        match &mut total {
            Some(total) => total.merge(&part)?,
            None => total = Some(part),
        }
    }
    total.ok_or_else(overflow::<T>)
}

/// The same sums with natural logarithms.
fn from_tiles<R: Cached>(
    sums: &Sums<R>,
    features: usize,
    columns: usize,
    entry: impl Fn(usize, usize) -> R,
) -> Result<KeySums> {
    let log_scale = sums.exponents[..features].iter().map(|e| e.to_f64() * LN_2).collect();
    KeySums::from_parts(log_scale, Matrix::from_fn(features, columns, |m, c| entry(m, c).to_f64()))
}

/// The same sums with integer exponents; `None` where they do not fit the format.
fn to_tiles<R: Cached>(sums: &KeySums, side: &PackedSide<R>) -> Option<Sums<R>> {
    let columns = sums.sums().columns();
    let mut out = Sums::new(side, columns);
    for m in 0..out.exponents.len() {
        // Columns beyond the last feature are copies of it, without values.
        let source = m.min(side.features - 1);
        let log = sums.log_scale()[source];
        let exponent = (log / LN_2).ceil();
        out.exponents[m] = R::from_f64(exponent);
        if m < side.features {
            let factor = (log - exponent * LN_2).exp();
            let row = &mut out.values[m * out.width..][..columns];
            for (v, s) in row.iter_mut().zip(sums.sums().row(m)) {
                *v = R::from_f64(s * factor);
            }
        }
    }
    let finite = out.values.iter().chain(&out.exponents).all(|v| v.is_finite());
    finite.then_some(out)
}

fn fast_apply<T: Element + Number>(
    map: &PackedMap<T::Real>,
    plain: &KeySums,
    sums: &Sums<T::Real>,
    queries: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    let columns = plain.sums().columns();
    let mut values = Matrix::zeros(queries.rows(), columns);
    let mut log_scale = vec![0.0; queries.rows()];
    let mut scratch = Scratch::new(&map.query, columns, queries.rows());
    let rows: Vec<usize> = (0..queries.rows()).collect();
    let step = scratch.capacity;
    for ((rows, out), scales) in rows
        .chunks(step)
        .zip(values.as_mut_slice().chunks_mut(step * columns))
        .zip(log_scale.chunks_mut(step))
    {
        query_tile_features(&map.query, sums, Strided::of(queries), rows, &mut scratch)?;
        row_scales(map, rows.len(), &mut scratch, scales);
        let Scratch { kernels, features, stride, values, .. } = &mut scratch;
        let (features, right) = ((&features[..], *stride), (&sums.values[..], sums.width));
        times_rows(kernels, features, map.query.features, rows.len(), right, values);
        for (out, row) in out.chunks_mut(columns).zip(values.chunks(sums.width)) {
            T::scaled_into(row, T::Real::ONE, out);
        }
    }
    let finite = log_scale.iter().all(|s| s.is_finite());
    match finite && values.as_slice().iter().all(|v| Element::is_finite(*v)) {
        true => Ok(LogScaled { log_scale, values }),
        false => Err(overflow::<T>()),
    }
}
