//! What the estimators share: a map fitted to rows, and the sums of its features over them.

use super::scaling::scaled;
use super::{Bandwidth, Curve, Examples, FitOptions, Scaling, Targets, choose_bandwidth, gaussian};
use crate::draw::Stream;
use crate::{Error, FeatureMap, Float, KeySums, LogScaled, Matrix, Moments, Result, Rows};

/// Rows that are scaled and summed at a time.
const PIECE: usize = 1 << 16;

/// What the stream that chooses a sample is for.
const SAMPLE: u64 = 1 << 33;

/// A map fitted to rows, and how rows are scaled for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FittedMap {
    pub(super) scalings: Vec<Scaling>,
    pub(super) map: FeatureMap,
    pub(super) bandwidth: f64,
    pub(super) curve: Option<Curve>,
}

impl FittedMap {
    /// Fits to rows. `targets` says what is known of some of them, given how coordinates are scaled.
    pub(super) fn fit<T: Float>(
        options: &FitOptions,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
        targets: impl FnOnce(&[usize], &[Scaling]) -> Targets,
    ) -> Result<Self> {
        options.check()?;
        rows.check_nonempty("rows")?;
        let mut moments = Moments::new(rows.columns());
        match weights {
            Some(weights) => moments.add_weighted(rows, weights)?,
            None => moments.add(rows)?,
        }
        if moments.count() == 0 {
            return Err(Error::invalid("weights", "all are zero; at least one must be positive"));
        }
        let scalings = if options.standardise {
            Scaling::standard(&moments)
        } else {
            vec![Scaling::IDENTITY; rows.columns()]
        };
        let (centres, scales): (Vec<f64>, Vec<f64>) =
            scalings.iter().map(|s| (s.centre, s.scale)).unzip();
        let moments = moments.standardised(&centres, &scales)?;
        let (bandwidth, curve) = match options.bandwidth {
            Bandwidth::Fixed(bandwidth) => (bandwidth, None),
            Bandwidth::Auto(search) => {
                let chosen = sample(&used(rows.rows(), weights), options.sample, options.seed);
                let part = scaled(gathered(rows, &chosen).view(), &scalings).view().to_f64(1.0);
                let shares = chosen.iter().map(|&i| weights.map_or(1.0, |w| w[i])).collect();
                let examples = Examples::new(part, shares, targets(&chosen, &scalings))?;
                let curve = choose_bandwidth(options.spec(), &moments, &examples, search)?;
                (curve.best().map_or(1.0, |t| t.bandwidth), Some(curve))
            }
        };
        let map = options.spec().kernel(gaussian(bandwidth)?).fit(&moments, &moments)?;
        Ok(Self { scalings, map, bandwidth, curve })
    }

    /// An error unless rows have the map's dimension and are finite.
    pub(super) fn check<T: Float>(&self, rows: Rows<'_, T>) -> Result<()> {
        if rows.columns() != self.map.dim() {
            return Err(Error::Shape {
                operation: "kernel model",
                left: "feature map",
                left_shape: (self.map.features(), self.map.dim()),
                right: "rows",
                right_shape: rows.shape(),
            });
        }
        rows.check_finite("rows")
    }
}

/// The sums of a map's features over rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summed {
    pub(super) fitted: FittedMap,
    pub(super) sums: KeySums,
    pub(super) rows: u64,
    pub(super) weight: f64,
}

impl Summed {
    /// Over no rows yet.
    pub(super) fn new(fitted: FittedMap, columns: usize) -> Self {
        let sums = KeySums::new(&fitted.map, columns);
        Self { fitted, sums, rows: 0, weight: 0.0 }
    }

    /// Adds rows: of row `i` in column `c` its weight times `value(i, c)`. After an error the sums are
    /// as they were.
    pub(super) fn add<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
        value: impl Fn(usize, usize) -> f64,
    ) -> Result<()> {
        check_weights(rows, weights)?;
        let used = used(rows.rows(), weights);
        let weight_of = |i: usize| weights.map_or(1.0, |w| w[i]);
        let (mut sums, columns) = (self.sums.clone(), self.sums.sums().columns());
        for piece in used.chunks(PIECE) {
            let part = gathered(rows, piece);
            self.fitted.check(part.view())?;
            let part = scaled(part.view(), &self.fitted.scalings);
            let values = Matrix::from_fn(piece.len(), columns, |r, c| {
                T::from_f64(weight_of(piece[r]) * value(piece[r], c))
            });
            sums.add(&self.fitted.map, part.view(), values.view())?;
        }
        self.sums = sums;
        self.rows += used.len() as u64;
        self.weight += used.iter().map(|&i| weight_of(i)).sum::<f64>();
        Ok(())
    }

    /// Adds the sums over other rows.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        if self.fitted.map != other.fitted.map || self.fitted.scalings != other.fitted.scalings {
            let reason = "the maps differ; fit one model and add the other rows to copies of it";
            return Err(Error::invalid("merge", reason));
        }
        self.sums.merge(&other.sums)?;
        self.rows += other.rows;
        self.weight += other.weight;
        Ok(())
    }

    /// The sums at each of some rows.
    pub(super) fn apply<T: Float>(&self, rows: Rows<'_, T>) -> Result<LogScaled<T>> {
        if self.rows == 0 {
            return Err(Error::invalid("kernel model", "it has seen no rows yet"));
        }
        self.fitted.check(rows)?;
        let columns = self.sums.sums().columns();
        let (mut log_scale, mut values) = (Vec::with_capacity(rows.rows()), vec![]);
        for piece in rows.blocks(PIECE) {
            let piece = scaled(piece, &self.fitted.scalings);
            let part = self.sums.apply(&self.fitted.map, piece.view())?;
            log_scale.extend(part.log_scale);
            values.extend(part.values.into_vec());
        }
        Ok(LogScaled { log_scale, values: Matrix::new(values, rows.rows(), columns)? })
    }
}

/// An error unless there is one weight ≥ 0 per row.
fn check_weights<T: Float>(rows: Rows<'_, T>, weights: Option<&[f64]>) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    check_count(rows, "weights", weights.len())?;
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        Some(i) => {
            let reason = format!("weight {} of row {i} is not a number ≥ 0", weights[i]);
            Err(Error::invalid("weights", reason))
        }
        None => Ok(()),
    }
}

/// An error unless there is one of something per row.
pub(super) fn check_count<T: Float>(
    rows: Rows<'_, T>,
    what: &'static str,
    count: usize,
) -> Result<()> {
    if count == rows.rows() {
        return Ok(());
    }
    Err(Error::Shape {
        operation: "kernel model",
        left: "rows",
        left_shape: rows.shape(),
        right: what,
        right_shape: (count, 1),
    })
}

/// The rows of positive weight: others are not looked at.
fn used(count: usize, weights: Option<&[f64]>) -> Vec<usize> {
    (0..count).filter(|&i| weights.is_none_or(|w| w[i] > 0.0)).collect()
}

fn gathered<T: Float>(rows: Rows<'_, T>, chosen: &[usize]) -> Matrix<T> {
    let mut out = Matrix::zeros(chosen.len(), rows.columns());
    for (r, &i) in chosen.iter().enumerate() {
        out.row_mut(r).copy_from_slice(rows.row(i));
    }
    out
}

/// At most `most` of the given rows, in an order that has nothing to do with theirs, so that every
/// fourth is as good as any.
fn sample(rows: &[usize], most: usize, seed: u64) -> Vec<usize> {
    let mut chosen = rows.to_vec();
    Stream::new(seed, SAMPLE).choose(&mut chosen, most);
    chosen
}
