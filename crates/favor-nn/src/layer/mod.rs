//! Multi-head attention as a module of burn, with any kind of attention.

mod given;
mod heads;
mod maps;
mod options;
mod positions;

pub use given::GivenMaps;
pub use heads::LayerHeads;
use maps::Maps;
pub use options::LayerOptions;
pub use positions::Positions;
use positions::Relative;

use crate::attention::{
    AttendOptions, BackwardFailure, Implementation, KeyMask, attend, attend_trained,
};
use crate::host::{drop_some, rowwise};
use crate::{Error, Result};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use favor::AdaptiveMaps;

/// What a [`FavorAttention`] is made of.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FavorAttentionConfig {
    /// The width of queries and of the output.
    pub embed_dim: usize,
    /// The number of heads, which share the width.
    pub heads: usize,
    /// The width of keys, if another.
    pub key_dim: Option<usize>,
    /// The width of values, if another.
    pub value_dim: Option<usize>,
    /// The fraction of outputs of the heads that training drops.
    pub dropout: f64,
    /// The kind of attention and its maps.
    pub attention: LayerOptions,
    /// What queries and keys know about where they are.
    pub positions: Positions,
    /// Which code computes.
    pub implementation: Implementation,
}

setters! { FavorAttentionConfig {
    key_dim: Option<usize>,
    value_dim: Option<usize>,
    dropout: f64,
    attention: LayerOptions,
    positions: Positions,
    implementation: Implementation,
} }

impl FavorAttentionConfig {
    /// The defaults for this width and number of heads.
    pub fn new(embed_dim: usize, heads: usize) -> Self {
        Self {
            embed_dim,
            heads,
            key_dim: None,
            value_dim: None,
            dropout: 0.0,
            attention: LayerOptions::default(),
            positions: Positions::None,
            implementation: Implementation::Auto,
        }
    }

    /// The module, with weights drawn by `initializer`.
    pub fn init(&self, initializer: &Initializer, device: &Device) -> Result<FavorAttention> {
        let Self { embed_dim, heads, .. } = *self;
        if heads == 0 || embed_dim == 0 || !embed_dim.is_multiple_of(heads) {
            let reason = format!("a width of {embed_dim} is not a multiple of {heads} heads");
            return Err(Error::invalid("heads", reason));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let reason = format!("{} is not from 0 to below 1", self.dropout);
            return Err(Error::invalid("dropout", reason));
        }
        let relative =
            self.positions.init(self.attention.kind, embed_dim, heads, initializer, device)?;
        let linear = |from: usize| {
            let config = LinearConfig::new(from, embed_dim);
            config.with_initializer(initializer.clone()).init(device)
        };
        Ok(FavorAttention {
            query: linear(embed_dim),
            key: linear(self.key_dim.unwrap_or(embed_dim)),
            value: linear(self.value_dim.unwrap_or(embed_dim)),
            output: linear(embed_dim),
            dropout: DropoutConfig::new(self.dropout).init(),
            relative,
            given: None,
            maps: Maps::new(self.attention, heads, embed_dim / heads)?,
            positions: self.positions,
            implementation: self.implementation,
            failure: BackwardFailure::default(),
        })
    }
}

/// Multi-head attention of any kind.
///
/// Every [`redraw`](LayerOptions::redraw) calls in training the maps are fitted again to a running
/// mean of the statistics, with a new draw; the other calls and evaluation use them as they are.
/// Causal calls use statistics of earlier calls alone. Before the first call in training, or a
/// calibration, maps know nothing of the data: right on average, but with more noise. Dropout acts on
/// the outputs of the heads, because weights never exist. Clones share their maps.
///
/// ```
/// use burn::nn::Initializer;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use favor_nn::FavorAttentionConfig;
/// let device = Device::flex();
/// device.seed(1);
/// let xavier = Initializer::XavierUniform { gain: 1.0 };
/// let attention = FavorAttentionConfig::new(32, 4).init(&xavier, &device)?;
/// let x = Tensor::<3>::random([2, 100, 32], Distribution::Default, &device);
/// let out = attention.forward(x, None, false)?;
/// assert_eq!(out.dims(), [2, 100, 32]);
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Module, Debug)]
pub struct FavorAttention {
    /// The projection of the queries.
    pub query: Linear,
    /// The projection of the keys.
    pub key: Linear,
    /// The projection of the values.
    pub value: Linear,
    /// The projection of the outputs of all heads.
    pub output: Linear,
    dropout: Dropout,
    relative: Option<Relative>,
    given: Option<GivenMaps>,
    #[module(skip)]
    maps: Maps,
    #[module(skip)]
    positions: Positions,
    #[module(skip)]
    implementation: Implementation,
    #[module(skip)]
    failure: BackwardFailure,
}

impl FavorAttention {
    /// Self-attention over `[batch, length, width]`.
    pub fn forward(&self, x: Tensor<3>, mask: Option<&KeyMask>, causal: bool) -> Result<Tensor<3>> {
        self.forward_cross(x.clone(), x.clone(), x, mask, causal)
    }

    /// Attention of queries to keys and values of another sequence, each `[batch, length, width]`.
    /// The mask is that of the keys.
    pub fn forward_cross(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        value: Tensor<3>,
        mask: Option<&KeyMask>,
        causal: bool,
    ) -> Result<Tensor<3>> {
        self.check_widths([&query, &key, &value])?;
        let heads = self.heads(query, key, value);
        let out = drop_some(&self.dropout, self.mix(heads, mask, causal)?);
        Ok(rowwise(&self.output, out))
    }

    /// Queries, keys and values of all heads, each `[batch, heads, length, dim]`; queries and keys turned by
    /// their positions.
    pub fn heads(&self, query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> [Tensor<4>; 3] {
        let heads = |x: Tensor<3>| {
            let [batch, length, width] = x.dims();
            let heads = self.maps.heads();
            x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
        };
        let q = self.positions.rotate(heads(rowwise(&self.query, query)));
        let k = self.positions.rotate(heads(rowwise(&self.key, key)));
        [q, k, heads(rowwise(&self.value, value))]
    }

    /// The outputs of all heads side by side, `[batch, length, width]`, before the last projection.
    pub(crate) fn mix(
        &self,
        [q, k, v]: [Tensor<4>; 3],
        mask: Option<&KeyMask>,
        causal: bool,
    ) -> Result<Tensor<3>> {
        let ([batch, _, length, _], keys) = (q.dims(), k.dims()[2]);
        let options = AttendOptions::default().mask(mask).causal(causal);
        let options = options.implementation(self.implementation).failure(self.failure.clone());
        let out = match (&self.relative, &self.given) {
            (Some(relative), _) => relative.attend(q, k, v, mask, causal)?,
            (None, Some(given)) => {
                let method = given.method(length, keys, causal)?;
                match given.numbers() {
                    Some(numbers) => attend_trained([q, k, v], numbers, &method, &options)?,
                    None => attend(q, k, v, &method, &options)?,
                }
            }
            (None, None) => {
                let training = self.dropout.training.is_enabled() && q.device().is_autodiff();
                let method = self.maps.method([&q, &k, &v], mask, causal, training)?;
                attend(q, k, v, &method, &options)?
            }
        };
        let width = self.maps.heads() * out.dims()[3];
        Ok(out.swap_dims(1, 2).reshape([batch, length, width]))
    }

    /// All but the widths is checked by attention itself.
    fn check_widths(&self, [query, key, value]: [&Tensor<3>; 3]) -> Result<()> {
        let sides = [
            ("queries", query, &self.query),
            ("keys", key, &self.key),
            ("values", value, &self.value),
        ];
        for (what, x, projection) in sides {
            let (found, wanted) = (x.dims()[2], projection.weight.dims()[0]);
            if found != wanted {
                let reason = format!("a width of {found} where the layer takes {wanted}");
                return Err(Error::invalid(what, reason));
            }
        }
        Ok(())
    }

    /// Where the layer leaves the reason when its backward pass fails.
    pub fn failure(&self) -> &BackwardFailure {
        &self.failure
    }

    /// The kind of attention and its maps.
    pub fn options(&self) -> LayerOptions {
        self.maps.options()
    }

    /// Another kind of attention with the same weights. Its maps start from nothing.
    pub fn set_options(&mut self, options: LayerOptions) -> Result<()> {
        self.positions.check(options.kind)?;
        self.maps = Maps::new(options, self.maps.heads(), self.maps.dim())?;
        self.given = None;
        Ok(())
    }

    /// The maps that the layer was given, if it was.
    pub fn given(&self) -> Option<&GivenMaps> {
        self.given.as_ref()
    }

    /// Computes with these maps from now on, or again by its own kind of attention.
    pub fn set_given(&mut self, given: Option<GivenMaps>) -> Result<()> {
        if let Some(given) = &given {
            let found = (given.exact().len(), given.dim());
            let wanted = (self.maps.heads(), self.maps.dim());
            if found != wanted {
                let reason = format!("{found:?} heads and dimensions for a layer of {wanted:?}");
                return Err(Error::invalid("maps", reason));
            }
            if self.relative.is_some() {
                let reason = "a layer with a term for each pair of positions takes none";
                return Err(Error::invalid("maps", reason));
            }
        }
        self.given = given;
        Ok(())
    }

    /// Drops another fraction of the outputs of the heads in training.
    pub(crate) fn set_dropout(&mut self, rate: f64) {
        self.dropout.prob = rate;
    }

    /// From now on every call, in training or not, computes exactly and lets the maps learn its
    /// statistics, until [`end_calibration`](Self::end_calibration).
    pub fn begin_calibration(&self) {
        self.maps.begin_calibration();
    }

    /// Ends a calibration. [`Statistics::Calibrated`](favor::Statistics::Calibrated) stay as they are
    /// from now on; a running average goes on from them.
    pub fn end_calibration(&self) {
        self.maps.end_calibration();
    }

    /// What the maps have learned, to be kept in a file; nothing for a kind of attention without maps.
    pub fn map_state(&self) -> Option<AdaptiveMaps> {
        self.maps.state()
    }

    /// Goes on from what maps had learned.
    pub fn set_map_state(&self, state: Option<AdaptiveMaps>) -> Result<()> {
        self.maps.set_state(state)
    }
}
