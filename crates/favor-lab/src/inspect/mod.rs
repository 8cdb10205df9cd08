//! How well random features serve on given queries and keys.
//!
//! For every head and every family: what the closed forms promise before a single feature is
//! computed, what the features give when they are computed, and what to do about it.
//!
//! - Parameters are always fitted on all rows.
//! - The variance of a family is the mean over **all** pairs when there are at most
//!   [`MOST_PAIRS`] of them, otherwise over a sample of the rows that the seed decides.
//! - The predicted errors of row sums and outputs take at most 48 queries and 512 keys, the
//!   measured kernel error at most 256 of each, the measured output error at most 2048 queries with
//!   all keys. All samples are decided by the seed.
//! - Measured errors are means over [`DRAWS`] draws of block-orthogonal features. The closed forms
//!   are those of independent features, so they err on the cautious side.

mod advice;
mod closed;
mod head;
mod json;
mod measured;
mod plot;
mod report;
mod request;
mod sampling;
mod text;

pub use report::{FamilyReport, HeadReport, Inspection, Measured, PairSample, Recommendation};
pub use request::{InputScale, Request};

use crate::Result;
use favor_io::arrays::Heads;
use favor_io::progress::{Counter, Listener};
use head::Head;
use rayon::prelude::*;
use request::Inputs;

/// Up to this many pairs of a query and a key the variance is a mean over all of them.
pub const MOST_PAIRS: usize = 1 << 22;

/// Measured errors are means over this many draws of the features.
pub const DRAWS: u64 = 3;

/// The most features that can be asked for.
pub const MOST_FEATURES: usize = 1 << 16;

/// Reads the files of a request and inspects every head.
///
/// ```
/// use favor_io::progress;
/// use favor_lab::inspect;
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("x.csv");
/// std::fs::write(&file, "0.1,0.2\n-0.3,0.1\n0.2,-0.2\n")?;
/// let name = file.display().to_string();
/// let request = inspect::Request { features: vec![16], ..inspect::Request::new(&name, &name) };
/// let found = inspect::inspect(&request, &progress::silent)?;
/// assert_eq!(found.heads[0].families.len(), 10);
/// println!("{}", found.to_text());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect(request: &Request, listener: &Listener<'_>) -> Result<Inspection> {
    request.check()?;
    inspect_inputs(request, &request.read()?, listener)
}

/// Inspects heads that are in memory. The request's files are not read; their names stand in the
/// report and in messages.
///
/// ```
/// use favor::Matrix;
/// use favor_io::{arrays::Heads, progress};
/// use favor_lab::inspect;
/// let x = Matrix::from_fn(3, 2, |i, l| 0.1 * (i + l) as f64);
/// let side = || Heads { heads: vec![x.clone()], three_dimensional: false };
/// let request = inspect::Request { features: vec![16], ..inspect::Request::new("x", "y") };
/// let found = inspect::inspect_arrays(&request, side(), side(), None, &progress::silent)?;
/// assert_eq!(found.heads.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect_arrays(
    request: &Request,
    queries: Heads,
    keys: Heads,
    values: Option<Heads>,
    listener: &Listener<'_>,
) -> Result<Inspection> {
    request.check()?;
    inspect_inputs(request, &request.put_together(queries, keys, values)?, listener)
}

fn inspect_inputs(
    request: &Request,
    inputs: &Inputs,
    listener: &Listener<'_>,
) -> Result<Inspection> {
    let counter = Counter::new(listener, inputs.heads.len() * (1 + request.families.len()));
    let heads: Result<Vec<Head<'_>>> = inputs
        .heads
        .par_iter()
        .enumerate()
        .map(|(index, input)| {
            let head = Head::new(index, input, request);
            counter.step("exact");
            head
        })
        .collect();
    let heads = heads?;
    let tasks: Vec<(usize, favor::Family)> = (0..heads.len())
        .flat_map(|h| request.families.iter().map(move |&family| (h, family)))
        .collect();
    let families: Result<Vec<FamilyReport>> = tasks
        .into_par_iter()
        .map(|(h, family)| {
            let report = heads[h].family(family, request);
            counter.step(family.name());
            report
        })
        .collect();
    let mut families = families?.into_iter();
    let reports = heads
        .iter()
        .map(|head| head.report(families.by_ref().take(request.families.len()).collect(), request))
        .collect();
    Ok(Inspection {
        queries: request.queries.clone(),
        keys: request.keys.clone(),
        values: request.values.clone(),
        scaling: request.scale.describe(inputs.dim()),
        hint: request.hint(),
        features: request.features.clone(),
        three_dimensional: inputs.three_dimensional,
        heads: reports,
    })
}
