//! Maps that a layer was given: of a converted model, fixed or in training.

use crate::attention::{AttendMethod, Numbers};
use crate::{Error, Result};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use favor::diagnose::Operations;
use favor::{ExactKeys, FeatureMap, Matrix, Side};
use std::sync::Arc;

/// One map per head, and the keys that each head attends exactly.
#[derive(Module, Debug)]
pub struct GivenMaps {
    numbers: Option<MapNumbers>,
    /// With the numbers that the maps had when they were given.
    #[module(skip)]
    maps: Arc<[FeatureMap]>,
    #[module(skip)]
    exact: Arc<[ExactKeys]>,
    #[module(skip)]
    short_is_exact: bool,
}

/// The numbers of learned maps as weights of the model.
#[derive(Module, Debug)]
struct MapNumbers {
    query: Param<Tensor<3>>,
    key: Param<Tensor<3>>,
    constants: Param<Tensor<2>>,
}

impl GivenMaps {
    /// Maps that stay as they are, one per head, with as many entries of exact keys.
    pub fn fixed(maps: Vec<FeatureMap>, exact: Vec<ExactKeys>) -> Result<Self> {
        let first = maps.first().ok_or_else(|| Error::invalid("maps", "there are none"))?;
        let (features, dim) = (first.features(), first.dim());
        if exact.len() != maps.len() {
            let reason = format!("{} exact keys for {} maps", exact.len(), maps.len());
            return Err(Error::invalid("maps", reason));
        }
        if maps.iter().any(|m| m.features() != features || m.dim() != dim) {
            return Err(Error::invalid("maps", "those of a layer must be of one size"));
        }
        Ok(Self { numbers: None, maps: maps.into(), exact: exact.into(), short_is_exact: false })
    }

    /// The same maps as weights of the model, which training changes. They must be learned ones.
    pub fn trained(self, device: &Device) -> Result<Self> {
        let maps = self.maps()?;
        if maps.iter().any(|map| map.learned().is_none()) {
            let reason =
                "only learned ones can be trained; random features stay as they were drawn";
            return Err(Error::invalid("maps", reason));
        }
        let (heads, features, dim) = (maps.len(), maps[0].features(), maps[0].dim());
        let param = |side: Side| {
            let weights = maps.iter().flat_map(|m| m.side(side).weights.as_slice());
            let values: Vec<f32> = weights.map(|w| *w as f32).collect();
            weight(Tensor::from_data(TensorData::new(values, [heads, features, dim]), device))
        };
        let constants = maps.iter().flat_map(|map| {
            let (query, key) = (&map.side(Side::Query).constants, &map.side(Side::Key).constants);
            query.iter().zip(key).map(|(a, b)| (a + b) as f32).collect::<Vec<f32>>()
        });
        let constants = TensorData::new(constants.collect::<Vec<f32>>(), [heads, features]);
        let numbers = MapNumbers {
            query: param(Side::Query),
            key: param(Side::Key),
            constants: weight(Tensor::from_data(constants, device)),
        };
        Ok(Self {
            numbers: Some(numbers),
            maps: maps.into(),
            exact: self.exact,
            short_is_exact: false,
        })
    }

    /// Whether sequences so short that features would cost more are computed exactly, unless they are causal, where the
    /// beginning of a text would change as it grows. Weights that were trained with features should not do so, which
    /// is the default.
    pub fn with_short_exact(mut self, short_is_exact: bool) -> Self {
        self.short_is_exact = short_is_exact;
        self
    }

    /// Whether short sequences are computed exactly.
    pub fn short_is_exact(&self) -> bool {
        self.short_is_exact
    }

    /// The keys that each head attends exactly.
    pub fn exact(&self) -> &[ExactKeys] {
        &self.exact
    }

    /// The dimension of the heads.
    pub fn dim(&self) -> usize {
        self.maps[0].dim()
    }

    /// The same with other exact keys.
    pub(crate) fn with_exact(mut self, exact: Vec<ExactKeys>) -> Self {
        self.exact = exact.into();
        self
    }

    /// The maps as they are now, one per head.
    pub fn maps(&self) -> Result<Vec<FeatureMap>> {
        let Some(numbers) = &self.numbers else { return Ok(self.maps.to_vec()) };
        let (query, key) = (values(numbers.query.val())?, values(numbers.key.val())?);
        let constants = values(numbers.constants.val())?;
        let (features, dim) = (self.maps[0].features(), self.maps[0].dim());
        let one = |(head, map): (usize, &FeatureMap)| {
            let matrix = |x: &[f64]| {
                let start = head * features * dim;
                Matrix::from_fn(features, dim, |m, l| x[start + m * dim + l])
            };
            let own = constants[head * features..(head + 1) * features].to_vec();
            Ok(map.with_weights(matrix(&query), matrix(&key), own)?)
        };
        self.maps.iter().enumerate().map(one).collect()
    }

    /// How attention of so many queries and keys is computed with the maps as they are now.
    pub(super) fn method(&self, queries: usize, keys: usize, causal: bool) -> Result<AttendMethod> {
        let exact = if self.short_is_exact && !causal && self.is_short(queries, keys) {
            vec![ExactKeys::ALL; self.maps.len()].into()
        } else {
            self.exact.clone()
        };
        let maps = match &self.numbers {
            None => self.maps.clone(),
            Some(_) => self.maps()?.into(),
        };
        Ok(AttendMethod::Hybrid { maps, exact })
    }

    /// Whether exact attention takes no longer.
    fn is_short(&self, queries: usize, keys: usize) -> bool {
        let (features, dim) = (self.maps[0].features(), self.dim());
        let operations = Operations { features, dim, values: dim };
        let some = self.exact.iter().find(|exact| !exact.is_all());
        let exact = some.map_or(0, |exact| exact.per_query(keys, false));
        operations.exact_is_no_slower(exact as f64, queries, keys, false)
    }

    /// The numbers, if they are weights of the model.
    pub(super) fn numbers(&self) -> Option<Numbers> {
        self.numbers.as_ref().map(|numbers| Numbers {
            query: numbers.query.val(),
            key: numbers.key.val(),
            constants: numbers.constants.val(),
        })
    }
}

fn weight<const D: usize>(tensor: Tensor<D>) -> Param<Tensor<D>> {
    let tracked = tensor.device().is_autodiff();
    Param::from_tensor(if tracked { tensor.require_grad() } else { tensor })
}

fn values<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f64>> {
    let unread = |e| Error::invalid("maps", format!("they cannot be read: {e:?}"));
    let numbers = tensor.without_autodiff().try_into_vec_as::<f32>().map_err(unread)?;
    Ok(numbers.into_iter().map(f64::from).collect())
}
