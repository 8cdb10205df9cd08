//! Feature maps as bytes: one map or several, in one form.
//!
//! ω is stored, not only its seed: a file then means the same forever, even if a later version should
//! draw differently, and maps with an ω of their own can be kept too. The seed and the coupling stay in
//! the header for the reader.

use super::{FeatureMap, FeatureSpec, Record};
use crate::store::{Array, File, Kind};
use crate::{Parameters, Result};

const KIND: Kind = Kind::new("favor.maps", "feature map", 2);

/// Maps as the bytes of a safetensors file: one per head of a layer, say.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows, maps_from_bytes, maps_to_bytes};
/// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let maps = [1, 2].map(|seed| FeatureSpec::new(Family::Sde, 8).seed(seed).fit(&m, &m).unwrap());
/// assert_eq!(maps_from_bytes(&maps_to_bytes(&maps)?)?, maps);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn maps_to_bytes(maps: &[FeatureMap]) -> Result<Vec<u8>> {
    let specs: Vec<&FeatureSpec> = maps.iter().map(FeatureMap::spec).collect();
    let arrays = maps.iter().enumerate().flat_map(|(i, map)| arrays(i, map)).collect();
    KIND.write(&specs, arrays)
}

/// Reads the bytes of a file that [`maps_to_bytes`] or [`FeatureMap::to_bytes`] made. Damaged, truncated
/// or foreign bytes give an error that says what is wrong with them.
pub fn maps_from_bytes(bytes: &[u8]) -> Result<Vec<FeatureMap>> {
    let file = KIND.read::<Vec<FeatureSpec>>(bytes)?;
    let one = |(i, spec): (usize, &FeatureSpec)| read(&file, i, *spec);
    file.contents.iter().enumerate().map(one).collect()
}

impl FeatureMap {
    /// The map as the bytes of a safetensors file.
    ///
    /// ```
    /// use favor::{Family, FeatureMap, FeatureSpec, Moments, Rows};
    /// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
    /// let map = FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?;
    /// assert_eq!(FeatureMap::from_bytes(&map.to_bytes()?)?, map);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        maps_to_bytes(std::slice::from_ref(self))
    }

    /// Reads the bytes of a file with one map.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut maps = maps_from_bytes(bytes)?;
        match (maps.pop(), maps.len()) {
            (Some(map), 0) => Ok(map),
            (_, rest) => Err(KIND.bad(format!("{} maps where one is expected", rest + 1))),
        }
    }
}

fn arrays(i: usize, map: &FeatureMap) -> Vec<Array<'static>> {
    let Record { parameters, omega, offsets, .. } = &*map.record;
    let (m, d) = omega.shape();
    let array =
        |name: &str, shape: &[usize], values| Array::f64(format!("{i}.{name}"), shape, values);
    let mut arrays = vec![array("omega", &[m, d], omega.as_slice())];
    match parameters {
        None => arrays.push(array("offsets", &[m], offsets)),
        Some(p) => arrays.extend([
            array("quadratic", &[d], p.quadratic()),
            array("query_transform", &[d, d], p.query_transform().as_slice()),
            array("key_transform", &[d, d], p.key_transform().as_slice()),
            array("query_shift", &[d], p.query_shift()),
            array("key_shift", &[d], p.key_shift()),
        ]),
    }
    arrays
}

fn read<H>(file: &File<'_, H>, i: usize, spec: FeatureSpec) -> Result<FeatureMap> {
    let vector = |name: &str| file.f64(&format!("{i}.{name}")).map(|(_, values)| values);
    let matrix = |name: &str| file.matrix(&format!("{i}.{name}"));
    let (parameters, offsets) = if spec.family.is_positive() {
        let parameters = Parameters::checked(
            vector("quadratic")?,
            matrix("query_transform")?,
            matrix("key_transform")?,
            vector("query_shift")?,
            vector("key_shift")?,
        )?;
        (Some(parameters), vec![])
    } else {
        (None, vector("offsets")?)
    };
    FeatureMap::from_record(Record { spec, parameters, omega: matrix("omega")?, offsets })
}
