//! Adaptive maps as bytes.

use super::{AdaptiveMaps, State};
use crate::store::{Array, Kind};
use crate::{Matrix, Moments, Result, maps_from_bytes, maps_to_bytes};
use safetensors::tensor::Dtype;
use std::sync::OnceLock;

const KIND: Kind = Kind::new("favor.adaptive_maps", "state of adaptive maps", 2);

/// The name of the array that holds maps from elsewhere.
const GIVEN: &str = "maps";

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
        let mut arrays = vec![Array::f64("moments", shape, &numbers)];
        if let Some(maps) = &self.given {
            let file = maps_to_bytes(maps)?;
            arrays.push(Array::new(GIVEN, Dtype::U8, [file.len()], file));
        }
        KIND.write(&self.head, arrays)
    }

    /// Restores a state written by [`AdaptiveMaps::to_bytes`].
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
        let mut state = Self { head, moments, given: None, fitted: OnceLock::new() };
        if file.names().contains(&GIVEN) {
            let maps = file.array_of(GIVEN, Dtype::U8)?;
            state.set_maps(maps_from_bytes(maps.data())?)?;
        }
        Ok(state)
    }
}
