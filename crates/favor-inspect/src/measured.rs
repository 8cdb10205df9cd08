//! The measured part: features are drawn and compared with the exact kernel.

use crate::head::PreparedHead;
use crate::report::Measured;
use crate::{DRAWS, InspectOptions};
use favor::diagnose::median;
use favor::diagnose::{effective_sample_sizes, kernel_error, relative_error};
use favor::reference::{Mask, feature_attention};
use favor::{Error, Family, FeatureMap, FeatureSpec};

/// The means over [`DRAWS`] draws of `features` features.
pub(super) fn measure(
    head: &PreparedHead<'_>,
    family: Family,
    features: usize,
    predicted: Option<f64>,
    options: &InspectOptions,
) -> favor::Result<Measured> {
    let (mut kernel, mut attention, mut effective) = (Mean::new(), Mean::new(), Mean::new());
    for draw in 0..DRAWS {
        let spec = FeatureSpec::new(family, features).kernel(head.kernel);
        let spec = spec.seed(options.seed.wrapping_add(draw));
        let map = spec.fit(&head.moments.0, &head.moments.1)?;
        let (x, y) = (&head.samples.kernel.0, &head.samples.kernel.1);
        kernel.add(finite(kernel_error(&map, x.view(), y.view()))?);
        attention.add(finite(output_error(head, &map))?.flatten());
        if family.is_positive() {
            let keys = head.input.keys.view();
            let sizes = finite(effective_sample_sizes(&map, x.view(), keys))?;
            effective.add(sizes.map(median));
        }
    }
    Ok(Measured {
        features,
        kernel_error: kernel.value(),
        attention_error: attention.value(),
        predicted_attention_error: predicted,
        effective_sample_size: effective.value(),
    })
}

/// The relative error of the attention output, if there are values.
fn output_error(head: &PreparedHead<'_>, map: &FeatureMap) -> favor::Result<Option<f64>> {
    let (Some(exact), Some(values)) = (&head.exact, &head.input.values) else {
        return Ok(None);
    };
    let keys = head.input.keys.view();
    let queries = head.samples.output.view();
    let output = feature_attention(map, queries, keys, values.view(), Mask::none())?;
    Ok(Some(relative_error(&output, exact)))
}

/// A measurement that overflows has no figure but does not stop the inspection: trigonometric
/// features can cancel to any size.
fn finite<T>(result: favor::Result<T>) -> favor::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Overflow { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A mean that is undefined if any of its terms is.
struct Mean {
    sum: Option<f64>,
    count: f64,
}

impl Mean {
    fn new() -> Self {
        Self { sum: Some(0.0), count: 0.0 }
    }

    fn add(&mut self, value: Option<f64>) {
        self.sum = self.sum.zip(value).map(|(a, b)| a + b);
        self.count += 1.0;
    }

    fn value(&self) -> Option<f64> {
        self.sum.map(|s| s / self.count).filter(|v| v.is_finite())
    }
}
