//! `K(X,Y)·C ≈ P(SᵀC)`: sums over keys that are fed in pieces and merged, then applied to queries.

use crate::kernel::{check_sums, check_values};
use crate::store::{Array, Kind};
use crate::{Error, FeatureMap, Float, Matrix, Result, Rows};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.key_sums", "state of key sums", 1);

/// `SᵀC` of the keys seen so far: for each feature `m` the row `sums[m] · e^{log_scale[m]}`.
///
/// The scale of a feature is its largest value over the keys, kept as a running maximum, so that
/// neither huge nor tiny features are lost. Pass the same map to every call.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, KeySums, Moments, Rows};
/// let y = Rows::new(&[0.1_f64, 0.2, -0.3, 0.1], 2, 2)?;
/// let c = Rows::new(&[1.0, 2.0], 2, 1)?;
/// let m = Moments::of(y)?;
/// let map = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let mut sums = KeySums::new(&map, 1);
/// sums.add(&map, y.slice(0, 1), c.slice(0, 1))?; // in pieces,
/// let mut other = KeySums::new(&map, 1);
/// other.add(&map, y.slice(1, 2), c.slice(1, 2))?;
/// sums.merge(&other)?;                            // merged,
/// let product = sums.apply(&map, y)?.to_matrix()?; // applied
/// let exact = Kernel::gaussian().product(y, y, c)?.to_matrix()?;
/// assert!((product[(0, 0)] - exact[(0, 0)]).abs() < 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSums")]
pub struct KeySums {
    pub(crate) log_scale: Vec<f64>,
    pub(crate) sums: Matrix<f64>,
}

#[derive(Deserialize)]
struct RawSums {
    log_scale: Vec<f64>,
    sums: Matrix<f64>,
}

impl TryFrom<RawSums> for KeySums {
    type Error = Error;
    fn try_from(RawSums { log_scale, sums }: RawSums) -> Result<Self> {
        Self::from_parts(log_scale, sums)
    }
}

impl KeySums {
    /// Empty sums, for values with `columns` columns.
    pub fn new(map: &FeatureMap, columns: usize) -> Self {
        let m = map.features();
        Self { log_scale: vec![f64::NEG_INFINITY; m], sums: Matrix::zeros(m, columns) }
    }

    /// Builds sums from what [`KeySums::log_scale`] and [`KeySums::sums`] returned.
    pub fn from_parts(log_scale: Vec<f64>, sums: Matrix<f64>) -> Result<Self> {
        let valid = |v: &f64| v.is_finite() || *v == f64::NEG_INFINITY;
        if log_scale.len() != sums.rows()
            || !log_scale.iter().all(valid)
            || !sums.as_slice().iter().all(|v| v.is_finite())
        {
            return Err(Error::invalid("key sums", "scales and sums do not belong together"));
        }
        Ok(Self { log_scale, sums })
    }

    /// The natural logarithm of each feature's factor; −∞ before the first key.
    pub fn log_scale(&self) -> &[f64] {
        &self.log_scale
    }

    /// One row per feature, one column per column of the values.
    pub fn sums(&self) -> &Matrix<f64> {
        &self.sums
    }

    /// The sums as the bytes of a safetensors file, with a note of what they belong to.
    ///
    /// ```
    /// use favor::{Family, FeatureSpec, KeySums, Moments, Rows};
    /// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
    /// let sums = KeySums::new(&FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?, 1);
    /// let bytes = sums.to_bytes(&"of no keys yet")?;
    /// assert_eq!(KeySums::from_bytes(&bytes)?, (sums, "of no keys yet".to_owned()));
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn to_bytes(&self, note: &impl Serialize) -> Result<Vec<u8>> {
        let (features, columns) = self.sums.shape();
        let scales = Array::f64("log_scale", [features], &self.log_scale);
        KIND.write(
            note,
            vec![scales, Array::f64("sums", [features, columns], self.sums.as_slice())],
        )
    }

    /// Reads the sums and their note from such bytes.
    pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<(Self, T)> {
        let file = KIND.read(bytes)?;
        let sums = Self::from_parts(file.f64("log_scale")?.1, file.matrix("sums")?)?;
        Ok((sums, file.contents))
    }

    /// Adds the sums over other keys; the result covers all keys together.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.sums.shape() != other.sums.shape() {
            return Err(Error::Shape {
                operation: "merge",
                left: "key sums",
                left_shape: self.sums.shape(),
                right: "key sums",
                right_shape: other.sums.shape(),
            });
        }
        for m in 0..self.log_scale.len() {
            let (own, new) = (self.log_scale[m], other.log_scale[m]);
            let max = own.max(new);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let (keep, take) = ((own - max).exp(), (new - max).exp());
            for (s, o) in self.sums.row_mut(m).iter_mut().zip(other.sums.row(m)) {
                *s = *s * keep + *o * take;
            }
            self.log_scale[m] = max;
        }
        check_sums(&self.sums)
    }

    /// Checks that keys and values can be added with this map.
    pub(crate) fn check_piece<T: Float>(
        &self,
        map: &FeatureMap,
        keys: Rows<'_, T>,
        values: Rows<'_, T>,
    ) -> Result<()> {
        check_values("add", keys, values)?;
        self.check_map(map)?;
        if values.columns() == self.sums.columns() {
            return Ok(());
        }
        Err(Error::Shape {
            operation: "add",
            left: "key sums",
            left_shape: self.sums.shape(),
            right: "values",
            right_shape: values.shape(),
        })
    }

    pub(crate) fn check_map(&self, map: &FeatureMap) -> Result<()> {
        if map.features() == self.log_scale.len() {
            return Ok(());
        }
        Err(Error::Shape {
            operation: "key sums",
            left: "feature map",
            left_shape: (map.features(), map.dim()),
            right: "key sums",
            right_shape: self.sums.shape(),
        })
    }
}
