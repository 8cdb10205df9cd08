//! The state as the bytes of a file, and back.

use super::DecodeState;
use super::part::{How, Part, WideSums};
use crate::engine::mode::Hybrid;
use crate::engine::tensor::Scalar;
use crate::engine::tile::Sums;
use crate::map::{Cached, PackedSide};
use crate::store::{Array, File, Kind};
use crate::{ExactKeys, FeatureMap, Result};
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.decode_state", "decode state", 5);

/// The header of a stored state.
#[derive(Serialize, Deserialize)]
struct Header {
    tokens: usize,
    batch: usize,
    heads: usize,
    exact: Vec<ExactKeys>,
    /// The places of heads that are computed in `f64` because `f32` did not suffice.
    wide: Vec<usize>,
}

impl<T: Scalar> DecodeState<T> {
    /// The state as bytes of a safetensors file, without the maps.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (mut arrays, mut places) = (vec![], vec![]);
        for (place, part) in self.parts.iter().enumerate() {
            let how = self.how(place);
            let shape = (how.map.features(), self.columns);
            let name = place.to_string();
            match part {
                Part::Features(sums) => arrays.extend(sums_to_arrays(sums, &name, shape)),
                Part::Hybrid(state, wide) => {
                    arrays.extend(sums_to_arrays(&state.sums, &name, shape));
                    arrays.extend(state.to_arrays(place));
                    let side = how.map.packed::<f64>().map(|map| &map.key);
                    if let (Some(wide), Some(side)) = (wide, side) {
                        let sums = wide.settled(side)?;
                        arrays.extend(sums_to_arrays(&sums, &wide_name(place), shape));
                    }
                }
                Part::Wide(state) => {
                    places.push(place);
                    arrays.extend(sums_to_arrays(&state.sums, &name, shape));
                    arrays.extend(state.to_arrays(place));
                }
            }
        }
        let header = Header {
            tokens: self.tokens(),
            batch: self.batch,
            heads: self.heads,
            exact: self.exact.clone(),
            wide: places,
        };
        KIND.write(&header, arrays)
    }

    /// Takes up a state where [`DecodeState::to_bytes`] left it, with the same maps.
    pub fn from_bytes(maps: Vec<FeatureMap>, bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<Header>(bytes)?;
        let Header { tokens, batch, heads, exact, wide } = &file.contents;
        let (shape, _) = file.f64("0.values")?;
        let &[_, columns] = &shape[..] else {
            return Err(KIND.bad("values of the wrong shape"));
        };
        let parts = batch.checked_mul(*heads).filter(|parts| *parts > 0);
        let Some(parts) = parts.filter(|n| file.f64(&format!("{}.totals", n - 1)).is_ok()) else {
            return Err(KIND.bad(format!("no sums of {batch} sequences of {heads} heads")));
        };
        let mut state = Self::new(maps, *batch, *heads, columns)?.exact_keys(exact)?;
        let restore = Restore { file: &file, columns, tokens: *tokens };
        for place in 0..parts {
            let how = How { map: state.map(place), exact: state.exact_of(place) };
            let part = restore.part::<T::Real>(how, place, wide.contains(&place))?;
            state.parts[place] = part;
        }
        Ok(state)
    }
}

fn wide_name(place: usize) -> String {
    format!("{place}.wide")
}

fn sums_to_arrays<R: Cached>(
    sums: &Sums<R>,
    name: &str,
    (features, columns): (usize, usize),
) -> [Array<'static>; 3] {
    let numbers = |x: &[R]| -> Vec<f64> { x[..features].iter().map(|x| x.to_f64()).collect() };
    let rows = sums.values.chunks(sums.width).take(features);
    let values: Vec<f64> = rows.flat_map(|row| &row[..columns]).map(|x| x.to_f64()).collect();
    [
        Array::f64(format!("{name}.exponents"), [features], &numbers(&sums.exponents)),
        Array::f64(format!("{name}.totals"), [features], &numbers(&sums.totals)),
        Array::f64(format!("{name}.values"), [features, columns], &values),
    ]
}

/// A file that states are read from.
struct Restore<'f, 'b> {
    file: &'f File<'b, Header>,
    columns: usize,
    tokens: usize,
}

impl Restore<'_, '_> {
    fn part<R: Cached>(&self, how: How<'_>, place: usize, wide: bool) -> Result<Part<R>> {
        let name = place.to_string();
        if wide {
            let Part::Hybrid(mut state, _) = Part::<f64>::new(how, self.columns)? else {
                return Err(KIND.bad("a head without exact keys in 64 bits"));
            };
            self.exact_keys(how, &mut state, place)?;
            state.sums = self.sums(how, &name)?;
            return Ok(Part::Wide(state));
        }
        let mut part = Part::new(how, self.columns)?;
        match &mut part {
            Part::Hybrid(state, wide) => {
                self.exact_keys(how, state, place)?;
                state.sums = self.sums(how, &name)?;
                if let Some(wide) = wide {
                    **wide = WideSums::of(self.sums(how, &wide_name(place))?, self.columns);
                }
            }
            Part::Features(sums) => *sums = self.sums(how, &name)?,
            Part::Wide(_) => {}
        }
        Ok(part)
    }

    fn exact_keys<R: Cached>(
        &self,
        how: How<'_>,
        state: &mut crate::engine::mode::State<R>,
        place: usize,
    ) -> Result<()> {
        let hybrid = Hybrid::<R>::new(how.map, how.exact).map(|h| h.shape(self.columns));
        match hybrid {
            Some(shape) => state.restore(shape, self.file, place, self.tokens),
            None => Ok(()),
        }
    }

    fn sums<R: Cached>(&self, how: How<'_>, name: &str) -> Result<Sums<R>> {
        let Some(side) = how.map.packed::<R>().map(|map| &map.key) else {
            return Err(super::part::not_positive());
        };
        self.read_sums(side, name)
    }

    fn read_sums<R: Cached>(&self, side: &PackedSide<R>, name: &str) -> Result<Sums<R>> {
        let (features, columns) = (side.features, self.columns);
        let read = |what: &str| self.file.f64(&format!("{name}.{what}"));
        let (shape, values) = read("values")?;
        let ((_, exponents), (_, totals)) = (read("exponents")?, read("totals")?);
        if shape.first().is_some_and(|rows| *rows != features) {
            return Err(KIND.bad("the maps have another number of features"));
        }
        let finite = totals.iter().chain(&values).all(|v| v.is_finite())
            && exponents.iter().all(|e| !e.is_nan() && *e < f64::INFINITY);
        let fits =
            shape == [features, columns] && exponents.len() == features && totals.len() == features;
        if !(fits && finite) {
            return Err(KIND.bad("sums of the wrong shape or not finite"));
        }
        let mut sums = Sums::new(side, columns);
        for m in 0..features {
            sums.exponents[m] = R::from_f64(exponents[m]);
            sums.totals[m] = R::from_f64(totals[m]);
            let target = &mut sums.values[m * sums.width..][..columns];
            let row = &values[m * columns..][..columns];
            target.iter_mut().zip(row).for_each(|(t, v)| *t = R::from_f64(*v));
        }
        // Columns beyond the last feature are copies of it.
        let last = sums.exponents[features - 1];
        sums.exponents[features..].fill(last);
        sums.keys = self.tokens;
        Ok(sums)
    }
}
