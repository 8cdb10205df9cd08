//! A matrix and a bias as one differentiable operation on the CPU: the bias is where the product begins,
//! and no result is cleared, copied or transposed on the way.

use super::dense::{affine, matrix, product};
use super::is_flex;
use super::operation::{HostOperation, Input, Output, apply};
use burn::nn::Linear;
use burn::tensor::{DType, Tensor};
use faer::MatRef;
use pulp::Arch;
use rayon::prelude::*;

/// Rows whose gradients are summed at a time: fixed, so that the number of threads does not show.
const ROWS: usize = 64;

/// A matrix times every vector of a batch, as one product. With the batch apart, the gradient of the
/// matrix would be made once for each of its members and then summed.
pub fn rowwise(matrix: &Linear, x: Tensor<3>) -> Tensor<3> {
    let [batch, length, width] = x.dims();
    if let Some(bias) = &matrix.bias
        && x.dtype() == DType::F32
        && is_flex(&x.device())
        && let (Ok(x), Ok(weight), Ok(bias)) =
            (Input::new(x.clone()), Input::new(matrix.weight.val()), Input::new(bias.val()))
    {
        return apply(Affine { batch, length }, [x, weight, bias]);
    }
    let out = matrix.forward(x.reshape([batch * length, width]));
    let width = out.dims()[1];
    out.reshape([batch, length, width])
}

/// The operation on vectors, matrix and bias.
#[derive(Debug)]
struct Affine {
    batch: usize,
    length: usize,
}

impl Affine {
    /// The numbers with one row per vector of the batch.
    fn rows<'a>(&self, numbers: &'a [f32]) -> MatRef<'a, f32> {
        matrix(numbers, numbers.len() / (self.batch * self.length).max(1))
    }
}

impl HostOperation<3, 3> for Affine {
    const INPUTS: bool = true;

    fn forward(&self, [x, weight, bias]: [&[f32]; 3], _: bool) -> Output<3> {
        let width = bias.len();
        let mut values = vec![0.0; self.batch * self.length * width];
        affine(&mut values, self.rows(x), matrix(weight, width), bias)
            .expect("shapes of one layer");
        Output { values, shape: [self.batch, self.length, width], kept: vec![] }
    }

    fn backward(
        &self,
        [x, weight, bias]: [&[f32]; 3],
        _: Vec<f32>,
        gradient: &[f32],
    ) -> [Vec<f32>; 3] {
        let width = bias.len();
        let (rows, weights) = (self.rows(gradient), matrix(weight, width));
        let (mut to_x, mut to_weight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
        product(&mut to_x, rows, weights.transpose()).expect("shapes of one layer");
        product(&mut to_weight, self.rows(x).transpose(), rows).expect("shapes of one layer");
        [to_x, to_weight, column_sums(gradient, width)]
    }
}

/// The sum of each column of rows of this width.
fn column_sums(numbers: &[f32], width: usize) -> Vec<f32> {
    let sums: Vec<Vec<f32>> = numbers
        .par_chunks(ROWS * width)
        .map(|rows| {
            let mut sums = vec![0.0; width];
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    for row in rows.chunks(width) {
                        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                    }
                },
            );
            sums
        })
        .collect();
    (0..width).map(|c| sums.iter().map(|s| f64::from(s[c])).sum::<f64>() as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
    use burn::module::Param;
    use burn::tensor::{Device, TensorData};

    /// burn's own product in 64 bits on the same numbers, and its gradients. A sum of `n` numbers in 32
    /// bits is off by at most `n` roundings of the sum of absolute values.
    #[test]
    fn values_and_gradients_are_those_of_burn() {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 3], seed| normal(shape, 0.0, 1.0, seed);
        let (x, weights) = (random([70, 3, 24], 1), random([3, 70, 40], 2));
        let (weight, bias) = (random([1, 24, 40], 3), random([1, 1, 40], 4));
        let run = |kind: DType| -> Vec<Vec<f64>> {
            let put = |data: &TensorData| Tensor::<3>::from_data(data.clone(), (&device, kind));
            let x = put(&x).require_grad();
            let matrix = Linear {
                weight: Param::from_tensor(put(&weight).reshape([24, 40]).detach().require_grad()),
                bias: Some(Param::from_tensor(put(&bias).reshape([40]).detach().require_grad())),
            };
            // Strides that are not those of a plain tensor must be read right too.
            let out = rowwise(&matrix, x.clone().swap_dims(0, 1));
            let found = (out.clone() * put(&weights)).sum().backward();
            let all = [
                out.into_data(),
                x.grad(&found).unwrap().into_data(),
                matrix.weight.val().grad(&found).unwrap().into_data(),
                matrix.bias.as_ref().unwrap().val().grad(&found).unwrap().into_data(),
            ];
            all.iter().map(|data| data.iter::<f64>().collect()).collect()
        };
        // How many numbers are summed; all are of a deviation of about one.
        for ((ours, burns), terms) in
            run(DType::F32).iter().zip(run(DType::F64)).zip([25.0, 40.0, 210.0, 210.0])
        {
            assert_eq!(ours.len(), burns.len());
            for (a, b) in ours.iter().zip(&burns) {
                let bound = terms * terms * f64::from(f32::EPSILON);
                assert!((a - b).abs() <= bound, "{a} {b}");
            }
        }
    }
}
