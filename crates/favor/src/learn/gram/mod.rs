//! The sums behind every head: the products of the columns `[1, linear part, φ, targets]` over the rows.
//!
//! One symmetric matrix per fold holds all that ridge regression, a Gaussian process and kernel PCA need:
//! the weight in its first entry, Σφ and Σy in its first row, ΦᵀΦ, Φᵀy and yᵀy. Matrices of different rows
//! add and subtract. A cross-validated fit without fold k is the total minus fold k.

mod sum;

use super::{Design, Known, Outcome};
use crate::store::{Array, Kind};
use crate::{Error, Float, Matrix, Result, Rows};
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.gram", "sums of a design", 1);

/// Sums of the products of a design's columns over rows, by folds.
///
/// ```
/// use favor::learn::{DesignSpec, GramSums, Known, Outcome, RidgeOptions, Scaling};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(2000, 1, |i, _| (i as f64 * 0.37).sin());
/// let y = Matrix::from_fn(2000, 1, |i, _| (3.0 * rows[(i, 0)]).cos());
/// let spec = DesignSpec::new(32).bandwidth(0.7);
/// let design = spec.fit(&Moments::of(rows.view())?, rows.view().slice(0, 500))?;
///
/// let outcome = Outcome::Numbers(vec![Scaling::IDENTITY]);
/// let mut sums = GramSums::new(&design, outcome, 4)?;
/// let mut elsewhere = sums.clone();
/// sums.add(&design, rows.view().slice(0, 1500), Known::Numbers(y.view().slice(0, 1500)), None, None)?;
/// elsewhere.add(&design, rows.view().slice(1500, 2000), Known::Numbers(y.view().slice(1500, 2000)), None, None)?;
/// sums.merge(&elsewhere)?;
///
/// let fit = sums.ridge(&RidgeOptions::default())?;
/// assert!(fit.report.score.unwrap() > 0.999); // R² by folds
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct GramSums {
    outcome: Outcome,
    /// Columns of the design.
    width: usize,
    /// Of these, those before the features.
    offset: usize,
    folds: Vec<Fold>,
}

#[derive(Deserialize)]
struct Raw {
    outcome: Outcome,
    width: usize,
    offset: usize,
    folds: Vec<Fold>,
}

/// The sums over the rows of one fold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fold {
    rows: u64,
    /// The lower triangle, row after row.
    products: Vec<f64>,
}

impl TryFrom<Raw> for GramSums {
    type Error = Error;
    fn try_from(Raw { outcome, width, offset, folds }: Raw) -> Result<Self> {
        let length = packed_length(width + outcome.width());
        let fits =
            |f: &Fold| f.products.len() == length && f.products.iter().all(|v| v.is_finite());
        if offset == 0 || width <= offset || folds.is_empty() || folds.len() > 255 {
            return Err(Error::invalid("sums of a design", "their shape is not valid"));
        }
        if !folds.iter().all(fits) {
            return Err(Error::invalid("sums of a design", "their numbers do not belong together"));
        }
        Ok(Self { outcome, width, offset, folds })
    }
}

/// Entries of the lower triangle of a square matrix.
fn packed_length(size: usize) -> usize {
    size * (size + 1) / 2
}

/// An error unless there can be so many folds.
pub(super) fn check_folds(folds: usize) -> Result<()> {
    if (1..=255).contains(&folds) {
        return Ok(());
    }
    Err(Error::invalid("folds", format!("{folds}; give 1 to 255")))
}

impl GramSums {
    /// The sums over no rows yet, in so many folds, from 1 to 255.
    pub fn new(design: &Design, outcome: Outcome, folds: usize) -> Result<Self> {
        check_folds(folds)?;
        let width = design.width();
        let empty = Fold { rows: 0, products: vec![0.0; packed_length(width + outcome.width())] };
        Ok(Self { outcome, width, offset: design.offset(), folds: vec![empty; folds] })
    }

    /// Adds rows with what is known of them. `folds` is the fold of each row; without it,
    /// [`fold_of`](super::fold_of) decides. Rows of weight 0 are not looked at. After an error the sums are
    /// as they were.
    ///
    /// With `f32` rows the features of a bounded design (trigonometric, or of landmarks) are multiplied in
    /// `f32` and added up in `f64` after every 256 rows; all else is `f64` throughout.
    pub fn add<T: Float>(
        &mut self,
        design: &Design,
        rows: Rows<'_, T>,
        known: Known<'_>,
        weights: Option<&[f64]>,
        folds: Option<&[u8]>,
    ) -> Result<()> {
        sum::add(self, design, rows, known, weights, folds)
    }

    /// Adds the sums over other rows.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.check_same("merge", other)?;
        for (own, new) in self.folds.iter_mut().zip(&other.folds) {
            own.rows += new.rows;
            own.products.iter_mut().zip(&new.products).for_each(|(a, b)| *a += b);
        }
        Ok(())
    }

    /// Takes rows out that were added before. It is an error if a fold has fewer rows than are taken out,
    /// and then nothing changes.
    pub fn subtract(&mut self, other: &Self) -> Result<()> {
        self.check_same("subtract", other)?;
        let pairs = || self.folds.iter().zip(&other.folds).enumerate();
        if let Some((k, (own, gone))) = pairs().find(|(_, (own, gone))| gone.rows > own.rows) {
            let reason = format!(
                "{} rows of fold {k} cannot leave where {} are; only rows that were added can",
                gone.rows, own.rows
            );
            return Err(Error::invalid("subtract", reason));
        }
        let total: f64 = self.folds.iter().map(|f| f.products[0]).sum();
        let beyond = pairs().find(|(_, (own, gone))| {
            gone.products[0] > own.products[0] + 1e-9 * total || negative_diagonal(own, gone)
        });
        if let Some((k, _)) = beyond {
            let reason = format!(
                "the sums of fold {k} would be those of no rows; only rows that were added can leave"
            );
            return Err(Error::invalid("subtract", reason));
        }
        for (own, gone) in self.folds.iter_mut().zip(&other.folds) {
            own.rows -= gone.rows;
            if own.rows == 0 {
                own.products.fill(0.0);
            } else {
                own.products.iter_mut().zip(&gone.products).for_each(|(a, b)| *a -= b);
            }
        }
        Ok(())
    }

    fn check_same(&self, operation: &'static str, other: &Self) -> Result<()> {
        let shape = |s: &Self| (s.width, s.offset, s.folds.len());
        if shape(self) == shape(other) && self.outcome == other.outcome {
            return Ok(());
        }
        let reason = "the sums are of different designs, targets or folds; add the other rows to an \
                      empty copy of these";
        Err(Error::invalid(operation, reason))
    }

    /// The same sums with `count` classes, class `c` of these in place `places[c]`: for merging with sums
    /// that know other classes.
    ///
    /// ```
    /// use favor::learn::{DesignSpec, GramSums, Known, Outcome};
    /// use favor::{Matrix, Moments};
    /// let rows = Matrix::from_fn(9, 1, |i, _| i as f64);
    /// let design = DesignSpec::new(4).fit(&Moments::of(rows.view())?, rows.view())?;
    /// let mut sums = GramSums::new(&design, Outcome::Classes(1), 2)?;
    /// sums.add(&design, rows.view(), Known::Classes(&[0; 9]), None, None)?;
    /// assert_eq!(sums.with_classes(3, &[2])?.target_mean(), [0.0, 0.0, 1.0]);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn with_classes(&self, count: usize, places: &[usize]) -> Result<Self> {
        let Outcome::Classes(own) = self.outcome else {
            return Err(Error::invalid("classes", "the sums are of numbers"));
        };
        let mut distinct = places.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if places.len() != own || distinct.len() != own || distinct.iter().any(|p| *p >= count) {
            let reason = format!("{own} different places below {count} are needed: {places:?}");
            return Err(Error::invalid("classes", reason));
        }
        let column =
            |c: usize| if c < self.width { c } else { self.width + places[c - self.width] };
        let one = |fold: &Fold| {
            let mut products = vec![0.0; packed_length(self.width + count)];
            for a in 0..self.width + own {
                for b in 0..=a {
                    let (i, j) = (column(a).max(column(b)), column(a).min(column(b)));
                    products[packed_length(i) + j] = fold.products[packed_length(a) + b];
                }
            }
            Fold { rows: fold.rows, products }
        };
        let folds = self.folds.iter().map(one).collect();
        Ok(Self { outcome: Outcome::Classes(count), folds, ..*self })
    }

    /// The same before the first row.
    pub fn emptied(&self) -> Self {
        let empty = |f: &Fold| Fold { rows: 0, products: vec![0.0; f.products.len()] };
        Self { folds: self.folds.iter().map(empty).collect(), ..self.clone() }
    }

    /// What is predicted.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Columns of the design: the intercept's, the linear part's and the features'.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Features of the design.
    pub fn features(&self) -> usize {
        self.width - self.offset
    }

    /// Columns before the features.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of folds.
    pub fn folds(&self) -> usize {
        self.folds.len()
    }

    /// Rows of positive weight in each fold.
    pub fn fold_rows(&self) -> Vec<u64> {
        self.folds.iter().map(|f| f.rows).collect()
    }

    /// Rows of positive weight.
    pub fn rows(&self) -> u64 {
        self.folds.iter().map(|f| f.rows).sum()
    }

    /// The sum of the weights.
    pub fn weight(&self) -> f64 {
        self.folds.iter().map(|f| f.products[0]).sum()
    }

    /// The mean of each column of the design but the intercept's.
    pub fn feature_mean(&self) -> Vec<f64> {
        self.means(1, self.width)
    }

    /// The mean of each target as it is summed: the share of a class, or the scaled number.
    pub fn target_mean(&self) -> Vec<f64> {
        self.means(self.width, self.width + self.outcome.width())
    }

    fn means(&self, start: usize, end: usize) -> Vec<f64> {
        let weight = self.weight().max(f64::MIN_POSITIVE);
        let sum = |c: usize| self.folds.iter().map(|f| f.products[packed_length(c)]).sum::<f64>();
        (start..end).map(|c| sum(c) / weight).collect()
    }

    /// Bytes that the sums take.
    pub fn size_in_bytes(&self) -> usize {
        self.folds.iter().map(|f| 8 * f.products.len()).sum()
    }

    /// The mean squared norm of the first `size` columns after the intercept's, centred, or 1 if they are
    /// constant.
    pub(super) fn unit(&self, size: usize) -> f64 {
        let sum = |place: usize| self.folds.iter().map(|f| f.products[place]).sum::<f64>();
        let weight = sum(0).max(f64::MIN_POSITIVE);
        let variance = |c: usize| {
            let (square, mean) = (sum(packed_length(c) + c), sum(packed_length(c)) / weight);
            square / weight - mean * mean
        };
        let unit: f64 = (1..=size).map(variance).sum();
        if unit > 1e-14 { unit } else { 1.0 }
    }

    /// The matrix of all folds but one, or of all, with the first `size` columns after the intercept's.
    pub(super) fn products(&self, without: Option<usize>, size: usize) -> Products {
        let folds = self.folds.iter().enumerate().filter(|(k, _)| Some(*k) != without);
        self.added(folds.map(|(_, fold)| fold), size)
    }

    /// The matrix of one fold.
    pub(super) fn fold_products(&self, fold: usize, size: usize) -> Products {
        self.added(std::iter::once(&self.folds[fold]), size)
    }

    fn added<'a>(&self, folds: impl Iterator<Item = &'a Fold>, columns: usize) -> Products {
        let size = self.width + self.outcome.width();
        let mut packed = vec![0.0; packed_length(size)];
        for fold in folds {
            // The rows of the columns, and those of the targets.
            for part in [0..packed_length(columns + 1), packed_length(self.width)..packed.len()] {
                let pairs = packed[part.clone()].iter_mut().zip(&fold.products[part]);
                pairs.for_each(|(sum, product)| *sum += product);
            }
        }
        Products { packed, columns, width: self.width, size }
    }

    /// The sums as the bytes of a safetensors file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = Header {
            outcome: self.outcome.clone(),
            width: self.width,
            offset: self.offset,
            rows: self.fold_rows(),
        };
        let array = |(k, f): (usize, &Fold)| {
            Array::f64(format!("fold_{k}"), [f.products.len()], &f.products)
        };
        KIND.write(&header, self.folds.iter().enumerate().map(array).collect())
    }

    /// Reads the bytes that [`GramSums::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<Header>(bytes)?;
        let Header { outcome, width, offset, rows } = &file.contents;
        let fold = |(k, rows): (usize, &u64)| {
            let (_, products) = file.f64(&format!("fold_{k}"))?;
            Ok(Fold { rows: *rows, products })
        };
        let folds = rows.iter().enumerate().map(fold).collect::<Result<Vec<Fold>>>()?;
        Raw { outcome: outcome.clone(), width: *width, offset: *offset, folds }.try_into()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    outcome: Outcome,
    width: usize,
    offset: usize,
    rows: Vec<u64>,
}

/// Whether what is left of some column's square would be clearly negative.
fn negative_diagonal(own: &Fold, gone: &Fold) -> bool {
    let mut place = 0;
    for step in 2.. {
        let (Some(a), Some(b)) = (own.products.get(place), gone.products.get(place)) else {
            return false;
        };
        // Sums in `f32` blocks are accurate to about 10⁻⁶.
        if a - b < -1e-5 * a.abs() {
            return true;
        }
        place += step;
    }
    false
}

/// A symmetric matrix of products, `[1, linear part, φ, targets]` on both sides.
pub(super) struct Products {
    packed: Vec<f64>,
    /// Columns of the design after the first that it has the products of.
    columns: usize,
    width: usize,
    size: usize,
}

impl Products {
    pub(super) fn get(&self, i: usize, j: usize) -> f64 {
        let (high, low) = if i >= j { (i, j) } else { (j, i) };
        self.packed[packed_length(high) + low]
    }

    pub(super) fn weight(&self) -> f64 {
        self.packed[0]
    }

    /// The means of the columns of the design without the first, and of the targets.
    pub(super) fn means(&self) -> (Vec<f64>, Vec<f64>) {
        let mean = |c: usize| self.get(c, 0) / self.weight();
        ((1..=self.columns).map(mean).collect(), (self.width..self.size).map(mean).collect())
    }

    /// The products of columns moved by `−centre`: those of the design's columns after the first, as many
    /// as there are means, with each other and with the targets, and the squares of the targets.
    pub(super) fn centred(&self, means: &[f64], target_means: &[f64]) -> Centred {
        let (p, n) = (means.len(), self.weight());
        let sums: Vec<f64> = (0..p).map(|a| self.get(a + 1, 0)).collect();
        let mut gram = Matrix::zeros(p, p);
        for a in 0..p {
            let start = packed_length(a + 1) + 1;
            let row = gram.row_mut(a);
            for (b, value) in self.packed[start..start + a + 1].iter().enumerate() {
                row[b] = value - means[a] * sums[b] - sums[a] * means[b] + n * means[a] * means[b];
            }
        }
        for a in 0..p {
            for b in a + 1..p {
                gram[(a, b)] = gram[(b, a)];
            }
        }
        let cross = |a: usize, t: usize| {
            let (sum, mean) = (self.get(self.width + t, 0), target_means[t]);
            self.get(self.width + t, a + 1) - means[a] * sum - sums[a] * mean + n * means[a] * mean
        };
        let square = |(t, mean): (usize, &f64)| {
            let sum = self.get(self.width + t, 0);
            self.get(self.width + t, self.width + t) - 2.0 * mean * sum + n * mean * mean
        };
        Centred {
            weight: n,
            gram,
            cross: Matrix::from_fn(p, target_means.len(), cross),
            squares: target_means.iter().enumerate().map(square).collect(),
        }
    }
}

/// Products of centred columns.
pub(super) struct Centred {
    pub(super) weight: f64,
    pub(super) gram: Matrix<f64>,
    /// One row per column of the design, one column per target.
    pub(super) cross: Matrix<f64>,
    pub(super) squares: Vec<f64>,
}
