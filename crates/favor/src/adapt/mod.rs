//! Feature maps that follow the data during training: when ω is drawn again, where the statistics come
//! from, and when they reach the maps.

mod file;
mod moments;
mod policy;

pub use policy::{MapPolicy, Redraw, Statistics};

use crate::engine::tensor::{Scalar, Tensor};
use crate::{Error, FeatureMap, FeatureSpec, Matrix, Moments, Result};
use moments::{averaged, check_inputs, merged, moments_of_heads, moments_of_sequence, query_mask};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// One map per head, fitted to these queries and keys. `mask` is `batch × keys`, false at padding, which
/// enters no statistic; if there are as many queries as keys, as in self-attention, it applies to the
/// queries too.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Tensor, fit_heads};
/// let x: Vec<f32> = (0..2 * 10 * 4).map(|i| (i as f32).sin()).collect();
/// let t = Tensor::new(&x, [1, 2, 10, 4])?;
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// assert_eq!(fit_heads(spec, t, t, None)?.len(), 2);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn fit_heads<T: Scalar>(
    spec: FeatureSpec,
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<Vec<FeatureMap>> {
    let [_, heads, _, dim] = q.shape();
    check_inputs((heads, dim), q, k, mask)?;
    fit_all(spec, &moments_of_heads(q, k, mask)?)
}

/// One map per sequence and head, each fitted to its own queries and keys; otherwise like [`fit_heads`].
/// Not for causal attention: such a map leaks the future into the past.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Tensor, fit_sequences};
/// let x: Vec<f32> = (0..2 * 10 * 4).map(|i| (i as f32).sin()).collect();
/// let t = Tensor::new(&x, [2, 1, 10, 4])?;
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// let maps = fit_sequences(spec, t, t, None)?;
/// assert!(maps.len() == 2 && maps[0] != maps[1]);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn fit_sequences<T: Scalar>(
    spec: FeatureSpec,
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<Vec<FeatureMap>> {
    let [batch, heads, _, dim] = q.shape();
    check_inputs((heads, dim), q, k, mask)?;
    (0..batch * heads)
        .into_par_iter()
        .map(|i| {
            let (b, h) = (i / heads, i % heads);
            let queries = moments_of_sequence(q, b, h, query_mask(q, k, mask))?;
            spec.fit(&queries, &moments_of_sequence(k, b, h, mask)?)
        })
        .collect()
}

/// One map per head, kept in step with the data. Evaluation changes nothing.
///
/// ```
/// use favor::{AdaptiveMaps, Family, FeatureSpec, Kernel, MapPolicy, Redraw, Tensor};
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// let policy = MapPolicy::new().redraw(Redraw::Every(2));
/// let mut maps = AdaptiveMaps::new(spec, 1, 4, policy)?;
/// let x: Vec<f32> = (0..10 * 4).map(|i| (i as f32).sin()).collect();
/// let t = Tensor::new(&x, [1, 1, 10, 4])?;
/// let first = maps.training(t, t, None, false)?;
/// assert_eq!(first, maps.maps()?);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AdaptiveMaps {
    head: State,
    /// Moments of the queries and keys of each head, once there are any.
    moments: Vec<(Moments, Moments)>,
    /// Maps from elsewhere, used instead of the fitted ones until the next draw.
    given: Option<Vec<FeatureMap>>,
    /// The maps for these moments and this draw, made on demand.
    fitted: OnceLock<Vec<FeatureMap>>,
}

/// Everything except the moments and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct State {
    spec: FeatureSpec,
    heads: usize,
    dim: usize,
    policy: MapPolicy,
    /// Training calls so far.
    calls: u64,
    /// The draw of the maps, as an offset to the seed.
    draw: u64,
    frozen: bool,
    /// The batches of the calibration in progress.
    calibration: Option<u64>,
}

impl AdaptiveMaps {
    /// Maps of one kind for heads of one dimension. Before the first call they know nothing about the
    /// data: unbiased, but noisier.
    pub fn new(spec: FeatureSpec, heads: usize, dim: usize, policy: MapPolicy) -> Result<Self> {
        if heads == 0 || dim == 0 {
            let reason =
                format!("{heads} heads of dimension {dim}; at least one of each is needed");
            return Err(Error::invalid("heads", reason));
        }
        policy.check()?;
        let (frozen, calibration) = (false, None);
        let head = State { spec, heads, dim, policy, calls: 0, draw: 0, frozen, calibration };
        Ok(Self { head, moments: vec![], given: None, fitted: OnceLock::new() })
    }

    /// How the maps follow training.
    pub fn policy(&self) -> MapPolicy {
        self.head.policy
    }

    /// The kind of maps; the seed is that of the first draw.
    pub fn spec(&self) -> &FeatureSpec {
        &self.head.spec
    }

    /// The number of heads, each with its own map.
    pub fn heads(&self) -> usize {
        self.head.heads
    }

    /// The dimension of a head.
    pub fn dim(&self) -> usize {
        self.head.dim
    }

    /// Training calls so far.
    pub fn calls(&self) -> u64 {
        self.head.calls
    }

    /// The maps for one training call: one per head, or with [`Statistics::PerSequence`] one per sequence
    /// and head. `mask` is `batch × keys`, false at padding, which enters no statistic. If there are as
    /// many queries as keys, as in self-attention, it applies to the queries too.
    pub fn training<T: Scalar>(
        &mut self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
        causal: bool,
    ) -> Result<Vec<FeatureMap>> {
        self.check(q, k, mask, causal)?;
        let draw = self.head.policy.draw(self.head.calls);
        let maps = if !self.learns() {
            self.set(draw, None);
            self.maps()?
        } else {
            let own = self.own_maps(draw, q, k, mask)?;
            let new = moments_of_heads(q, k, mask)?;
            // What a causal call may know: the calls before it, and nothing for the very first one.
            let before = if causal { Some(self.fit(draw)?) } else { own };
            let moments = self.mixed(new)?;
            self.set(draw, Some(moments));
            match before {
                Some(maps) if self.given.is_none() => maps,
                _ => self.maps()?,
            }
        };
        self.head.calls += 1;
        Ok(maps)
    }

    /// The maps for evaluating these queries and keys: nothing is learned and nothing redrawn.
    pub fn evaluation<T: Scalar>(
        &self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
        causal: bool,
    ) -> Result<Vec<FeatureMap>> {
        self.check(q, k, mask, causal)?;
        match self.own_maps(self.head.draw, q, k, mask)? {
            Some(maps) if !self.head.frozen && self.given.is_none() => Ok(maps),
            _ => self.maps(),
        }
    }

    /// The maps as they are: they reflect every training call, including the last one if it was causal,
    /// and know nothing about the data before the first.
    pub fn maps(&self) -> Result<Vec<FeatureMap>> {
        if let Some(maps) = self.given.as_ref().or(self.fitted.get()) {
            return Ok(maps.clone());
        }
        let maps = self.fit(self.head.draw)?;
        Ok(self.fitted.get_or_init(|| maps).clone())
    }

    /// Replaces the fitted maps with others, such as learned ones: one per head. They stay until the next
    /// draw or the next batch of a calibration; statistics are gathered as before.
    pub fn set_maps(&mut self, maps: Vec<FeatureMap>) -> Result<()> {
        let State { heads, dim, .. } = self.head;
        if maps.len() != heads || maps.iter().any(|map| map.dim() != dim) {
            let dims: Vec<usize> = maps.iter().map(FeatureMap::dim).collect();
            let reason =
                format!("{} maps for {heads} heads of dimension {dim}: {dims:?}", maps.len());
            return Err(Error::invalid("maps", reason));
        }
        self.given = Some(maps);
        Ok(())
    }

    /// Starts a calibration. The statistics do not change until its first batch replaces them.
    pub fn begin_calibration(&mut self) {
        self.head.calibration = Some(0);
    }

    /// Whether a calibration is in progress.
    pub fn is_calibrating(&self) -> bool {
        self.head.calibration.is_some()
    }

    /// Adds a batch to the statistics of a calibration, which replace the earlier ones. Starts a
    /// calibration if none is in progress.
    pub fn calibrate<T: Scalar>(
        &mut self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<()> {
        // Maps are not used on calibration data, so calibration may look at whole sequences.
        check_inputs((self.head.heads, self.head.dim), q, k, mask)?;
        let new = moments_of_heads(q, k, mask)?;
        let batches = self.head.calibration.unwrap_or(0);
        let moments = if batches > 0 { merged(&self.moments, new)? } else { new };
        self.head.calibration = Some(batches + 1);
        self.given = None;
        self.set(self.head.draw, Some(moments));
        Ok(())
    }

    /// Ends a calibration. [`Statistics::Calibrated`] do not change from now on; a running average
    /// continues from them.
    pub fn end_calibration(&mut self) {
        self.head.calibration = None;
        if self.head.policy.statistics == Statistics::Calibrated {
            self.freeze();
        }
    }

    /// Stops gathering statistics; redrawing continues.
    pub fn freeze(&mut self) {
        self.head.frozen = true;
    }

    /// Whether the next training call looks at its data.
    fn learns(&self) -> bool {
        let State { policy, calls, frozen, .. } = self.head;
        let due = match (policy.statistics, policy.redraw) {
            (Statistics::Running { .. }, Redraw::Never) => self.moments.is_empty(),
            (Statistics::Running { .. }, Redraw::Every(n)) => calls.is_multiple_of(n),
            _ => true,
        };
        due && !frozen
    }

    fn set(&mut self, draw: u64, moments: Option<Vec<(Moments, Moments)>>) {
        if draw == self.head.draw && moments.is_none() {
            return;
        }
        if draw != self.head.draw {
            self.given = None;
        }
        self.head.draw = draw;
        if let Some(moments) = moments {
            self.moments = moments;
        }
        self.fitted = OnceLock::new();
    }

    /// The maps for the moments gathered so far, or for standard normal data if there are none.
    fn fit(&self, draw: u64) -> Result<Vec<FeatureMap>> {
        let State { spec, heads, dim, .. } = self.head;
        let spec = spec.seed(spec.seed.wrapping_add(draw));
        if !self.moments.is_empty() {
            return fit_all(spec, &self.moments);
        }
        let identity = Matrix::from_fn(dim, dim, |i, j| f64::from(u8::from(i == j)));
        let standard = Moments::from_covariance(1, 1.0, vec![0.0; dim], identity)?;
        let map = spec.fit(&standard, &standard)?;
        Ok(vec![map; heads])
    }

    /// The statistics after a call with these moments.
    fn mixed(&self, new: Vec<(Moments, Moments)>) -> Result<Vec<(Moments, Moments)>> {
        let State { policy, .. } = self.head;
        if self.moments.is_empty() {
            return Ok(new);
        }
        match policy.statistics {
            Statistics::PerSequence | Statistics::PerBatch => Ok(new),
            Statistics::Calibrated => merged(&self.moments, new),
            Statistics::Running { keep } => {
                let calls = match policy.redraw {
                    Redraw::Never => 1,
                    Redraw::Every(n) => n,
                };
                averaged(&self.moments, new, keep.powf(calls as f64))
            }
        }
    }

    /// With [`Statistics::PerSequence`], the maps for each sequence's own statistics.
    fn own_maps<T: Scalar>(
        &self,
        draw: u64,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<Option<Vec<FeatureMap>>> {
        let State { spec, policy, .. } = self.head;
        if policy.statistics != Statistics::PerSequence {
            return Ok(None);
        }
        let spec = spec.seed(spec.seed.wrapping_add(draw));
        Ok(Some(fit_sequences(spec, q, k, mask)?))
    }

    fn check<T: Scalar>(
        &self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
        causal: bool,
    ) -> Result<()> {
        let State { heads, dim, policy, frozen, .. } = self.head;
        check_inputs((heads, dim), q, k, mask)?;
        let own = [Statistics::PerSequence, Statistics::PerBatch].contains(&policy.statistics);
        if causal && own && !frozen {
            return Err(Error::invalid(
                "statistics",
                "causal attention cannot use those of the sequence itself; use a running average \
                 or calibrated ones",
            ));
        }
        Ok(())
    }
}

fn fit_all(spec: FeatureSpec, moments: &[(Moments, Moments)]) -> Result<Vec<FeatureMap>> {
    moments.par_iter().map(|(q, k)| spec.fit(q, k)).collect()
}
