//! The encoder: embeddings and layers.

use super::BertConfig;
use crate::attention::{Implementation, KeyMask};
use crate::host::{Norm, drop_some, gelu, lookup, rowwise};
use crate::layer::{FavorAttention, FavorAttentionConfig, LayerOptions};
use crate::text::Batch;
use crate::{Error, Result};
use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig,
};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};

/// How new weights are drawn.
pub(super) fn initializer(config: &BertConfig) -> Initializer {
    Initializer::Normal { mean: 0.0, std: config.initializer_range }
}

/// A matrix with new weights and a bias of zeros.
pub(super) fn linear(config: &BertConfig, from: usize, to: usize, device: &Device) -> Linear {
    let matrix = LinearConfig::new(from, to).with_initializer(initializer(config));
    let mut linear = matrix.with_bias(false).init(device);
    linear.bias = Some(Initializer::Zeros.init([to], device));
    linear
}

pub(super) fn norm(config: &BertConfig, device: &Device) -> Norm {
    Norm::new(config.hidden_size, config.layer_norm_eps, device)
}

pub(super) fn activation(relu_instead: bool, x: Tensor<3>) -> Tensor<3> {
    if relu_instead { relu(x) } else { gelu(x) }
}

/// Vectors of tokens, positions and segments, added.
#[derive(Module, Debug)]
pub struct Embeddings {
    pub(super) word: Embedding,
    position: Embedding,
    token_type: Embedding,
    norm: Norm,
    dropout: Dropout,
}

impl Embeddings {
    fn new(config: &BertConfig, device: &Device) -> Self {
        let table = |rows| {
            let table = EmbeddingConfig::new(rows, config.hidden_size);
            table.with_initializer(initializer(config)).init(device)
        };
        Self {
            word: table(config.vocab_size),
            position: table(config.max_position_embeddings),
            token_type: table(config.type_vocab_size),
            norm: norm(config, device),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
        }
    }

    pub(crate) fn device(&self) -> Device {
        self.word.weight.val().device()
    }

    fn forward(&self, batch: &Batch) -> Result<Tensor<3>> {
        let rows = |table: &Embedding, places: &[u32]| {
            let places = places.iter().map(|place| i64::from(*place)).collect();
            lookup(table, places, [batch.len(), batch.length()])
        };
        let [words, _] = self.word.weight.val().dims();
        let [types, _] = self.token_type.weight.val().dims();
        for (what, values, rows) in
            [("token", batch.ids(), words), ("segment", batch.types(), types)]
        {
            if let Some(id) = values.iter().find(|id| **id as usize >= rows) {
                let reason = format!("{what} {id} where the model knows {rows}");
                return Err(Error::invalid("text", format!("{reason}: another tokenizer?")));
            }
        }
        let tokens = rows(&self.word, batch.ids());
        let types = rows(&self.token_type, batch.types());
        let sum = tokens + self.positions(batch.length()).unsqueeze::<3>() + types;
        Ok(drop_some(&self.dropout, self.norm.forward(sum)))
    }

    /// The vectors of the first positions. Where there are more tokens than positions, the known
    /// positions are spread evenly over the tokens, and those between are interpolated.
    fn positions(&self, length: usize) -> Tensor<2> {
        let table = self.position.weight.val();
        let [known, _] = table.dims();
        if length <= known {
            return table.narrow(0, 0, length);
        }
        let place = |i: usize| i as f64 * (known - 1) as f64 / (length - 1) as f64;
        let below: Vec<i64> =
            (0..length).map(|i| (place(i).floor() as i64).min(known as i64 - 1)).collect();
        let above: Vec<i64> = below.iter().map(|b| (b + 1).min(known as i64 - 1)).collect();
        let part: Vec<f32> =
            below.iter().enumerate().map(|(i, b)| (place(i) - *b as f64) as f32).collect();
        let device = table.device();
        let rows = |index: Vec<i64>| {
            table.clone().select(0, Tensor::from_data(TensorData::new(index, [length]), &device))
        };
        let part: Tensor<2> = Tensor::from_data(TensorData::new(part, [length, 1]), &device);
        let part = part.cast(table.dtype());
        rows(below) * (part.clone().neg() + 1.0) + rows(above) * part
    }
}

/// Attention, then two matrices with an activation between them; each added to its input.
#[derive(Module, Debug)]
pub struct Layer {
    pub(crate) attention: FavorAttention,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
    dropout: Dropout,
    relu: bool,
}

impl Layer {
    fn new(
        config: &BertConfig,
        options: LayerOptions,
        implementation: Implementation,
        device: &Device,
    ) -> Result<Self> {
        let attention = FavorAttentionConfig::new(config.hidden_size, config.num_attention_heads)
            .attention(options)
            .dropout(config.attention_probs_dropout_prob)
            .implementation(implementation);
        let (width, between) = (config.hidden_size, config.intermediate_size);
        let mut attention = attention.init(&initializer(config), device)?;
        for matrix in
            [&mut attention.query, &mut attention.key, &mut attention.value, &mut attention.output]
        {
            matrix.bias = Some(Initializer::Zeros.init([width], device));
        }
        Ok(Self {
            attention,
            attention_norm: norm(config, device),
            intermediate: linear(config, width, between, device),
            output: linear(config, between, width, device),
            output_norm: norm(config, device),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
            relu: config.hidden_act == "relu",
        })
    }

    pub(crate) fn forward(&self, x: Tensor<3>, mask: Option<&KeyMask>) -> Result<Tensor<3>> {
        let attended = self.attention.forward(x.clone(), mask, false)?;
        Ok(self.after_attention(x, attended))
    }

    /// The output of the layer, given its input and what attention made of it.
    pub(crate) fn after_attention(&self, x: Tensor<3>, attended: Tensor<3>) -> Tensor<3> {
        let x = self.attention_norm.forward_sum(&self.dropout, attended, x);
        let between = activation(self.relu, rowwise(&self.intermediate, x.clone()));
        let out = rowwise(&self.output, between);
        self.output_norm.forward_sum(&self.dropout, out, x)
    }
}

/// A BERT without heads: tokens in, one vector per token out.
#[derive(Module, Debug)]
pub struct Encoder {
    pub(crate) embeddings: Embeddings,
    pub(crate) layers: Vec<Layer>,
}

impl Encoder {
    pub(super) fn new(
        config: &BertConfig,
        options: LayerOptions,
        implementation: Implementation,
        device: &Device,
    ) -> Result<Self> {
        let layer = |i: usize| Layer::new(config, options.for_layer(i), implementation, device);
        let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        Ok(Self { embeddings: Embeddings::new(config, device), layers })
    }

    /// `[texts, length, width]`. Rows at padding hold anything.
    pub fn forward(&self, batch: &Batch) -> Result<Tensor<3>> {
        let mask = batch.mask();
        let mut x = self.embeddings.forward(batch)?;
        for layer in &self.layers {
            x = layer.forward(x, mask.as_ref())?;
        }
        Ok(x)
    }

    /// What goes into the first layer.
    pub(crate) fn embed(&self, batch: &Batch) -> Result<Tensor<3>> {
        self.embeddings.forward(batch)
    }

    /// What goes into the first layer and what comes out of each.
    pub(crate) fn states(&self, batch: &Batch) -> Result<Vec<Tensor<3>>> {
        let mask = batch.mask();
        let mut states = vec![self.embeddings.forward(batch)?];
        for layer in &self.layers {
            let x = states[states.len() - 1].clone();
            states.push(layer.forward(x, mask.as_ref())?);
        }
        Ok(states)
    }

    pub(super) fn set_dropout(&mut self, attention: f64, elsewhere: f64) {
        self.embeddings.dropout.prob = elsewhere;
        for layer in &mut self.layers {
            layer.dropout.prob = elsewhere;
            layer.attention.set_dropout(attention);
        }
    }

    pub(super) fn set_attention(&mut self, options: LayerOptions) -> Result<()> {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.attention.set_options(options.for_layer(i))?;
        }
        Ok(())
    }
}
