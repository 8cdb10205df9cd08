//! Classes: the one whose rows have the largest sum of kernel values.

use super::summed::{FittedMap, Summed, check_count};
use super::{Curve, FitOptions, Readout, Scaling, Targets, argmax};
use crate::{FeatureMap, Float, KeySums, Matrix, Result, Rows};

/// A classifier of labels `L`: `P(c) ∝ Σ_i w_i K(u,u_i) [label_i = c]`.
///
/// ```
/// use favor::Matrix;
/// use favor::learn::{FitOptions, KernelClassifier};
/// let rows = Matrix::new(vec![0.0, 0.1, 1.0, 1.1], 4, 1)?;
/// let options = FitOptions::default().bandwidth(0.5);
/// let mut model = KernelClassifier::fit(&options, rows.view(), &['a', 'a', 'b', 'b'], None)?;
/// assert_eq!(model.predict(rows.view())?, ['a', 'a', 'b', 'b']);
///
/// // More rows later, of a new class; or elsewhere, and merged.
/// let mut elsewhere = model.emptied();
/// elsewhere.partial_fit(Matrix::new(vec![3.0, 3.2], 2, 1)?.view(), &['c', 'c'], None)?;
/// model.merge(&elsewhere)?;
/// assert_eq!(model.classes(), ['a', 'b', 'c']);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelClassifier<L> {
    summed: Summed,
    /// In ascending order, one column of the sums each.
    classes: Vec<L>,
    /// The weight of each class.
    weights: Vec<f64>,
}

impl<L: Ord + Clone> KernelClassifier<L> {
    /// Fits a map to rows and sums its features over them. Without `weights` every row counts as 1.
    pub fn fit<T: Float>(
        options: &FitOptions,
        rows: Rows<'_, T>,
        labels: &[L],
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        check_count(rows, "labels", labels.len())?;
        let classes = distinct(labels.iter());
        let of = places(labels, &classes);
        let count = classes.len();
        let targets = |chosen: &[usize], _: &[Scaling]| {
            let of = chosen.iter().map(|&i| of[i]).collect();
            Targets::Classes { of, count, prior: None }
        };
        let fitted = FittedMap::fit(options, rows, weights, targets)?;
        let mut model = Self { summed: Summed::new(fitted, 0), classes: vec![], weights: vec![] };
        model.partial_fit(rows, labels, weights)?;
        Ok(model)
    }

    /// Adds rows. Labels that are new become classes.
    pub fn partial_fit<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        labels: &[L],
        weights: Option<&[f64]>,
    ) -> Result<()> {
        check_count(rows, "labels", labels.len())?;
        let mut wider = self.widened(&distinct(self.classes.iter().chain(labels)))?;
        let of = places(labels, &wider.classes);
        wider.summed.add(rows, weights, |i, c| if of[i] == c { 1.0 } else { 0.0 })?;
        let weight_of = |i: usize| weights.map_or(1.0, |w| w[i]);
        of.iter().enumerate().for_each(|(i, &c)| wider.weights[c] += weight_of(i));
        *self = wider;
        Ok(())
    }

    /// Adds the rows of another model with the same map.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let classes = distinct(self.classes.iter().chain(&other.classes));
        let (mut own, other) = (self.widened(&classes)?, other.widened(&classes)?);
        own.summed.merge(&other.summed)?;
        own.weights.iter_mut().zip(&other.weights).for_each(|(a, b)| *a += b);
        *self = own;
        Ok(())
    }

    /// The same map before the first row: for a worker elsewhere, whose model is merged later.
    pub fn emptied(&self) -> Self {
        let summed = Summed::new(self.summed.fitted.clone(), 0);
        Self { summed, classes: vec![], weights: vec![] }
    }

    /// The most likely label of each row.
    pub fn predict<T: Float>(&self, rows: Rows<'_, T>) -> Result<Vec<L>> {
        let probabilities = self.probabilities(rows)?;
        let label = |i: usize| self.classes[argmax(probabilities.row(i))].clone();
        Ok((0..rows.rows()).map(label).collect())
    }

    /// One row per row: the probabilities of the [classes](Self::classes).
    pub fn probabilities<T: Float>(&self, rows: Rows<'_, T>) -> Result<Matrix<f64>> {
        let readout = Readout::classes(self.weights.clone(), None);
        Ok(readout.outputs(&self.summed.apply(rows)?))
    }

    /// The labels, in ascending order.
    pub fn classes(&self) -> &[L] {
        &self.classes
    }

    /// The feature map.
    pub fn map(&self) -> &FeatureMap {
        &self.summed.fitted.map
    }

    /// The bandwidth, and its scores where it was chosen.
    pub fn bandwidth(&self) -> (f64, Option<&Curve>) {
        (self.summed.fitted.bandwidth, self.summed.fitted.curve.as_ref())
    }

    /// The same sums with columns for these classes, which include the present ones.
    fn widened(&self, classes: &[L]) -> Result<Self> {
        let own: Vec<Option<usize>> =
            classes.iter().map(|label| self.classes.binary_search(label).ok()).collect();
        let sums = &self.summed.sums;
        let entry = |m: usize, c: usize| own[c].map_or(0.0, |k| sums.sums()[(m, k)]);
        let wider = Matrix::from_fn(sums.sums().rows(), classes.len(), entry);
        let sums = KeySums::from_parts(sums.log_scale().to_vec(), wider)?;
        Ok(Self {
            summed: Summed { sums, ..self.summed.clone() },
            classes: classes.to_vec(),
            weights: own.iter().map(|k| k.map_or(0.0, |k| self.weights[k])).collect(),
        })
    }
}

/// The labels without repetitions, in ascending order.
fn distinct<'a, L: Ord + Clone + 'a>(labels: impl Iterator<Item = &'a L>) -> Vec<L> {
    let mut distinct: Vec<&L> = labels.collect();
    distinct.sort();
    distinct.dedup();
    distinct.into_iter().cloned().collect()
}

/// The index of the class of each label; all labels are classes.
fn places<L: Ord>(labels: &[L], classes: &[L]) -> Vec<usize> {
    labels.iter().map(|label| classes.partition_point(|class| class < label)).collect()
}
