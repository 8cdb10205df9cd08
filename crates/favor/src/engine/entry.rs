//! The entry points of the engine, one per number format: what is generic is compiled here once, not again
//! in every crate that calls it.

use crate::attention::{self, AttentionOptions, Choice, Gradients, Method, Qkv};
use crate::engine::decode::{self, DecodeState};
use crate::engine::mode;
use crate::engine::tensor::Tensor;
use crate::{FeatureMap, KeySums, LogScaled, ProductGradients, Result, Rows};

/// Entry points for tensors.
pub trait TensorEntry: Sized {
    fn attention_into(
        method: Method<'_>,
        inputs: Qkv<'_, Self>,
        options: &AttentionOptions<'_>,
        out: &mut [Self],
    ) -> Result<()>;
    fn attention_backward(
        method: Method<'_>,
        inputs: Qkv<'_, Self>,
        out: Tensor<'_, Self>,
        out_gradient: Tensor<'_, Self>,
        options: &AttentionOptions<'_>,
    ) -> Result<Gradients<Self>>;
    fn choose_heads(
        maps: &[FeatureMap],
        inputs: Qkv<'_, Self>,
        options: &AttentionOptions<'_>,
        tolerance: f64,
    ) -> Result<Vec<Choice>>;
    fn advance(state: &mut DecodeState<Self>, inputs: Qkv<'_, Self>) -> Result<Vec<Self>>
    where
        Self: crate::Scalar;
}

/// Entry points for sets of vectors.
pub trait RowsEntry: Sized {
    fn kernel_product(
        map: &FeatureMap,
        x: Rows<'_, Self>,
        y: Rows<'_, Self>,
        c: Rows<'_, Self>,
    ) -> Result<LogScaled<Self>>;
    fn kernel_product_backward(
        map: &FeatureMap,
        x: Rows<'_, Self>,
        y: Rows<'_, Self>,
        c: Rows<'_, Self>,
        gradient: Rows<'_, Self>,
    ) -> Result<ProductGradients<Self>>;
    fn add_keys(
        sums: &mut KeySums,
        map: &FeatureMap,
        keys: Rows<'_, Self>,
        values: Rows<'_, Self>,
    ) -> Result<()>;
    fn apply_sums(
        sums: &KeySums,
        map: &FeatureMap,
        queries: Rows<'_, Self>,
    ) -> Result<LogScaled<Self>>;
}

macro_rules! tensor_entry {
    ($($number:ty),*) => {$(
        impl TensorEntry for $number {
            fn attention_into(
                method: Method<'_>,
                inputs: Qkv<'_, Self>,
                options: &AttentionOptions<'_>,
                out: &mut [Self],
            ) -> Result<()> {
                attention::run_into(method, inputs, options, out)
            }
            fn attention_backward(
                method: Method<'_>,
                inputs: Qkv<'_, Self>,
                out: Tensor<'_, Self>,
                out_gradient: Tensor<'_, Self>,
                options: &AttentionOptions<'_>,
            ) -> Result<Gradients<Self>> {
                attention::run_backward(method, inputs, out, out_gradient, options)
            }
            fn choose_heads(
                maps: &[FeatureMap],
                inputs: Qkv<'_, Self>,
                options: &AttentionOptions<'_>,
                tolerance: f64,
            ) -> Result<Vec<Choice>> {
                attention::choose_all(maps, inputs, options, tolerance)
            }
            fn advance(
                state: &mut DecodeState<Self>,
                inputs: Qkv<'_, Self>,
            ) -> Result<Vec<Self>> {
                decode::advance(state, inputs)
            }
        }
    )*};
}
tensor_entry!(f32, f64, half::f16, half::bf16);

macro_rules! rows_entry {
    ($($number:ty),*) => {$(
        impl RowsEntry for $number {
            fn kernel_product(
                map: &FeatureMap,
                x: Rows<'_, Self>,
                y: Rows<'_, Self>,
                c: Rows<'_, Self>,
            ) -> Result<LogScaled<Self>> {
                mode::product(map, x, y, c)
            }
            fn kernel_product_backward(
                map: &FeatureMap,
                x: Rows<'_, Self>,
                y: Rows<'_, Self>,
                c: Rows<'_, Self>,
                gradient: Rows<'_, Self>,
            ) -> Result<ProductGradients<Self>> {
                mode::product_backward(map, x, y, c, gradient)
            }
            fn add_keys(
                sums: &mut KeySums,
                map: &FeatureMap,
                keys: Rows<'_, Self>,
                values: Rows<'_, Self>,
            ) -> Result<()> {
                mode::add_keys(sums, map, keys, values)
            }
            fn apply_sums(
                sums: &KeySums,
                map: &FeatureMap,
                queries: Rows<'_, Self>,
            ) -> Result<LogScaled<Self>> {
                mode::apply_sums(sums, map, queries)
            }
        }
    )*};
}
rows_entry!(f32, f64);
