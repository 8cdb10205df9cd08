//! The native half of the Python package `favor_sharp`: arrays in, one call of the library, arrays
//! out. What it offers is described in `python/favor_sharp/_native.pyi`.

mod arguments;
mod arrays;
mod attention;
mod backward;
mod choices;
mod decode;
mod errors;
mod inspection;
mod map;
mod moments;
mod product;
mod run;
mod sums;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::attention::{attention, exact_attention};
    #[pymodule_export]
    use crate::backward::{attention_backward, exact_attention_backward};
    #[pymodule_export]
    use crate::choices::{Choice, auto_attention, choose, predicted_error};
    #[pymodule_export]
    use crate::decode::DecodeState;
    #[pymodule_export]
    use crate::inspection::inspect;
    #[pymodule_export]
    use crate::map::{FeatureMap, fit_maps};
    #[pymodule_export]
    use crate::moments::Moments;
    #[pymodule_export]
    use crate::product::{exact_kernel_product, kernel_product, log_kernel};
    #[pymodule_export]
    use crate::run::_panic;
    #[pymodule_export]
    use crate::sums::KeySums;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
