//! The pass of a head: products of the features with one another and with the target, by folds.

use super::{Arguments, Batch, State, missing_target};
use crate::Result;
use crate::wire::Kind;
use favor::learn::{DEFAULT_FOLDS, Design, GramSums, Known, Outcome, Scaling};
use favor::{Float, Rows};
use serde::{Deserialize, Serialize};

/// The features, and what is predicted from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GramJob {
    pub(crate) design: Design,
    /// The name of the target.
    pub(crate) name: String,
    pub(crate) target: GramTarget,
    /// Whether bounded features are multiplied in 64 bits too.
    pub(crate) double: bool,
}

/// Products of so many columns and rows take seconds in 64 bits: where there are fewer, nothing is gained
/// by 32, whose rounding a small penalty would feel.
const FEW: f64 = (1_u64 << 36) as f64;

impl GramJob {
    pub(crate) fn new(design: &Design, name: String, target: GramTarget, rows: u64) -> Self {
        let double = rows as f64 * (design.width() as f64).powi(2) <= FEW;
        Self { design: design.clone(), name, target, double }
    }
}

/// What a target is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum GramTarget {
    /// One of these labels.
    Labels(Vec<String>),
    /// A number, and how it is scaled in the sums.
    Number(Scaling),
}

impl GramTarget {
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Labels(labels) => Outcome::Classes(labels.len()),
            Self::Number(scaling) => Outcome::Numbers(vec![*scaling]),
        }
    }
}

/// The sums, and for each label its rows of positive weight and their weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GramState {
    pub(crate) sums: Option<GramSums>,
    pub(crate) classes: Vec<(u64, f64)>,
}

impl State for GramState {
    const KIND: Kind = Kind::GramState;
    type Job = GramJob;

    fn new(_: &Arguments, job: &GramJob) -> Self {
        let classes = match &job.target {
            GramTarget::Labels(labels) => labels.len(),
            GramTarget::Number(_) => 0,
        };
        Self { sums: None, classes: vec![(0, 0.0); classes] }
    }

    fn update(&mut self, arguments: &Arguments, job: &GramJob, batch: &Batch<'_>) -> Result<()> {
        if job.double {
            self.add::<f64>(arguments, job, batch)
        } else {
            self.add::<f32>(arguments, job, batch)
        }
    }

    fn merge(&mut self, _: &Arguments, _: &GramJob, other: Self) -> Result<()> {
        match (&mut self.sums, other.sums) {
            (Some(own), Some(new)) => own.merge(&new)?,
            (own @ None, new) => *own = new,
            (Some(_), None) => {}
        }
        let classes = self.classes.iter_mut().zip(other.classes);
        classes.for_each(|(own, new)| *own = (own.0 + new.0, own.1 + new.1));
        Ok(())
    }

    fn size(&self) -> usize {
        self.sums.as_ref().map_or(0, GramSums::size_in_bytes)
    }
}

impl GramState {
    /// Adds the rows of a batch, in a number format.
    fn add<T: Float>(
        &mut self,
        arguments: &Arguments,
        job: &GramJob,
        batch: &Batch<'_>,
    ) -> Result<()> {
        let number = matches!(job.target, GramTarget::Number(_)).then_some(job.name.as_str());
        let encoded = arguments.encode::<T>(batch, number)?;
        let kept = encoded.kept.as_deref();
        let weights = arguments.weights(batch, kept)?;
        let mut folds = arguments.folds(batch)?;
        if let Some(kept) = kept {
            folds = kept.iter().map(|&i| folds[i]).collect();
        }
        let (classes, values);
        let known = match &job.target {
            GramTarget::Labels(labels) => {
                let found: Option<Vec<usize>> = batch.classes(labels, kept)?.into_iter().collect();
                classes = found.ok_or_else(|| missing_target(&job.name, "null or a new label"))?;
                for (i, &class) in classes.iter().enumerate() {
                    let weight = weights.as_ref().map_or(1.0, |w| w[i]);
                    if weight > 0.0 {
                        self.classes[class].0 += 1;
                        self.classes[class].1 += weight;
                    }
                }
                Known::Classes(&classes)
            }
            GramTarget::Number(_) => {
                values = batch.numbers(&job.name, kept)?;
                Known::Numbers(Rows::new(&values, values.len(), 1)?)
            }
        };
        let sums = match &mut self.sums {
            Some(sums) => sums,
            empty => empty.insert(GramSums::new(&job.design, job.target.outcome(), DEFAULT_FOLDS)?),
        };
        let rows = encoded.rows.view();
        Ok(sums.add(&job.design, rows, known, weights.as_deref(), Some(&folds))?)
    }
}
