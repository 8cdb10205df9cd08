//! The output projection of each layer in closed form: least squares on what the converted layer really gives,
//! towards what would make the layer's output that of the exact model.

use super::learn::Passage;
use crate::bert::Bert;
use crate::{Error, Result};
use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use faer::prelude::*;
use faer::{Mat, Side};

/// How strongly the weights are held where they were, relative to the mean square of their inputs.
const RIDGE: f64 = 1e-2;

/// Solves for the output projections, from the first layer to the last, each on the states that the layers
/// before give it.
pub(super) fn repair(student: &mut Bert, teacher: &Bert, passage: &Passage<'_>) -> Result<()> {
    let mut own: Vec<Tensor<3>> = passage.states().to_vec();
    let mut exact = own.clone();
    for l in 0..teacher.encoder.layers.len() {
        let converted = student.encoder.layers[l].attention.given().is_some();
        if converted {
            let equations = equations(student, teacher, passage, (l, &own, &exact))?;
            let output = &mut student.encoder.layers[l].attention.output;
            let device = output.weight.device();
            let [rows, columns] = output.weight.dims();
            let (weight, bias) = equations.solve()?;
            let weight = Tensor::<2>::from_data(TensorData::new(weight, [rows, columns]), &device);
            let bias = Tensor::<1>::from_data(TensorData::new(bias, [columns]), &device);
            let tracked = device.is_autodiff();
            output.weight =
                Param::from_tensor(if tracked { weight.require_grad() } else { weight });
            output.bias =
                Some(Param::from_tensor(if tracked { bias.require_grad() } else { bias }));
        }
        let plain = burn::module::Module::valid(student);
        for (i, batch) in passage.batches().iter().enumerate() {
            let mask = batch.mask();
            own[i] = plain.encoder.layers[l].forward(own[i].clone(), mask.as_ref())?;
            exact[i] = teacher.encoder.layers[l].forward(exact[i].clone(), mask.as_ref())?;
        }
    }
    Ok(())
}

/// `YᵀY` and `YᵀT` of all tokens, with a column of ones for the bias, and where the weights are now.
struct Equations {
    left: Mat<f64>,
    right: Mat<f64>,
    start: Mat<f64>,
    tokens: usize,
}

fn equations(
    student: &Bert,
    teacher: &Bert,
    passage: &Passage<'_>,
    (layer, own, exact): (usize, &[Tensor<3>], &[Tensor<3>]),
) -> Result<Equations> {
    let student = burn::module::Module::valid(student);
    let (ours, theirs) =
        (&student.encoder.layers[layer].attention, &teacher.encoder.layers[layer].attention);
    let [rows, columns] = ours.output.weight.dims();
    let weight = values(ours.output.weight.val())?;
    let bias = match &ours.output.bias {
        Some(bias) => values(bias.val())?,
        None => vec![0.0; columns],
    };
    let start = Mat::from_fn(rows + 1, columns, |i, j| {
        f64::from(if i < rows { weight[i * columns + j] } else { bias[j] })
    });
    let (mut left, mut right) = (Mat::zeros(rows + 1, rows + 1), Mat::zeros(rows + 1, columns));
    let mut tokens = 0;
    for (i, batch) in passage.batches().iter().enumerate() {
        let mask = batch.mask();
        let (x, wanted) = (own[i].clone(), exact[i].clone());
        let mixed = ours.mix(ours.heads(x.clone(), x.clone(), x.clone()), mask.as_ref(), false)?;
        // What is added to the layer's own input should give what the exact layer adds to its input.
        let target = theirs.forward(wanted.clone(), mask.as_ref(), false)? + wanted - x;
        let (mixed, target) = (values(mixed)?, values(target)?);
        let places: Vec<usize> =
            batch.visible().iter().enumerate().filter_map(|(p, seen)| seen.then_some(p)).collect();
        let y = Mat::from_fn(places.len(), rows + 1, |p, c| {
            if c < rows { f64::from(mixed[places[p] * rows + c]) } else { 1.0 }
        });
        let t =
            Mat::from_fn(places.len(), columns, |p, c| f64::from(target[places[p] * columns + c]));
        left += y.transpose() * &y;
        right += y.transpose() * &t;
        tokens += places.len();
    }
    Ok(Equations { left, right, start, tokens })
}

impl Equations {
    /// Weights, one row per input, and bias.
    fn solve(self) -> Result<(Vec<f32>, Vec<f32>)> {
        let Self { mut left, mut right, start, tokens } = self;
        let (rows, columns) = (start.nrows() - 1, start.ncols());
        let mean = (0..rows).map(|i| left[(i, i)]).sum::<f64>() / rows as f64;
        let ridge = RIDGE * mean.max(f64::MIN_POSITIVE * tokens as f64);
        for i in 0..=rows {
            left[(i, i)] += ridge;
            for j in 0..columns {
                right[(i, j)] += ridge * start[(i, j)];
            }
        }
        let failed = |_| Error::invalid("repair", "the outputs of the heads cannot be solved for");
        let found = left.llt(Side::Lower).map_err(failed)?.solve(&right);
        let weight = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        let weight = weight.map(|(i, j)| found[(i, j)] as f32).collect();
        Ok((weight, (0..columns).map(|j| found[(rows, j)] as f32).collect()))
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    let unread = |e| Error::invalid("model", format!("its states cannot be read: {e:?}"));
    tensor.try_into_vec_as::<f32>().map_err(unread)
}
