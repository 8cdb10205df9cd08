//! The native half of the Python package `favor_sharp`: arrays in, one call of the library, arrays
//! out. What it offers is described in `python/favor_sharp/_native.pyi`.

mod adapt;
mod arguments;
mod arrays;
mod attention;
mod choices;
mod decode;
mod errors;
mod heads;
mod inspection;
mod learning;
mod map;
mod moments;
mod number;
mod owned;
mod product;
mod readout;
mod run;
mod sums;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::adapt::{AdaptiveMaps, fit_maps};
    #[pymodule_export]
    use crate::attention::{attention, attention_backward, check_attention};
    #[pymodule_export]
    use crate::choices::{Choice, break_even, choose_heads, exact_is_no_slower, predicted_error};
    #[pymodule_export]
    use crate::decode::DecodeState;
    #[pymodule_export]
    use crate::heads::HeadModel;
    #[pymodule_export]
    use crate::inspection::{inspect, inspect_maps};
    #[pymodule_export]
    use crate::learning::{HeadReport, LearnedHead, learn_maps};
    #[pymodule_export]
    use crate::map::{
        FeatureMap, maps_from_bytes, maps_to_bytes, note_from_bytes, write_atomically,
    };
    #[pymodule_export]
    use crate::moments::Moments;
    #[pymodule_export]
    use crate::product::{exact_kernel_product, kernel_product, log_kernel};
    #[pymodule_export]
    use crate::readout::Readout;
    #[pymodule_export]
    use crate::run::_panic;
    #[pymodule_export]
    use crate::sums::KeySums;
    use favor::learn::{HeadKind, KernelShape};
    use favor::learned::LearnOptions;
    use favor::{Coupling, Family, MapPolicy};
    use pyo3::prelude::*;
    use pyo3::types::{IntoPyDict, PyTuple};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let families = Family::ALL.map(|family| (family.name(), family.is_positive()));
        module.add("FAMILIES", PyTuple::new(py, families)?)?;
        let titles: Vec<_> = Family::ALL.map(|f| (f.name(), f.title())).into();
        module.add("FAMILY_TITLES", titles.into_py_dict(py)?)?;
        module.add("COUPLINGS", PyTuple::new(py, Coupling::ALL.map(Coupling::name))?)?;
        let shapes = KernelShape::ALL.map(KernelShape::name);
        module.add("KERNEL_SHAPES", PyTuple::new(py, shapes)?)?;
        module.add("HEADS", PyTuple::new(py, HeadKind::ALL.map(HeadKind::name))?)?;
        module.add("LEARN_STEPS", LearnOptions::STEPS)?;
        module.add("REDRAW", MapPolicy::REDRAW)?;
        module.add("KEEP", MapPolicy::KEEP)?;
        module.add("BFLOAT16", crate::number::bfloat16(py)?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
