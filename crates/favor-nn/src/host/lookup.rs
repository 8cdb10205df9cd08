//! Rows of a table as one differentiable operation on the CPU. The gradient of a table is as large as the
//! table, so it is cleared once and not copied.

use super::is_flex;
use super::operation::{HostOperation, Input, Output, apply};
use burn::nn::Embedding;
use burn::tensor::{DType, Int, Tensor, TensorData};

/// The vectors of these places of a table, `[batch, length, width]`. Every place must be in the table.
pub fn lookup(table: &Embedding, places: Vec<i64>, shape: [usize; 2]) -> Tensor<3> {
    let weight = table.weight.val();
    let device = weight.device();
    if weight.dtype() == DType::F32
        && is_flex(&device)
        && let Ok(input) = Input::new(weight.clone())
    {
        let [rows, width] = weight.dims();
        return apply(Lookup { places, shape: [shape[0], shape[1], width], rows }, [input]);
    }
    table.forward(Tensor::<2, Int>::from_data(TensorData::new(places, shape), &device))
}

#[derive(Debug)]
struct Lookup {
    places: Vec<i64>,
    shape: [usize; 3],
    rows: usize,
}

impl HostOperation<1, 3> for Lookup {
    const INPUTS: bool = false;

    fn forward(&self, [table]: [&[f32]; 1], _: bool) -> Output<3> {
        let width = self.shape[2];
        let mut values = Vec::with_capacity(self.shape.iter().product());
        for &place in &self.places {
            values.extend_from_slice(&table[place as usize * width..][..width]);
        }
        Output { values, shape: self.shape, kept: vec![] }
    }

    fn backward(&self, _: [&[f32]; 1], _: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
        let width = self.shape[2];
        let mut out = vec![0.0; self.rows * width];
        for (&place, gradient) in self.places.iter().zip(gradient.chunks(width)) {
            let row = &mut out[place as usize * width..][..width];
            row.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
        }
        [out]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
    use burn::module::Param;
    use burn::tensor::Device;

    /// burn's own operation: the values to the last bit, the gradients to the rounding of three sums.
    #[test]
    fn values_and_gradients_are_those_of_burn() {
        let device = Device::flex().autodiff();
        let weight = Tensor::<2>::from_data(normal([9, 5], 0.0, 1.0, 1), &device);
        let table = Embedding { weight: Param::from_tensor(weight.require_grad()) };
        let places: Vec<i64> = vec![0, 3, 8, 3, 3, 1];
        let weights = Tensor::<3>::from_data(normal([2, 3, 5], 0.0, 1.0, 2), &device);
        let ids = Tensor::<2, Int>::from_data(TensorData::new(places.clone(), [2, 3]), &device);
        let both = [lookup(&table, places, [2, 3]), table.forward(ids)].map(|out| {
            let found = (out.clone() * weights.clone()).sum().backward();
            let gradient = table.weight.val().grad(&found).unwrap();
            (out.into_data(), gradient.into_data())
        });
        let [(ours, our_gradient), (burns, burn_gradient)] = both;
        assert_eq!(ours, burns);
        for (a, b) in our_gradient.iter::<f64>().zip(burn_gradient.iter::<f64>()) {
            assert!((a - b).abs() <= 3.0 * f64::from(f32::EPSILON) * 4.0, "{a} {b}");
        }
    }
}
