//! Rows added to sums: a block of rows is turned into tiles, one piece per thread, then every thread adds
//! the products of all tiles to some rows of the matrix. Each entry is summed in the order of the rows, so
//! that the number of threads does not show.

use super::{GramSums, packed_length};
use crate::learn::design::{PIECE, Tile, TileReal};
use crate::learn::{Design, Known, Outcome, fold_of};
use crate::simd::{Aligned, Gemm, Prefetch};
use crate::{Error, Float, Result, Rows};
use rayon::prelude::*;

/// Rows that are turned into tiles before their products are added.
const BLOCK: usize = 8 * PIECE;

/// Rows on their way into sums, checked.
struct Added<'a, T> {
    design: &'a Design,
    rows: Rows<'a, T>,
    known: Known<'a>,
    weights: Option<&'a [f64]>,
}

pub(super) fn add<T: Float>(
    sums: &mut GramSums,
    design: &Design,
    rows: Rows<'_, T>,
    known: Known<'_>,
    weights: Option<&[f64]>,
    folds: Option<&[u8]>,
) -> Result<()> {
    if (design.width(), design.offset()) != (sums.width, sums.offset) {
        let (found, wanted) = (design.width(), sums.width);
        let reason = format!("the design has {found} columns where the sums have {wanted}");
        return Err(Error::invalid("sums of a design", reason));
    }
    known.check(&sums.outcome, rows.rows())?;
    check_weights(rows.rows(), weights)?;
    let added = Added { design, rows, known, weights };
    let chosen = added.by_fold(sums.folds.len(), folds)?;
    for chosen in &chosen {
        design.check_some(rows, chosen)?;
        added.check_targets(chosen)?;
    }
    let single = design.is_bounded() && size_of::<T>() == size_of::<f32>();
    // Positive features may overflow on the way, bounded ones may not.
    let before = (!design.is_bounded()).then(|| sums.folds.clone());
    for (fold, chosen) in sums.folds.iter_mut().zip(&chosen) {
        let done = if single {
            added.sum::<f32>(&sums.outcome, chosen, &mut fold.products)
        } else {
            added.sum::<f64>(&sums.outcome, chosen, &mut fold.products)
        };
        if let Err(error) = done {
            if let Some(before) = before {
                sums.folds = before;
            }
            return Err(error);
        }
        fold.rows += chosen.len() as u64;
    }
    Ok(())
}

impl<T: Float> Added<'_, T> {
    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |w| w[row])
    }

    /// The rows of positive weight of each fold.
    fn by_fold(&self, count: usize, folds: Option<&[u8]>) -> Result<Vec<Vec<usize>>> {
        let bad = |reason: String| Err(Error::invalid("folds", reason));
        if let Some(folds) = folds {
            if folds.len() != self.rows.rows() {
                return bad(format!("{} for {} rows", folds.len(), self.rows.rows()));
            }
            if let Some(fold) = folds.iter().find(|f| usize::from(**f) >= count) {
                return bad(format!("fold {fold} where there are {count}"));
            }
        }
        let mut chosen = vec![vec![]; count];
        for i in (0..self.rows.rows()).filter(|&i| self.weight(i) > 0.0) {
            let fold = folds.map_or_else(|| fold_of(self.rows.row(i), count), |f| f[i]);
            chosen[usize::from(fold)].push(i);
        }
        Ok(chosen)
    }

    /// An error that names the first target that cannot be summed.
    fn check_targets(&self, chosen: &[usize]) -> Result<()> {
        let Known::Numbers(values) = self.known else { return Ok(()) };
        for &row in chosen {
            if let Some(column) = values.row(row).iter().position(|v| !v.is_finite()) {
                let value = values.row(row)[column];
                return Err(Error::NonFinite { what: "targets".into(), row, column, value });
            }
        }
        Ok(())
    }

    /// Adds the products of some rows.
    fn sum<R: TileReal>(
        &self,
        outcome: &Outcome,
        chosen: &[usize],
        products: &mut [f64],
    ) -> Result<()> {
        let size = self.design.width() + outcome.width();
        for block in chosen.chunks(BLOCK) {
            let tiles: Result<Vec<Tile<R>>> =
                block.par_chunks(PIECE).map(|piece| self.tile(outcome, piece)).collect();
            add_products(size, &tiles?, products);
        }
        Ok(())
    }

    fn tile<R: TileReal>(&self, outcome: &Outcome, piece: &[usize]) -> Result<Tile<R>> {
        let scaled = self.design.scaled_some(self.rows, piece);
        let mut tile = self.design.tile::<R>(&scaled, outcome.width())?;
        let first = self.design.width();
        for (r, &i) in piece.iter().enumerate() {
            match (self.known, outcome) {
                (Known::Classes(of), _) => tile.set(r, first + of[i], 1.0),
                (Known::Numbers(values), Outcome::Numbers(scalings)) => {
                    for (c, (value, scaling)) in values.row(i).iter().zip(scalings).enumerate() {
                        tile.set(r, first + c, scaling.apply(*value));
                    }
                }
                _ => {}
            }
            if self.weights.is_some() {
                tile.scale_row(r, self.weight(i).sqrt());
            }
        }
        Ok(tile)
    }
}

/// Adds `ZᵀZ` of all tiles to the lower triangle.
fn add_products<R: TileReal>(size: usize, tiles: &[Tile<R>], products: &mut [f64]) {
    let panel = 2 * R::kernels().lanes;
    let mut jobs = vec![];
    let mut rest = products;
    for start in (0..size).step_by(panel) {
        let end = (start + panel).min(size);
        let (own, after) = rest.split_at_mut(packed_length(end) - packed_length(start));
        jobs.push((start, own));
        rest = after;
    }
    // Sums of `f32` stay short; those of `f64` may run over the whole block.
    let short = size_of::<R>() < size_of::<f64>();
    jobs.into_par_iter().rev().for_each(|(start, own)| {
        let (rows, columns) = (panel.min(size - start), start + panel);
        let mut scratch = Aligned::<R>::zeros(rows * columns);
        for (n, tile) in tiles.iter().enumerate() {
            let shape = Gemm {
                rows,
                columns,
                depth: tile.rows,
                a: (1, panel),
                b_row: panel,
                b_panel: panel * tile.rows,
                c_row: columns,
                accumulate: !short && n > 0,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            let data = &tile.panels.data;
            R::kernels().gemm(&shape, &data[start * tile.rows..], data, &mut scratch);
            if short || n + 1 == tiles.len() {
                let mut own = &mut *own;
                for (r, sums) in scratch.chunks_exact(columns).enumerate() {
                    let (row, after) = own.split_at_mut(start + r + 1);
                    row.iter_mut().zip(sums).for_each(|(o, s)| *o += s.to_f64());
                    own = after;
                }
            }
        }
    });
}

/// An error unless there is one weight ≥ 0 per row.
fn check_weights(rows: usize, weights: Option<&[f64]>) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    let bad = |reason: String| Err(Error::invalid("weights", reason));
    if weights.len() != rows {
        return bad(format!("{} for {rows} rows", weights.len()));
    }
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        Some(i) => bad(format!("weight {} of row {i} is not a number ≥ 0", weights[i])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Stream;
    use crate::learn::{Basis, DesignSpec, Scaling};
    use crate::{Family, Matrix, Moments};

    fn matrix(stream: &mut Stream, rows: usize, columns: usize) -> Matrix<f64> {
        // Numbers that both formats hold exactly.
        Matrix::from_fn(rows, columns, |_, _| f64::from(stream.normal() as f32))
    }

    fn single(m: &Matrix<f64>) -> Matrix<f32> {
        Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] as f32)
    }

    /// Every basis, odd sizes: the sums are those of the columns that `transform` gives.
    #[test]
    fn sums_are_products_of_the_columns() {
        let mut stream = Stream::new(1, 20);
        let rows = matrix(&mut stream, 3001, 3);
        let targets = matrix(&mut stream, 3001, 2);
        let weights: Vec<f64> = (0..3001).map(|i| f64::from(i % 4) / 2.0).collect();
        let moments = Moments::of(rows.view()).unwrap();
        for (basis, linear) in [
            (Basis::Random(Family::Trig), false),
            (Basis::Random(Family::Balanced), true),
            (Basis::Nystrom, true),
            (Basis::Nystrom, false),
        ] {
            let spec = DesignSpec::new(45).basis(basis).bandwidth(2.0).linear(linear);
            let design = spec.fit(&moments, rows.view()).unwrap();
            let scaling = Scaling { centre: 0.5, scale: 2.0 };
            let outcome = Outcome::Numbers(vec![Scaling::IDENTITY, scaling]);
            let mut sums = GramSums::new(&design, outcome, 3).unwrap();
            let known = Known::Numbers(targets.view());
            sums.add(&design, rows.view(), known, Some(&weights), None).unwrap();
            assert_eq!(sums.rows(), 2250);
            let features = design.transform(rows.view()).unwrap();
            let (width, size) = (design.width(), design.width() + 2);
            let column = |i: usize, c: usize| match c {
                0 => 1.0,
                c if c < width => features[(i, c - 1)],
                c if c == width => targets[(i, 0)],
                _ => scaling.apply(targets[(i, 1)]),
            };
            let products = sums.products(None, width - 1);
            for a in 0..size {
                for b in 0..=a {
                    let terms = (0..3001).map(|i| weights[i] * column(i, a) * column(i, b));
                    let (sum, size) = terms.fold((0.0, 0.0), |(s, m), v| (s + v, m + f64::abs(v)));
                    // Recursive summation of n terms: at most n roundings of each.
                    let allowed = 3001.0 * f64::EPSILON * size + 1e-300;
                    let error = (products.get(a, b) - sum).abs();
                    assert!(error <= allowed, "{basis} {a} {b}: {error} of {sum}");
                }
            }
        }
    }

    /// Rows in `f32`: features are rounded, and sums of 256 products have at most 256 roundings each.
    #[test]
    fn short_sums_are_within_their_bound() {
        let mut stream = Stream::new(2, 20);
        let rows = matrix(&mut stream, 5000, 4);
        let moments = Moments::of(rows.view()).unwrap();
        let unit = f64::from(f32::EPSILON) / 2.0;
        for basis in [Basis::Random(Family::Trig), Basis::Random(Family::TrigPair), Basis::Nystrom]
        {
            let spec = DesignSpec::new(70).basis(basis).bandwidth(1.5);
            let design = spec.fit(&moments, rows.view()).unwrap();
            let outcome = Outcome::Numbers(vec![]);
            let mut double = GramSums::new(&design, outcome, 1).unwrap();
            let mut short = double.clone();
            double.add(&design, rows.view(), Known::Nothing, None, None).unwrap();
            short.add(&design, single(&rows).view(), Known::Nothing, None, None).unwrap();
            let [double, short] =
                [double, short].map(|sums| sums.products(None, design.width() - 1));
            let mut worst = 0.0_f64;
            for a in 0..design.width() {
                for b in 0..=a {
                    // By Cauchy and Schwarz, Σ|z_a z_b| is at most this.
                    let size = (double.get(a, a) * double.get(b, b)).sqrt();
                    // A phase of t turns is off by (d + 1) roundings of t; frequencies stay below 8.
                    let phase =
                        6.3 * 5.0 * 8.0 * unit * (2.0 / 70.0_f64).sqrt() * 5000.0_f64.sqrt();
                    // Features of landmarks are off by what was measured, elsewhere twice that.
                    let landmark = 2.0 * design.single_error() * 5000.0_f64.sqrt();
                    let features =
                        2.0 * (phase + landmark) * double.get(a, a).max(double.get(b, b)).sqrt();
                    let allowed = 260.0 * unit * size + features;
                    let error = (double.get(a, b) - short.get(a, b)).abs();
                    assert!(error <= allowed, "{basis} {a} {b}: {error} over {allowed}");
                    worst = worst.max(error / size);
                }
            }
            assert!(worst > 0.0, "{basis}: nothing was rounded");
        }
    }

    /// Positive features are summed in `f64`, whatever the rows are in.
    #[test]
    fn positive_features_are_never_rounded() {
        let mut stream = Stream::new(3, 20);
        let rows = matrix(&mut stream, 600, 4);
        let moments = Moments::of(rows.view()).unwrap();
        let design =
            DesignSpec::new(33).basis(Family::Balanced).fit(&moments, rows.view()).unwrap();
        let empty = GramSums::new(&design, Outcome::Numbers(vec![]), 2).unwrap();
        let (mut double, mut short) = (empty.clone(), empty);
        double.add(&design, rows.view(), Known::Nothing, None, None).unwrap();
        short.add(&design, single(&rows).view(), Known::Nothing, None, None).unwrap();
        assert_eq!(double, short);
    }

    #[test]
    fn threads_do_not_show() {
        let mut stream = Stream::new(4, 20);
        let rows = matrix(&mut stream, 7000, 2);
        let moments = Moments::of(rows.view()).unwrap();
        let design = DesignSpec::new(100).fit(&moments, rows.view()).unwrap();
        let with = |threads: usize| {
            let mut sums = GramSums::new(&design, Outcome::Numbers(vec![]), 4).unwrap();
            let single = single(&rows);
            let add = || sums.add(&design, single.view(), Known::Nothing, None, None).unwrap();
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(add);
            sums
        };
        let one = with(1);
        assert!([2, 3, 7].into_iter().all(|threads| with(threads) == one));
    }

    /// An error leaves the sums as they were, wherever the row is that causes it.
    #[test]
    fn errors_change_nothing() {
        let mut rows = Matrix::from_fn(3000, 1, |i, _| f64::from((i % 7) as u32));
        let moments = Moments::of(rows.view()).unwrap();
        for basis in [Basis::Nystrom, Basis::Random(Family::Balanced)] {
            let design = DesignSpec::new(8).basis(basis).fit(&moments, rows.view()).unwrap();
            let mut sums = GramSums::new(&design, Outcome::Numbers(vec![]), 2).unwrap();
            sums.add(&design, rows.view(), Known::Nothing, None, None).unwrap();
            let before = sums.clone();
            for bad in [1e25, f64::NAN] {
                rows[(2999, 0)] = bad;
                let error = sums.add(&design, rows.view(), Known::Nothing, None, None).unwrap_err();
                assert!(error.to_string().contains("row 2999"), "{error}");
                assert_eq!(sums, before);
            }
            rows[(2999, 0)] = 3.0;
        }
    }
}
