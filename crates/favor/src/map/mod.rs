//! The feature map: parameters and ω together, fitted once, used by both sides.

mod learned;
mod packed;
mod side;
mod store;

use crate::draw::{draw_omega, offsets};
use crate::{Coupling, Error, Family, Float, Kernel, LogScaled, Matrix, Moments, Parameters};
use crate::{Result, Rows};
pub use learned::LearnedFrom;
pub(crate) use learned::{Learned, Probes};
use packed::PackedCache;
pub(crate) use packed::{Cached, Dense, PackedMap, PackedSide, Panels};
use serde::{Deserialize, Serialize};
pub(crate) use side::Block;
pub use side::{Projection, RowTerm};
use std::sync::Arc;
pub use store::{maps_from_bytes, maps_to_bytes, maps_to_bytes_with_note, note_from_bytes};

/// Rows converted to features at a time.
pub(crate) const BLOCK: usize = 256;

/// Which side of the kernel a set of vectors is on.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows, Side};
/// let x = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let y = Moments::of(Rows::new(&[0.1, 0.2, 0.0, 0.3], 2, 2)?)?;
/// let map = FeatureSpec::new(Family::Balanced, 8).fit(&x, &y)?;
/// assert_ne!(map.side(Side::Query).weights, map.side(Side::Key).weights);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The `x` of `K(x,y)`.
    Query,
    /// The `y` of `K(x,y)`.
    Key,
}

/// What kind of map to fit: family, kernel, number of features, coupling and seed.
///
/// ```
/// use favor::{FeatureSpec, Family, Kernel, Moments, Rows, Side};
/// let x = Rows::new(&[0.1, 0.2, 0.3, 0.4, -0.5, 0.6], 3, 2)?;
/// let m = Moments::of(x)?;
/// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::gaussian()).seed(7).fit(&m, &m)?;
/// assert_eq!(map.log_features(Side::Query, x)?.shape(), (3, 64));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FeatureSpec {
    /// The family.
    pub family: Family,
    /// The kernel to estimate.
    pub kernel: Kernel,
    /// The number of features M.
    pub features: usize,
    /// How the rows of ω depend on one another.
    pub coupling: Coupling,
    /// The seed of ω.
    pub seed: u64,
}

impl FeatureSpec {
    /// `features` features of a family, for the softmax kernel, block-orthogonal, seed 0.
    pub fn new(family: Family, features: usize) -> Self {
        let (kernel, coupling) = (Kernel::softmax(), Coupling::default());
        Self { family, kernel, features, coupling, seed: 0 }
    }

    /// Sets the number of features.
    #[must_use]
    pub fn features(self, features: usize) -> Self {
        Self { features, ..self }
    }

    /// Sets the kernel.
    #[must_use]
    pub fn kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// Sets the coupling.
    #[must_use]
    pub fn coupling(self, coupling: Coupling) -> Self {
        Self { coupling, ..self }
    }

    /// Sets the seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The map with the optimal parameters for the two sets, in closed form. Pass the moments of the unscaled
    /// data; the kernel's input scale is applied here.
    pub fn fit(&self, queries: &Moments, keys: &Moments) -> Result<FeatureMap> {
        let scale = self.kernel.scale();
        let parameters = self.family.fit(&queries.scaled(scale), &keys.scaled(scale))?;
        FeatureMap::assemble(*self, queries.dim(), parameters)
    }

    /// The map with the caller's own parameters. Only the family's pairing of draws is used (`Hyperbolic`: ω
    /// and −ω); a trigonometric family has no parameters and is an error.
    pub fn with_parameters(&self, parameters: Parameters) -> Result<FeatureMap> {
        if !self.family.is_positive() {
            let reason = format!("{} takes no parameters", self.family.name());
            return Err(Error::invalid("family", reason));
        }
        FeatureMap::assemble(*self, parameters.dim(), Some(parameters))
    }

    /// The map with the caller's own parameters and ω, one row per feature: what [`FeatureMap::parameters`]
    /// and [`FeatureMap::omega`] return makes the same map again.
    ///
    /// ```
    /// use favor::{Family, FeatureSpec, Moments, Rows};
    /// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
    /// let map = FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?;
    /// let (parameters, omega) = (map.parameters().unwrap().clone(), map.omega().unwrap().clone());
    /// assert_eq!(map.spec().with_omega(parameters, omega)?, map);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn with_omega(&self, parameters: Parameters, omega: Matrix<f64>) -> Result<FeatureMap> {
        let spec = Self { features: omega.rows(), ..*self };
        let parameters = Some(parameters);
        FeatureMap::drawn(spec, Drawn { parameters, omega, offsets: vec![] })
    }
}

/// A fitted or learned map: immutable, one for both sides, any kernel of the class. Copies share their numbers.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, Side};
/// let x = Matrix::from_fn(50, 3, |i, l| 0.5 * ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 512).kernel(Kernel::gaussian()).fit(&m, &m)?;
///
/// // The kernel is the mean of the products of the features of both sides.
/// let queries = map.log_features(Side::Query, x.view())?;
/// let keys = map.log_features(Side::Key, x.view())?;
/// let products = queries.row(0).iter().zip(keys.row(9)).map(|(p, s)| (p + s).exp());
/// let estimate = products.sum::<f64>() / 512.0;
/// let exact = map.kernel().value(x.row(0), x.row(9))?;
/// assert!((estimate / exact - 1.0).abs() < 0.3);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct FeatureMap {
    record: Arc<Record>,
    query: Arc<Projection>,
    key: Arc<Projection>,
    packed: Arc<PackedCache>,
}

/// Everything that defines a map; the rest is derived from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    spec: FeatureSpec,
    numbers: Numbers,
}

/// Where the numbers of a map come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Numbers {
    Drawn(Box<Drawn>),
    Learned(Box<Learned>),
}

/// Parameters in closed form and a random ω.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drawn {
    parameters: Option<Parameters>,
    omega: Matrix<f64>,
    offsets: Vec<f64>,
}

impl TryFrom<Record> for FeatureMap {
    type Error = Error;
    fn try_from(record: Record) -> Result<Self> {
        Self::from_record(record)
    }
}

impl From<FeatureMap> for Record {
    fn from(map: FeatureMap) -> Self {
        Arc::unwrap_or_clone(map.record)
    }
}

impl FeatureMap {
    fn assemble(spec: FeatureSpec, dim: usize, parameters: Option<Parameters>) -> Result<Self> {
        let (omega, offsets) = draw_features(&spec, dim)?;
        Self::drawn(spec, Drawn { parameters, omega, offsets })
    }

    fn drawn(spec: FeatureSpec, drawn: Drawn) -> Result<Self> {
        Self::from_record(Record { spec, numbers: Numbers::Drawn(Box::new(drawn)) })
    }

    fn from_record(record: Record) -> Result<Self> {
        let Record { spec, numbers } = &record;
        let (query, key) = match numbers {
            Numbers::Drawn(drawn) => {
                drawn.check(spec)?;
                let Drawn { parameters, omega, offsets } = &**drawn;
                let parameters = parameters.as_ref();
                let side = |side| Projection::new(spec.kernel, parameters, omega, offsets, side);
                (side(Side::Query), side(Side::Key))
            }
            Numbers::Learned(learned) => {
                learned.check(spec)?;
                (learned.query.clone(), learned.key.clone())
            }
        };
        if !(query.is_finite() && key.is_finite()) {
            return Err(Error::Overflow {
                operation: "the projection of the feature map",
                format: "f64",
                hint: "divide the data by a constant",
            });
        }
        let (record, query, key) = (Arc::new(record), Arc::new(query), Arc::new(key));
        Ok(Self { query, key, record, packed: Arc::default() })
    }

    /// The specification the map was fitted with; for a learned map, that of its start.
    pub fn spec(&self) -> &FeatureSpec {
        &self.record.spec
    }

    /// The kernel that the map estimates.
    pub fn kernel(&self) -> Kernel {
        self.record.spec.kernel
    }

    /// The number of features M.
    pub fn features(&self) -> usize {
        self.query.weights.rows()
    }

    /// The dimension of the vectors.
    pub fn dim(&self) -> usize {
        self.query.weights.columns()
    }

    /// The parameters, or `None` for a trigonometric or a learned map.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.drawn_numbers()?.parameters.as_ref()
    }

    /// ω, one row per feature, or `None` for a learned map.
    pub fn omega(&self) -> Option<&Matrix<f64>> {
        Some(&self.drawn_numbers()?.omega)
    }

    fn drawn_numbers(&self) -> Option<&Drawn> {
        match &self.record.numbers {
            Numbers::Drawn(drawn) => Some(drawn),
            Numbers::Learned(_) => None,
        }
    }

    /// The numbers by which one side of the map projects rows.
    ///
    /// ```
    /// use favor::{Family, FeatureSpec, Moments, Rows, Side};
    /// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
    /// let map = FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?;
    /// assert_eq!(map.side(Side::Key).weights.shape(), (8, 2));
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn side(&self, side: Side) -> &Projection {
        match side {
            Side::Query => &self.query,
            Side::Key => &self.key,
        }
    }

    /// The logarithms of the features `f(ω_m, ·)` of one side, one row per vector, without the factor
    /// `M^{-1/2}`. Only for positive families.
    pub fn log_features<T: Float>(&self, side: Side, rows: Rows<'_, T>) -> Result<Matrix<T>> {
        let mut out = Matrix::zeros(rows.rows(), self.features());
        self.each_block(side, rows, |start, block| {
            let Block::Positive(logs) = block else {
                let reason = format!("{} has no logarithms", self.record.spec.family);
                return Err(Error::invalid("family", reason));
            };
            for i in 0..logs.rows() {
                for (o, v) in out.row_mut(start + i).iter_mut().zip(logs.row(i)) {
                    *o = T::from_f64(*v);
                    if !o.is_finite() {
                        return Err(feature_overflow::<T>());
                    }
                }
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// The features `M^{-1/2} f(ω_m, ·)` of one side, one row per vector, with a logarithmic scale per row:
    /// `K(x,y) ≈ Σ_m P_m(x) S_m(y)`.
    pub fn features_of<T: Float>(&self, side: Side, rows: Rows<'_, T>) -> Result<LogScaled<T>> {
        let mut log_scale = Vec::with_capacity(rows.rows());
        let mut values = Matrix::zeros(rows.rows(), self.features());
        let weight = -0.5 * (self.features() as f64).ln();
        self.each_block(side, rows, |start, block| {
            let (scales, block) = block.row_scaled();
            for (i, scale) in scales.into_iter().enumerate() {
                log_scale.push(scale + weight);
                let pairs = values.row_mut(start + i).iter_mut().zip(block.row(i));
                pairs.for_each(|(o, v)| *o = T::from_f64(*v));
            }
            Ok(())
        })?;
        Ok(LogScaled { log_scale, values })
    }

    /// Checks the rows of one side and yields blocks of their features.
    pub(crate) fn each_block<T: Float>(
        &self,
        side: Side,
        rows: Rows<'_, T>,
        mut take: impl FnMut(usize, Block) -> Result<()>,
    ) -> Result<()> {
        self.check_rows(side, rows)?;
        for (b, block) in rows.blocks(BLOCK).enumerate() {
            take(b * BLOCK, self.block(side, block)?)?;
        }
        Ok(())
    }

    /// The features of a few rows that were checked before.
    pub(crate) fn block<T: Float>(&self, side: Side, rows: Rows<'_, T>) -> Result<Block> {
        let block = self.side(side).features(&rows.to_f64(self.kernel().scale()));
        if block.is_finite() { Ok(block) } else { Err(feature_overflow::<f64>()) }
    }

    pub(crate) fn check_rows<T: Float>(&self, side: Side, rows: Rows<'_, T>) -> Result<()> {
        let what = match side {
            Side::Query => "queries",
            Side::Key => "keys",
        };
        if rows.columns() != self.dim() {
            return Err(Error::Shape {
                operation: "features",
                left: "feature map",
                left_shape: (self.features(), self.dim()),
                right: what,
                right_shape: rows.shape(),
            });
        }
        rows.check_finite(what)
    }
}

impl Drawn {
    fn check(&self, spec: &FeatureSpec) -> Result<()> {
        let Self { parameters, omega, offsets } = self;
        let dim = parameters.as_ref().map_or(omega.columns(), Parameters::dim);
        let bad = |reason: String| Err(Error::invalid("feature map", reason));
        if omega.shape() != (spec.features, dim) || dim == 0 || spec.features == 0 {
            return bad(format!(
                "ω has shape {:?} where {} features of dimension {dim} are declared",
                omega.shape(),
                spec.features
            ));
        }
        if parameters.is_some() != spec.family.is_positive() {
            return bad(format!("family {} with the wrong kind of parameters", spec.family));
        }
        let wanted = if spec.family.is_positive() { 0 } else { spec.features };
        if offsets.len() != wanted {
            return bad(format!("{} offsets where {wanted} are needed", offsets.len()));
        }
        if !omega.as_slice().iter().chain(offsets).all(|v| v.is_finite()) {
            return bad("ω holds a number that is not finite".into());
        }
        Ok(())
    }
}

fn feature_overflow<T: Float>() -> Error {
    Error::Overflow {
        operation: "the logarithm of the features",
        format: T::NAME,
        hint: "divide the data by a constant or use f64",
    }
}

/// ω with one row per feature, and the offsets of trigonometric features.
fn draw_features(spec: &FeatureSpec, dim: usize) -> Result<(Matrix<f64>, Vec<f64>)> {
    let FeatureSpec { family, features, coupling, seed, .. } = *spec;
    let drawn = |coupling, rows| draw_omega(coupling, seed, rows, dim);
    match family {
        Family::Hyperbolic => {
            // The antithetic coupling already consists of such pairs.
            if coupling == Coupling::Antithetic {
                return Ok((drawn(coupling, features)?, vec![]));
            }
            let base = drawn(coupling, features.div_ceil(2))?;
            let sign = |m: usize| if m.is_multiple_of(2) { 1.0 } else { -1.0 };
            Ok((Matrix::from_fn(features, dim, |m, l| sign(m) * base[(m / 2, l)]), vec![]))
        }
        Family::Trig => Ok((drawn(coupling, features)?, offsets(seed, features))),
        Family::TrigPair => {
            let base = drawn(coupling, features.div_ceil(2))?;
            let mut shifts = offsets(seed, features);
            // cos(t − π/2) = sin t. An odd last draw keeps its random offset, which is unbiased alone.
            for (m, shift) in shifts.iter_mut().enumerate().take(features / 2 * 2) {
                *shift = if m % 2 == 0 { 0.0 } else { -std::f64::consts::FRAC_PI_2 };
            }
            Ok((Matrix::from_fn(features, dim, |m, l| base[(m / 2, l)]), shifts))
        }
        _ => Ok((drawn(coupling, features)?, vec![])),
    }
}
