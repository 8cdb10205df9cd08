//! Sums whose classes are to be others.

use super::{Fold, GramSums, packed_length};
use crate::learn::Outcome;
use crate::{Error, Result};

impl GramSums {
    /// The same sums among more classes: class `c` becomes class `places[c]` of `count`, and the others
    /// have no rows. So sums over rows of different classes can be merged.
    ///
    /// ```
    /// use favor::learn::{DesignSpec, GramSums, Known, Outcome};
    /// use favor::{Matrix, Moments};
    /// let rows = Matrix::from_fn(200, 1, |i, _| (i as f64 * 0.37).sin());
    /// let design = DesignSpec::new(8).fit(&Moments::of(rows.view())?, rows.view())?;
    /// let of = |classes: &[usize], count: usize| {
    ///     let mut sums = GramSums::new(&design, Outcome::Classes(count), 4)?;
    ///     sums.add(&design, rows.view(), Known::Classes(classes), None, None)?;
    ///     Ok::<_, favor::Error>(sums)
    /// };
    /// let two = of(&(0..200).map(|i| i % 2).collect::<Vec<_>>(), 2)?;
    /// let three = of(&(0..200).map(|i| 2 * (i % 2)).collect::<Vec<_>>(), 3)?;
    /// assert_eq!(two.with_classes(3, &[0, 2])?, three);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn with_classes(&self, count: usize, places: &[usize]) -> Result<Self> {
        let Outcome::Classes(before) = self.outcome else {
            return Err(Error::invalid("classes", "these are sums of numbers"));
        };
        let mut seen = vec![false; count];
        let distinct = places.iter().all(|&p| p < count && !std::mem::replace(&mut seen[p], true));
        if places.len() != before || !distinct {
            let reason = format!("{before} different places among {count} are needed");
            return Err(Error::invalid("classes", reason));
        }
        let place = |k: usize| if k < self.width { k } else { self.width + places[k - self.width] };
        let index = |i: usize, j: usize| i.max(j) * (i.max(j) + 1) / 2 + i.min(j);
        let fold = |fold: &Fold| {
            let mut products = vec![0.0; packed_length(self.width + count)];
            for i in 0..self.width + before {
                for j in 0..=i {
                    products[index(place(i), place(j))] = fold.products[index(i, j)];
                }
            }
            Fold { rows: fold.rows, products }
        };
        let folds = self.folds.iter().map(fold).collect();
        Ok(Self { outcome: Outcome::Classes(count), folds, ..*self })
    }
}
