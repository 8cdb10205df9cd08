//! The choice of σ: the paper's grid, scored on rows that the sums have not seen.

use crate::encode::Encoder;
use crate::model::standardised_rows;
use crate::states::Sample;
use crate::task::{Prior, Rule, Task};
use crate::{Error, Result};
use favor::{FeatureMap, FeatureSpec, Kernel, KeySums, Matrix, Moments};
use serde::{Deserialize, Serialize};

/// The fewest rows that a choice is made on.
const LEAST_ROWS: usize = 8;

/// How σ is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Search {
    /// Every fourth row of the sample is held out.
    #[default]
    Validation,
    /// Every part of the sample is held out once.
    CrossValidation {
        /// How many parts.
        folds: usize,
    },
}

/// One value of σ and what it was worth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The factor of the vectors.
    pub sigma: f64,
    /// The score of the features on the rows held out.
    pub score: f64,
    /// The score of the exact kernel there.
    pub exact: f64,
}

/// The scores of all values of σ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// How they were found.
    pub search: Search,
    /// Rows of the sample.
    pub rows: usize,
    /// In ascending order of σ.
    pub trials: Vec<Trial>,
}

impl Curve {
    /// The trial with the highest score; of several the one with the lowest σ, whose features are
    /// the most reliable.
    pub fn best(&self) -> Option<&Trial> {
        self.trials.iter().reduce(|best, t| if t.score > best.score { t } else { best })
    }
}

/// The paper's ten values, equally far apart in logarithm from 10⁻² to 10².
pub fn grid() -> Vec<f64> {
    (0..10).map(|k| 10_f64.powf(-2.0 + 4.0 * f64::from(k) / 9.0)).collect()
}

/// What a sample is scored with.
pub(crate) struct Scene<'a> {
    pub(crate) task: Task,
    pub(crate) prior: &'a Prior,
    /// Without its kernel's scale.
    pub(crate) spec: FeatureSpec,
    pub(crate) encoder: &'a Encoder,
    pub(crate) moments: &'a Moments,
}

/// A sample as arrays.
pub(crate) struct Reference {
    pub(crate) rows: Matrix<f64>,
    pub(crate) weights: Vec<f64>,
    pub(crate) labels: Vec<String>,
    /// The index of the label, or the number.
    pub(crate) truth: Vec<f64>,
}

impl Reference {
    /// The classes are those given, and any others that the sample has.
    pub(crate) fn new(task: Task, encoder: &Encoder, sample: &Sample, known: Vec<String>) -> Self {
        let (rows, weights) = standardised_rows(encoder, sample);
        let mut labels = known;
        let truth = sample.items.iter().map(|((_, mark), item)| match task {
            Task::Classify => match labels.iter().position(|l| l == mark) {
                Some(k) => k as f64,
                None => {
                    labels.push(mark.clone());
                    (labels.len() - 1) as f64
                }
            },
            _ => item.value,
        });
        let truth = truth.collect();
        Self { rows, weights, labels, truth }
    }

    pub(crate) fn part(&self, chosen: &[usize]) -> Self {
        Self {
            rows: Matrix::from_fn(chosen.len(), self.rows.columns(), |i, l| {
                self.rows[(chosen[i], l)]
            }),
            weights: chosen.iter().map(|&i| self.weights[i]).collect(),
            labels: self.labels.clone(),
            truth: chosen.iter().map(|&i| self.truth[i]).collect(),
        }
    }

    /// What is summed over these rows as keys.
    pub(crate) fn values(&self, task: Task) -> Matrix<f64> {
        let columns = match task {
            Task::Classify => self.labels.len(),
            Task::Regress { .. } => 2,
            Task::Density => 1,
        };
        Matrix::from_fn(self.rows.rows(), columns, |i, c| match task {
            Task::Classify => self.weights[i] * f64::from(u8::from(self.truth[i] == c as f64)),
            Task::Regress { centre, scale } if c == 1 => {
                self.weights[i] * (self.truth[i] - centre) / scale
            }
            _ => self.weights[i],
        })
    }

    /// The rule for sums over these rows.
    pub(crate) fn rule(
        &self,
        task: Task,
        prior: &Prior,
        sigma: f64,
        encoder: &Encoder,
    ) -> Result<Rule> {
        let mut weights = vec![0.0; if task == Task::Classify { self.labels.len() } else { 0 }];
        if task == Task::Classify {
            self.truth.iter().zip(&self.weights).for_each(|(t, w)| weights[*t as usize] += w);
        }
        let (_, scales) = encoder.centres_and_scales();
        Ok(Rule {
            task,
            factors: prior.factors(&self.labels, &weights)?,
            weights,
            log_norm: Rule::log_norm(sigma, &scales, self.weights.iter().sum()),
        })
    }
}

/// The scores of features and of the exact kernel, with the sums over `keys`, at `queries`.
pub(crate) fn scores(
    scene: &Scene<'_>,
    map: &FeatureMap,
    sigma: f64,
    keys: &Reference,
    queries: &Reference,
) -> Result<(f64, f64)> {
    let rule = keys.rule(scene.task, scene.prior, sigma, scene.encoder)?;
    let values = keys.values(scene.task);
    let mut sums = KeySums::new(map, values.columns());
    sums.add_tiled(map, keys.rows.view(), values.view())?;
    let features = sums.apply_tiled(map, queries.rows.view())?;
    let exact = map.kernel().product(queries.rows.view(), keys.rows.view(), values.view())?;
    let score = |outputs| rule.score(&outputs, &queries.truth, &queries.weights);
    Ok((score(rule.outputs(&features)), score(rule.outputs(&exact))))
}

/// Scores every value of the grid on a sample.
pub(crate) fn search(scene: &Scene<'_>, sample: &Sample, search: Search) -> Result<Curve> {
    let whole = Reference::new(scene.task, scene.encoder, sample, vec![]);
    let count = whole.rows.rows();
    let folds: Vec<usize> = match search {
        Search::Validation => vec![3],
        Search::CrossValidation { folds } => (0..folds).collect(),
    };
    let parts = if let Search::CrossValidation { folds } = search { folds } else { 4 };
    if parts < 2 {
        return Err(Error::request("--folds", format!("{parts} parts; give 2 or more")));
    }
    if count < LEAST_ROWS.max(parts) {
        let reason = format!("{count} different rows are too few to choose σ on; give a number");
        return Err(Error::request("--sigma", reason));
    }
    let splits: Vec<(Reference, Reference)> = folds
        .into_iter()
        .map(|fold| {
            let (held, kept): (Vec<usize>, Vec<usize>) =
                (0..count).partition(|i| i % parts == fold);
            (whole.part(&kept), whole.part(&held))
        })
        .collect();
    let mut trials = vec![];
    for sigma in grid() {
        let kernel = Kernel::gaussian().scaled(sigma)?;
        let map = scene.spec.kernel(kernel).fit(scene.moments, scene.moments)?;
        let mut totals = (0.0, 0.0);
        for (keys, queries) in &splits {
            let (score, exact) = scores(scene, &map, sigma, keys, queries)?;
            totals = (totals.0 + score, totals.1 + exact);
        }
        let n = splits.len() as f64;
        trials.push(Trial { sigma, score: totals.0 / n, exact: totals.1 / n });
    }
    Ok(Curve { search, rows: count, trials })
}
