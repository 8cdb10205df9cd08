//! Feature maps that follow the data during training: when ω is drawn again, where the statistics come
//! from, and when they reach the maps.

use crate::engine::tensor::{Scalar, Tensor};
use crate::store::{Array, Kind};
use crate::{Error, FeatureMap, FeatureSpec, Float, Matrix, Moments, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// When ω is drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Redraw {
    /// One draw forever.
    #[default]
    Never,
    /// A new draw after this many training calls.
    Every(u64),
}

/// Where the statistics of queries and keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Statistics {
    /// Each sequence's own. Not for causal attention: they would carry the future into the past.
    PerSequence,
    /// The batch's. Not for causal attention either.
    PerBatch,
    /// A running average over training calls. Maps are fitted when ω is drawn again (with
    /// [`Redraw::Never`] at the first call alone), and only then do statistics cost anything: of what was
    /// before, as much is kept as if every call in between had been averaged. A causal call uses the
    /// average before it.
    Running {
        /// What each call keeps of the average: between 0 (only the last call counts) and 1 (nothing
        /// is forgotten).
        keep: f64,
    },
    /// The average of all calls until [`AdaptiveMaps::freeze`], or of calibration.
    Calibrated,
}

impl Default for Statistics {
    fn default() -> Self {
        Self::Running { keep: 0.9 }
    }
}

/// How maps follow the training.
///
/// ```
/// use favor::{MapPolicy, Redraw, Statistics};
/// let policy = MapPolicy::new().redraw(Redraw::Every(100)).statistics(Statistics::PerBatch);
/// assert_eq!(policy.redraw, Redraw::Every(100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapPolicy {
    /// When ω is drawn again.
    pub redraw: Redraw,
    /// Where the statistics come from.
    pub statistics: Statistics,
}

impl MapPolicy {
    /// One draw, and a running average that keeps 0.9 per call.
    pub fn new() -> Self {
        Self::default()
    }

    /// When ω is drawn again.
    pub fn redraw(self, redraw: Redraw) -> Self {
        Self { redraw, ..self }
    }

    /// Where the statistics come from.
    pub fn statistics(self, statistics: Statistics) -> Self {
        Self { statistics, ..self }
    }

    fn check(&self) -> Result<()> {
        if self.redraw == Redraw::Every(0) {
            return Err(Error::invalid("redraw", "every 0 calls makes no sense; every call is 1"));
        }
        match self.statistics {
            Statistics::Running { keep } if !(0.0..=1.0).contains(&keep) => {
                Err(Error::invalid("keep", format!("{keep} is not between 0 and 1")))
            }
            _ => Ok(()),
        }
    }

    fn draw(&self, calls: u64) -> u64 {
        match self.redraw {
            Redraw::Never => 0,
            Redraw::Every(n) => calls / n,
        }
    }
}

/// One map per head, fitted to these queries and keys. `mask` is `batch × keys`, false at padding, which
/// enters no statistic; where there are as many queries as keys, as in self-attention, it is theirs too.
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

/// One map per head, kept in step with the data. At evaluation nothing changes.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdaptiveMaps {
    head: State,
    /// Moments of queries and keys for each head, once there were any.
    moments: Vec<(Moments, Moments)>,
    /// The maps of these moments and this draw, made when they are asked for.
    #[serde(skip)]
    fitted: OnceLock<Vec<FeatureMap>>,
}

/// All but the moments and what follows from them.
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
    calibrating: bool,
}

impl AdaptiveMaps {
    /// Maps of one kind for heads of one dimension. Before the first call they know nothing of the data:
    /// right on average, but noisier.
    pub fn new(spec: FeatureSpec, heads: usize, dim: usize, policy: MapPolicy) -> Result<Self> {
        if heads == 0 || dim == 0 {
            let reason =
                format!("{heads} heads of dimension {dim}; at least one of each is needed");
            return Err(Error::invalid("heads", reason));
        }
        policy.check()?;
        let (frozen, calibrating) = (false, false);
        let head = State { spec, heads, dim, policy, calls: 0, draw: 0, frozen, calibrating };
        Ok(Self { head, moments: vec![], fitted: OnceLock::new() })
    }

    /// How the maps follow the training.
    pub fn policy(&self) -> MapPolicy {
        self.head.policy
    }

    /// The kind of the maps; the seed is that of the first draw.
    pub fn spec(&self) -> &FeatureSpec {
        &self.head.spec
    }

    /// Training calls so far.
    pub fn calls(&self) -> u64 {
        self.head.calls
    }

    /// The maps for one training call: one per head, or with [`Statistics::PerSequence`] one per sequence
    /// and head. `mask` is `batch × keys`, false at padding, which enters no statistic. Where there are
    /// as many queries as keys, as in self-attention, it is theirs too.
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
            // What a causal call may know: the calls before it, and the very first one nothing.
            let before = if causal { Some(self.fit(draw)?) } else { own };
            let moments = self.mixed(new)?;
            self.set(draw, Some(moments));
            match before {
                Some(maps) => maps,
                None => self.maps()?,
            }
        };
        self.head.calls += 1;
        Ok(maps)
    }

    /// The maps for an evaluation of these queries and keys: nothing is learned and nothing redrawn.
    pub fn evaluation<T: Scalar>(
        &self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
        causal: bool,
    ) -> Result<Vec<FeatureMap>> {
        self.check(q, k, mask, causal)?;
        match self.own_maps(self.head.draw, q, k, mask)? {
            Some(maps) if !self.head.frozen => Ok(maps),
            _ => self.maps(),
        }
    }

    /// The maps as they are: they know every training call, the last one too if it was causal, and
    /// nothing of the data before the first.
    pub fn maps(&self) -> Result<Vec<FeatureMap>> {
        if let Some(maps) = self.fitted.get() {
            return Ok(maps.clone());
        }
        let maps = self.fit(self.head.draw)?;
        Ok(self.fitted.get_or_init(|| maps).clone())
    }

    /// Adds a batch to the statistics of a calibration, which replace those from before it.
    pub fn calibrate<T: Scalar>(
        &mut self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<()> {
        // What calibration sees is not what maps are used on: it may look at whole sequences.
        check_inputs((self.head.heads, self.head.dim), q, k, mask)?;
        let new = moments_of_heads(q, k, mask)?;
        let moments = if self.head.calibrating { merged(&self.moments, new)? } else { new };
        self.head.calibrating = true;
        self.set(self.head.draw, Some(moments));
        Ok(())
    }

    /// Ends a calibration. [`Statistics::Calibrated`] stay as they are from now on; a running average
    /// goes on from them.
    pub fn end_calibration(&mut self) {
        self.head.calibrating = false;
        if self.head.policy.statistics == Statistics::Calibrated {
            self.freeze();
        }
    }

    /// Ends the learning of statistics; redrawing goes on.
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
        self.head.draw = draw;
        if let Some(moments) = moments {
            self.moments = moments;
        }
        self.fitted = OnceLock::new();
    }

    /// The maps of the moments learned so far, or of a standard normal set if there are none.
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

    /// The statistics after a call with these.
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

    /// With [`Statistics::PerSequence`] the maps of the sequences' own statistics.
    fn own_maps<T: Scalar>(
        &self,
        draw: u64,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<Option<Vec<FeatureMap>>> {
        let State { spec, heads, policy, .. } = self.head;
        if policy.statistics != Statistics::PerSequence {
            return Ok(None);
        }
        let spec = spec.seed(spec.seed.wrapping_add(draw));
        let maps: Result<Vec<_>> = (0..q.shape()[0] * heads)
            .into_par_iter()
            .map(|i| {
                let (b, h) = (i / heads, i % heads);
                let queries = moments_of_sequence(q, b, h, query_mask(q, k, mask))?;
                spec.fit(&queries, &moments_of_sequence(k, b, h, mask)?)
            })
            .collect();
        Ok(Some(maps?))
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

const KIND: Kind = Kind::new("favor.adaptive_maps", "state of adaptive maps", 1);

impl AdaptiveMaps {
    /// The state as the bytes of a safetensors file.
    ///
    /// ```
    /// use favor::{AdaptiveMaps, Family, FeatureSpec, MapPolicy};
    /// let maps = AdaptiveMaps::new(FeatureSpec::new(Family::Sde, 8), 2, 4, MapPolicy::new())?;
    /// let again = AdaptiveMaps::from_bytes(&maps.to_bytes()?)?;
    /// assert_eq!(again.maps()?, maps.maps()?);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let State { heads, dim, .. } = self.head;
        let (queries, keys) =
            (self.moments.iter().map(|m| &m.0), self.moments.iter().map(|m| &m.1));
        let mut numbers = vec![];
        for moments in queries.chain(keys) {
            numbers.extend([moments.count() as f64, moments.weight()]);
            numbers.extend(moments.mean());
            numbers.extend(moments.scatter().as_slice());
        }
        let known = if self.moments.is_empty() { 0 } else { heads };
        let shape = [2, known, 2 + dim + dim * dim];
        KIND.write(&self.head, vec![Array::f64("moments", shape, &numbers)])
    }

    /// Takes up a state where [`AdaptiveMaps::to_bytes`] left it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<State>(bytes)?;
        let head = file.contents;
        let State { spec, heads, dim, policy, .. } = head;
        Self::new(spec, heads, dim, policy)?;
        let (shape, numbers) = file.f64("moments")?;
        let size = 2 + dim + dim * dim;
        if shape != [2, heads, size] && shape != [2, 0, size] {
            return Err(KIND.bad(format!("array 'moments' has shape {shape:?}")));
        }
        let read = |row: &[f64]| {
            let (mean, scatter) = row[2..].split_at(dim);
            let scatter = Matrix::new(scatter.to_vec(), dim, dim)?;
            Moments::from_scatter(row[0] as u64, row[1], mean.to_vec(), scatter)
        };
        let sides: Vec<Moments> = numbers.chunks(size).map(read).collect::<Result<_>>()?;
        let (queries, keys) = sides.split_at(sides.len() / 2);
        let moments = queries.iter().cloned().zip(keys.iter().cloned()).collect();
        Ok(Self { head, moments, fitted: OnceLock::new() })
    }
}

fn fit_all(spec: FeatureSpec, moments: &[(Moments, Moments)]) -> Result<Vec<FeatureMap>> {
    moments.par_iter().map(|(q, k)| spec.fit(q, k)).collect()
}

/// The moments of two sets together, head by head.
fn merged(
    old: &[(Moments, Moments)],
    new: Vec<(Moments, Moments)>,
) -> Result<Vec<(Moments, Moments)>> {
    let mut out = old.to_vec();
    for (own, new) in out.iter_mut().zip(new) {
        own.0.merge(&new.0)?;
        own.1.merge(&new.1)?;
    }
    Ok(out)
}

/// The moments of a mixture of two sets, head by head.
fn averaged(
    old: &[(Moments, Moments)],
    new: Vec<(Moments, Moments)>,
    keep: f64,
) -> Result<Vec<(Moments, Moments)>> {
    // A set of padding alone has no weight, and no share.
    let side = |old: &Moments, new: &Moments| -> Result<Moments> {
        if new.weight() == 0.0 {
            return Ok(old.clone());
        }
        let mut out = old.weighted(keep / old.weight());
        out.merge(&new.weighted((1.0 - keep) / new.weight()))?;
        Ok(out)
    };
    let pairs = old.iter().zip(&new);
    pairs.map(|(old, new)| Ok((side(&old.0, &new.0)?, side(&old.1, &new.1)?))).collect()
}

fn moments_of_heads<T: Scalar>(
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<Vec<(Moments, Moments)>> {
    let side = |t: Tensor<'_, T>, head: usize, mask: Option<&[bool]>| -> Result<Moments> {
        let mut all = Moments::new(t.shape()[3]);
        for batch in 0..t.shape()[0] {
            all.merge(&moments_of_sequence(t, batch, head, mask)?)?;
        }
        Ok(all)
    };
    (0..q.shape()[1])
        .into_par_iter()
        .map(|head| Ok((side(q, head, query_mask(q, k, mask))?, side(k, head, mask)?)))
        .collect()
}

fn moments_of_sequence<T: Scalar>(
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

/// The padding of the queries: that of the keys, where they are as many.
fn query_mask<'m, T: Scalar>(
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&'m [bool]>,
) -> Option<&'m [bool]> {
    mask.filter(|_| q.shape()[2] == k.shape()[2])
}

fn check_inputs<T: Scalar>(
    (heads, dim): (usize, usize),
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<()> {
    let [batch, _, _, _] = q.shape();
    let keys = k.shape()[2];
    let fits = |t: Tensor<'_, T>| {
        let [b, h, _, d] = t.shape();
        (b, h, d) == (batch, heads, dim)
    };
    if !fits(q) || !fits(k) {
        let shapes = format!("queries {:?} and keys {:?}", q.shape(), k.shape());
        let reason = format!("{shapes} for {heads} heads of dimension {dim}");
        return Err(Error::invalid("tensors", reason));
    }
    match mask {
        Some(mask) if mask.len() != batch * keys => {
            let reason = format!("{} entries for {batch} × {keys} keys", mask.len());
            Err(Error::invalid("mask", reason))
        }
        _ => Ok(()),
    }
}
