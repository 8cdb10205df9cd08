//! Designs as bytes.

use super::{Design, DesignSpec, Numbers, Record};
use crate::learn::Scaling;
use crate::store::{Array, Kind};
use crate::{FeatureMap, Result};
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.design", "design", 1);

#[derive(Serialize, Deserialize)]
struct Header {
    spec: DesignSpec,
    numbers: Stored,
}

/// Which arrays hold the numbers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    Waves,
    Positive,
    Landmarks,
}

impl Design {
    /// The design as the bytes of a safetensors file.
    ///
    /// ```
    /// use favor::learn::{Design, DesignSpec};
    /// use favor::{Matrix, Moments};
    /// let rows = Matrix::from_fn(50, 2, |i, l| ((3 * i + l) as f64).sin());
    /// let design = DesignSpec::new(16).fit(&Moments::of(rows.view())?, rows.view())?;
    /// assert_eq!(Design::from_bytes(&design.to_bytes()?)?, design);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let Record { spec, inputs, numbers } = &*self.record;
        let of = |value: fn(&Scaling) -> f64| inputs.iter().map(value).collect::<Vec<f64>>();
        let mut arrays = vec![
            Array::f64("centres", [inputs.len()], &of(|s| s.centre)),
            Array::f64("scales", [inputs.len()], &of(|s| s.scale)),
        ];
        let stored = match numbers {
            Numbers::Waves { frequencies, phases } => {
                let (rows, columns) = frequencies.shape();
                arrays.push(Array::f64("frequencies", [rows, columns], frequencies.as_slice()));
                arrays.push(Array::f64("phases", [phases.len()], phases));
                Stored::Waves
            }
            Numbers::Positive(map) => {
                let bytes = map.to_bytes()?;
                arrays.push(Array::new("map", Dtype::U8, [bytes.len()], bytes));
                Stored::Positive
            }
            Numbers::Landmarks { rows, whitening } => {
                let (count, columns) = rows.shape();
                arrays.push(Array::f64("landmarks", [count, columns], rows.as_slice()));
                arrays.push(Array::f64("whitening", [count, count], whitening.as_slice()));
                Stored::Landmarks
            }
        };
        KIND.write(&Header { spec: spec.clone(), numbers: stored }, arrays)
    }

    /// Reads the bytes that [`Design::to_bytes`] made. Damaged, truncated or foreign bytes give an error
    /// that says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<Header>(bytes)?;
        let vector = |name: &str| file.f64(name).map(|(_, values)| values);
        let pairs = vector("centres")?.into_iter().zip(vector("scales")?);
        let inputs = pairs.map(|(centre, scale)| Scaling { centre, scale }).collect();
        let numbers = match file.contents.numbers {
            Stored::Waves => Numbers::Waves {
                frequencies: file.matrix("frequencies")?,
                phases: vector("phases")?,
            },
            Stored::Positive => {
                let map = FeatureMap::from_bytes(file.array_of("map", Dtype::U8)?.data())?;
                Numbers::Positive(Box::new(map))
            }
            Stored::Landmarks => Numbers::Landmarks {
                rows: file.matrix("landmarks")?,
                whitening: file.matrix("whitening")?,
            },
        };
        Self::new(file.contents.spec.clone(), inputs, numbers)
    }
}
