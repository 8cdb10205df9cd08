//! BERT with any kind of attention: encoder, pooler and heads.

mod config;
mod encoder;
mod files;
mod maps;
mod names;
mod pytorch;

pub use config::BertConfig;
pub use encoder::{Embeddings, Encoder, Layer};
pub(crate) use maps::is_converted;

use crate::attention::Implementation;
use crate::host::Norm;
use crate::layer::LayerOptions;
use crate::text::Batch;
use crate::{Error, Result};
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear};
use burn::tensor::activation::tanh;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The head that says which token stands behind a mask. Its last matrix is that of the embeddings.
#[derive(Module, Debug)]
pub struct MaskedHead {
    transform: Linear,
    norm: Norm,
    bias: Param<Tensor<1>>,
    relu: bool,
}

/// A BERT, with the heads that it has.
///
/// ```
/// use burn::tensor::Device;
/// use favor_nn::bert::{Bert, BertConfig};
/// use favor_nn::text::Batch;
/// use favor_nn::{Attention, LayerOptions};
/// let config = BertConfig::small(100, 32, 2, 4);
/// let options = LayerOptions::new("balanced".parse::<Attention>()?, 64);
/// let device = Device::flex();
/// device.seed(1);
/// let bert = Bert::new(&config, options, &device)?;
/// let batch = Batch::new(vec![vec![2, 11, 12, 3], vec![2, 13, 3]])?;
/// assert_eq!(bert.encoder.forward(&batch)?.dims(), [2, 4, 32]);
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Module, Debug)]
pub struct Bert {
    /// Tokens in, vectors out.
    pub encoder: Encoder,
    /// The vector of the first token, once more through a matrix.
    pub pooler: Option<Linear>,
    /// The head for masked tokens.
    pub masked: Option<MaskedHead>,
    /// The head for classes, or for one number.
    pub classifier: Option<Linear>,
    dropout: Dropout,
}

impl Bert {
    /// A BERT with new weights, drawn by the device's own generator, and no heads.
    pub fn new(config: &BertConfig, options: LayerOptions, device: &Device) -> Result<Self> {
        Self::with_implementation(config, options, Implementation::Auto, device)
    }

    /// The same, with a say in which code computes the attention.
    pub fn with_implementation(
        config: &BertConfig,
        options: LayerOptions,
        implementation: Implementation,
        device: &Device,
    ) -> Result<Self> {
        config.check()?;
        Ok(Self {
            encoder: Encoder::new(config, options, implementation, device)?,
            pooler: None,
            masked: None,
            classifier: None,
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
        })
    }

    /// With a head for masked tokens, a new one unless there is one.
    #[must_use]
    pub fn with_masked_head(mut self, config: &BertConfig, device: &Device) -> Self {
        self.masked.get_or_insert_with(|| MaskedHead {
            transform: encoder::linear(config, config.hidden_size, config.hidden_size, device),
            norm: encoder::norm(config, device),
            bias: Initializer::Zeros.init([config.vocab_size], device),
            relu: config.hidden_act == "relu",
        });
        self
    }

    /// With a head for so many classes, a new one unless there is one for as many; one class is a number.
    /// The pooler is kept if there is one.
    #[must_use]
    pub fn with_classifier(mut self, config: &BertConfig, labels: usize, device: &Device) -> Self {
        self = self.with_pooler(config, device);
        let fits = |head: &Linear| head.weight.dims()[1] == labels;
        let new = || encoder::linear(config, config.hidden_size, labels, device);
        self.classifier = Some(self.classifier.take().filter(fits).unwrap_or_else(new));
        self
    }

    fn with_pooler(mut self, config: &BertConfig, device: &Device) -> Self {
        let width = config.hidden_size;
        self.pooler.get_or_insert_with(|| encoder::linear(config, width, width, device));
        self
    }

    /// Another kind of attention with the same weights.
    pub fn set_attention(&mut self, options: LayerOptions) -> Result<()> {
        self.encoder.set_attention(options)
    }

    /// Drops other fractions of numbers in training: after attention, and elsewhere.
    pub(crate) fn set_dropout(&mut self, attention: f64, elsewhere: f64) {
        self.dropout.prob = elsewhere;
        self.encoder.set_dropout(attention, elsewhere);
    }

    /// From now on every call computes exactly and lets the maps of all layers learn, until
    /// [`end_calibration`](Self::end_calibration).
    pub fn begin_calibration(&self) {
        self.encoder.layers.iter().for_each(|layer| layer.attention.begin_calibration());
    }

    /// Ends a calibration: the maps are fitted to what was seen. Calibrated statistics stay as they are
    /// from now on; a running average goes on from them.
    pub fn end_calibration(&self) {
        self.encoder.layers.iter().for_each(|layer| layer.attention.end_calibration());
    }

    /// The mean of the vectors of each text, without padding, `[texts, width]`.
    pub fn embed(&self, batch: &Batch) -> Result<Tensor<2>> {
        Ok(self.embed_states(self.encoder.forward(batch)?, batch))
    }

    /// The same of the encoder's output.
    pub(crate) fn embed_states(&self, states: Tensor<3>, batch: &Batch) -> Tensor<2> {
        let (device, [texts, _, _]) = (states.device(), states.dims());
        // Rows at padding hold anything: they are left out, not multiplied by zero.
        let states = without_padding(states, batch);
        let counts: Vec<f32> = batch.lengths().iter().map(|l| 1.0 / *l as f32).collect();
        let counts = Tensor::<2>::from_data(TensorData::new(counts, [texts, 1]), &device);
        states.sum_dim(1).squeeze_dim::<2>(1) * counts
    }

    /// The scores of all tokens at the given places of the batch, which count its tokens row by row:
    /// `[places, vocabulary]`.
    pub fn masked_logits(&self, batch: &Batch, places: &[usize]) -> Result<Tensor<2>> {
        let Some(head) = &self.masked else {
            return Err(Error::invalid("model", "it has no head for masked tokens"));
        };
        if places.iter().any(|p| *p >= batch.ids().len()) {
            return Err(Error::invalid("places", "beyond the end of the batch"));
        }
        let states = self.encoder.forward(batch)?;
        let (device, [texts, length, width]) = (states.device(), states.dims());
        let index: Vec<i64> = places.iter().map(|p| *p as i64).collect();
        let index = Tensor::<1, Int>::from_data(TensorData::new(index, [places.len()]), &device);
        let chosen = states.reshape([texts * length, width]).select(0, index).unsqueeze::<3>();
        let transformed = encoder::activation(head.relu, head.transform.forward(chosen));
        let transformed = head.norm.forward(transformed).squeeze_dim::<2>(0);
        let words = self.encoder.embeddings.word.weight.val();
        Ok(transformed.matmul(words.transpose()) + head.bias.val().unsqueeze::<2>())
    }

    /// The scores of the classes, or the number, `[texts, labels]`.
    pub fn classify(&self, batch: &Batch) -> Result<Tensor<2>> {
        self.classify_states(self.encoder.forward(batch)?)
    }

    /// The same of the encoder's output.
    pub(crate) fn classify_states(&self, states: Tensor<3>) -> Result<Tensor<2>> {
        let (Some(pooler), Some(classifier)) = (&self.pooler, &self.classifier) else {
            return Err(Error::invalid("model", "it has no classifier; fine-tune one first"));
        };
        let first = states.narrow(1, 0, 1).squeeze_dim::<2>(1);
        let pooled = self.dropout.forward(tanh(pooler.forward(first)));
        Ok(classifier.forward(pooled))
    }
}

/// The states of a batch with zeros at padding.
pub(crate) fn without_padding(states: Tensor<3>, batch: &Batch) -> Tensor<3> {
    let (device, [texts, length, _]) = (states.device(), states.dims());
    let hidden: Vec<bool> = batch.visible().iter().map(|v| !v).collect();
    let hidden = TensorData::new(hidden, [texts, length, 1]);
    let hidden = Tensor::<3, Bool>::from_data(hidden, &device);
    states.clone().mask_fill(hidden.expand(states.shape()), 0.0)
}
