//! How good random features are on given queries and keys.
//!
//! For every head and family, an inspection says what the closed forms predict before any feature
//! is computed, what the computed features achieve, and what to do about it.
//!
//! - Parameters are always fitted on all rows.
//! - The variance of a family is the mean over **all** pairs if there are at most [`MOST_PAIRS`] of
//!   them, otherwise over a sample of the rows drawn with the seed.
//! - The predicted errors of row sums and outputs use at most 48 queries and 512 keys, the measured
//!   kernel error at most 256 of each, the measured output error at most 2048 queries with all
//!   keys. The seed decides all samples.
//! - Measured errors are means over [`DRAWS`] draws of block-orthogonal features. The closed forms
//!   are for independent features, so they are conservative.
//!
//! [`inspect_maps`] measures existing maps, learned ones in particular, on sequences.
//!
//! It takes arrays and returns a report; this crate reads and writes no files.

mod advice;
mod closed;
mod error;
mod head;
mod json;
mod maps;
mod measured;
mod options;
mod report;
mod sampling;
mod text;

pub use error::{Error, Result};
pub use maps::{MapInspection, MapOptions, MapOrigin, MapReport, head_attention, inspect_maps};
pub use options::{InspectOptions, compared};
pub use report::{FamilyReport, HeadInspection, Inspection, Measured, PairSample, Recommendation};

use favor::{Family, Kernel};
use favor_io::HeadArrays;
use favor_io::numbers::figures;
use favor_io::progress::{Counter, Listener};
use head::PreparedHead;
use rayon::prelude::*;

/// Up to this many pairs of a query and a key, the variance is a mean over all of them.
pub const MOST_PAIRS: usize = 1 << 22;

/// Measured errors are means over this many draws of the features.
pub const DRAWS: u64 = 3;

/// Inspects every head.
///
/// ```
/// use favor::Kernel;
/// use favor_inspect::{InspectOptions, inspect};
/// use favor_io::{HeadArrays, Stack, progress};
/// let rows = || Stack::new(vec![0.1, 0.2, -0.3, 0.1, 0.2, -0.2], &[3, 2]);
/// let arrays = HeadArrays::new(rows()?, rows()?, None)?;
/// let options = InspectOptions::new(Kernel::softmax()).features(vec![16]);
/// let found = inspect(&arrays, &options, &progress::silent)?;
/// assert_eq!(found.heads[0].families.len(), favor_inspect::compared().len());
/// println!("{}", found.to_text());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect(
    arrays: &HeadArrays,
    options: &InspectOptions,
    listener: &Listener<'_>,
) -> Result<Inspection> {
    options.check()?;
    let count = arrays.heads().len();
    let counter = Counter::new(listener, count * (1 + options.families.len()));
    let heads: Result<Vec<PreparedHead<'_>>> = arrays
        .heads()
        .par_iter()
        .enumerate()
        .map(|(index, input)| {
            let head = PreparedHead::new(index, input, options);
            counter.step("exact");
            head
        })
        .collect();
    let heads = heads?;
    let tasks: Vec<(usize, Family)> =
        (0..count).flat_map(|h| options.families.iter().map(move |&family| (h, family))).collect();
    let families: Result<Vec<FamilyReport>> = tasks
        .into_par_iter()
        .map(|(h, family)| {
            let report = heads[h].family(family, options);
            counter.step(family.name());
            report
        })
        .collect();
    let mut families = families?.into_iter();
    let reports = heads
        .iter()
        .map(|head| head.report(families.by_ref().take(options.families.len()).collect(), options))
        .collect();
    let has_values = arrays.has_values();
    Ok(Inspection {
        sources: arrays.sources().map(str::to_owned),
        has_values,
        scaling: scaling(options.kernel, arrays.dim()),
        hint: hint(options.kernel, has_values),
        features: options.features.clone(),
        has_head_axis: arrays.has_head_axis(),
        heads: reports,
    })
}

/// The factor of queries and keys, in words.
fn scaling(kernel: Kernel, dim: usize) -> String {
    let scale = kernel.scale();
    if scale == 1.0 {
        return "queries and keys as given (scale 1)".to_owned();
    }
    format!(
        "queries and keys times {} (attention has d^(-1/4) = {} for d = {dim})",
        figures(scale),
        figures(Kernel::attention(dim).scale())
    )
}

/// A hint for users who passed values but no scale.
fn hint(kernel: Kernel, has_values: bool) -> Option<String> {
    (has_values && kernel.scale() == 1.0).then(|| {
        "there are values but no scale: the attention of a model multiplies queries and keys by \
         d^(-1/4)"
            .to_owned()
    })
}
