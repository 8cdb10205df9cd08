//! Feature maps that follow the data during training: when ω is drawn anew, and where the statistics
//! come from.

use super::number::Number;
use super::tensor::Tensor;
use crate::{Element, Error, FeatureMap, FeatureSpec, Matrix, Moments, Result};
use serde::{Deserialize, Serialize};

/// When ω is drawn anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redraw {
    /// One draw for ever.
    Never,
    /// A new draw after so many training calls.
    Every(u64),
}

/// Where the statistics of queries and keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Statistics {
    /// Each sequence's own. Not for causal attention: they would carry the future into the past.
    PerSequence,
    /// The batch's. Not for causal attention either.
    PerBatch,
    /// A running average over training calls: each call keeps this fraction of what was before. A
    /// causal call uses the average before it.
    Running {
        /// Between 0 (only the last call) and 1 (never forgets).
        keep: f64,
    },
    /// The average of all calls until [`AdaptiveMaps::freeze`].
    Calibrated,
}

/// One map a head, kept in step with the data. At evaluation nothing changes.
///
/// ```
/// use favor::{AdaptiveMaps, Family, FeatureSpec, Kernel, Redraw, Statistics, Tensor};
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// let mut maps = AdaptiveMaps::new(spec, 1, Redraw::Every(2), Statistics::Running { keep: 0.9 })?;
/// let x: Vec<f32> = (0..10 * 4).map(|i| (i as f32).sin()).collect();
/// let t = Tensor::new(&x, [1, 1, 10, 4])?;
/// let first = maps.training(t, t, None, false)?;
/// let evaluation = maps.evaluation()?;
/// assert_eq!(first, evaluation);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdaptiveMaps {
    spec: FeatureSpec,
    heads: usize,
    redraw: Redraw,
    statistics: Statistics,
    calls: u64,
    frozen: bool,
    /// Moments of queries and keys for each head, once there were any.
    moments: Vec<(Moments, Moments)>,
    /// What evaluation uses: the last draw, fitted to all that was learned.
    maps: Vec<FeatureMap>,
}

impl AdaptiveMaps {
    /// Maps of one kind for so many heads.
    pub fn new(
        spec: FeatureSpec,
        heads: usize,
        redraw: Redraw,
        statistics: Statistics,
    ) -> Result<Self> {
        if heads == 0 {
            return Err(Error::invalid("heads", "there must be at least one"));
        }
        if redraw == Redraw::Every(0) {
            return Err(Error::invalid("redraw", "every 0 calls makes no sense; every call is 1"));
        }
        if let Statistics::Running { keep } = statistics
            && !(0.0..=1.0).contains(&keep)
        {
            return Err(Error::invalid("keep", format!("{keep} is not between 0 and 1")));
        }
        let (moments, maps) = (vec![], vec![]);
        Ok(Self { spec, heads, redraw, statistics, calls: 0, frozen: false, moments, maps })
    }

    /// The maps for one training call: one a head, or with [`Statistics::PerSequence`] one a sequence
    /// and head. `mask` is `batch × keys`, false at padding, which enters no statistic. Where there are
    /// as many queries as keys, as in self-attention, it is theirs too.
    pub fn training<T: Number>(
        &mut self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
        causal: bool,
    ) -> Result<Vec<FeatureMap>> {
        self.check(q, k, mask)?;
        let spec = self.current_spec();
        let followers = [Statistics::PerSequence, Statistics::PerBatch];
        if causal && followers.contains(&self.statistics) {
            return Err(Error::invalid(
                "statistics",
                "causal attention cannot use those of the sequence itself; use a running average \
                 or calibrated ones",
            ));
        }
        if self.frozen {
            self.calls += 1;
            return self.fit(spec);
        }
        if self.statistics == Statistics::PerSequence {
            let maps = self.per_sequence(spec, q, k, mask)?;
            // Evaluation has no sequence to look at; it uses the average of the batch.
            self.moments = self.of_batch(q, k, mask)?;
            self.calls += 1;
            return Ok(maps);
        }
        let new = self.of_batch(q, k, mask)?;
        // What a causal call may know: the calls before it, and the very first one nothing.
        let before = match (causal, self.moments.is_empty()) {
            (false, _) => None,
            (true, false) => Some(self.fit(spec)?),
            (true, true) => Some(self.fit_blank(spec, q.shape()[3])?),
        };
        self.learn(new)?;
        self.calls += 1;
        self.maps = self.fit(spec)?;
        Ok(before.unwrap_or_else(|| self.maps.clone()))
    }

    /// The maps for evaluation: nothing is learned and nothing redrawn. They know every training call,
    /// the last one too if it was causal.
    pub fn evaluation(&self) -> Result<Vec<FeatureMap>> {
        match self.maps.is_empty() {
            true => self.fit(self.spec),
            false => Ok(self.maps.clone()),
        }
    }

    /// Ends the learning of statistics; redrawing goes on.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    fn current_spec(&self) -> FeatureSpec {
        match self.redraw {
            Redraw::Never => self.spec,
            Redraw::Every(n) => self.spec.seed(self.spec.seed.wrapping_add(self.calls / n)),
        }
    }

    /// The maps of the moments learned so far.
    fn fit(&self, spec: FeatureSpec) -> Result<Vec<FeatureMap>> {
        if self.moments.is_empty() {
            return Err(Error::invalid(
                "maps",
                "no training call or calibration has been made yet",
            ));
        }
        self.moments.iter().map(|(q, k)| spec.fit(q, k)).collect()
    }

    /// Maps for heads of this dimension that know nothing of the data: those of a standard normal set.
    pub fn blank(&self, dim: usize) -> Result<Vec<FeatureMap>> {
        self.fit_blank(self.spec, dim)
    }

    fn fit_blank(&self, spec: FeatureSpec, dim: usize) -> Result<Vec<FeatureMap>> {
        let root = (dim as f64).sqrt();
        let axes = Matrix::from_fn(2 * dim, dim, |i, l| match i % dim == l {
            true if i < dim => root,
            true => -root,
            false => 0.0,
        });
        let standard = Moments::of(axes.view())?;
        (0..self.heads).map(|_| spec.fit(&standard, &standard)).collect()
    }

    fn learn(&mut self, new: Vec<(Moments, Moments)>) -> Result<()> {
        if self.moments.is_empty() || self.statistics == Statistics::PerBatch {
            self.moments = new;
            return Ok(());
        }
        for (old, new) in self.moments.iter_mut().zip(new) {
            for (old, new) in [(&mut old.0, new.0), (&mut old.1, new.1)] {
                if let Statistics::Running { keep } = self.statistics {
                    *old = old.weighted(keep / old.weight());
                    old.merge(&new.weighted((1.0 - keep) / new.weight()))?;
                } else {
                    old.merge(&new)?;
                }
            }
        }
        Ok(())
    }

    fn of_batch<T: Number>(
        &self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<Vec<(Moments, Moments)>> {
        (0..self.heads)
            .map(|head| {
                let side = |t: Tensor<'_, T>, mask: Option<&[bool]>| -> Result<Moments> {
                    let mut all = Moments::new(t.shape()[3]);
                    for batch in 0..t.shape()[0] {
                        all.merge(&of_sequence(t, batch, head, mask)?)?;
                    }
                    Ok(all)
                };
                Ok((side(q, query_mask(q, k, mask))?, side(k, mask)?))
            })
            .collect()
    }

    fn per_sequence<T: Number>(
        &self,
        spec: FeatureSpec,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<Vec<FeatureMap>> {
        let pairs = (0..q.shape()[0]).flat_map(|b| (0..self.heads).map(move |h| (b, h)));
        pairs
            .map(|(b, h)| {
                let queries = of_sequence(q, b, h, query_mask(q, k, mask))?;
                spec.fit(&queries, &of_sequence(k, b, h, mask)?)
            })
            .collect()
    }

    fn check<T: Number>(
        &self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<()> {
        let ([batch, heads, _, dim], [kb, kh, keys, kd]) = (q.shape(), k.shape());
        if heads != self.heads || (kb, kh, kd) != (batch, heads, dim) {
            let shapes = format!("queries {:?} and keys {:?}", q.shape(), k.shape());
            return Err(Error::invalid("tensors", format!("{shapes} for {} heads", self.heads)));
        }
        match mask {
            Some(mask) if mask.len() != batch * keys => {
                let reason = format!("{} entries for {batch} × {keys} keys", mask.len());
                Err(Error::invalid("mask", reason))
            }
            _ => Ok(()),
        }
    }
}

/// The padding of the queries: that of the keys, where they are as many.
fn query_mask<'m, T: Number>(
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&'m [bool]>,
) -> Option<&'m [bool]> {
    mask.filter(|_| q.shape()[2] == k.shape()[2])
}

fn of_sequence<T: Number>(
    t: Tensor<'_, T>,
    batch: usize,
    head: usize,
    mask: Option<&[bool]>,
) -> Result<Moments> {
    let length = t.shape()[2];
    let rows = t.head(batch, head, 0, length);
    let values = Matrix::from_fn(length, rows.columns, |i, l| rows.at(i, l).widen().to_f64());
    match mask {
        Some(mask) => {
            Moments::of_masked(values.view(), &mask[batch * length..(batch + 1) * length])
        }
        None => Moments::of(values.view()),
    }
}
