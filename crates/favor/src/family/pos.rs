//! Pos (FAVOR+) and its hyperbolic form: nothing to fit, `a = 0`, `G = I`.

use super::with_transform;
use crate::{Matrix, Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, _: &Moments) -> Result<Parameters> {
    let dim = queries.dim();
    let identity = Matrix::identity(dim);
    with_transform(identity.clone(), identity, vec![0.0; dim], vec![0.0; dim])
}
