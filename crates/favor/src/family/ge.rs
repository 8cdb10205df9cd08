//! GE (FAVOR++): `G = I`, `a = a*(φ)·1` with `φ = mean ‖x+y‖² / d`.

use super::pos;
use crate::{Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    pos::fit(queries, keys)?.with_best_scalar(queries, keys)
}
