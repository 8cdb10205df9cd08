//! What an inspection found.

use favor::Family;
use favor::diagnose::Advice;
use serde::Serialize;

/// All heads of one inspection.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// Where the arrays came from, if known.
    pub sources: Option<String>,
    /// Whether there were values.
    pub has_values: bool,
    /// The scaling that was used, in words.
    pub scaling: String,
    /// A hint about the scaling.
    pub hint: Option<String>,
    /// The numbers of features that were measured.
    pub features: Vec<usize>,
    /// Whether the arrays had an axis for the heads.
    pub has_head_axis: bool,
    /// One report per head.
    pub heads: Vec<HeadInspection>,
}

/// One head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadInspection {
    /// Its number, from 0.
    pub head: usize,
    /// Number of queries.
    pub queries: usize,
    /// Number of keys.
    pub keys: usize,
    /// Dimension of queries and keys.
    pub dim: usize,
    /// `α` of the kernel.
    pub alpha: f64,
    /// What queries and keys were multiplied by.
    pub scale: f64,
    /// Which pairs the variances are means over.
    pub pairs: PairSample,
    /// The lower bound of the objective: twice the mean of `log K`.
    pub floor: f64,
    /// One entry per family.
    pub families: Vec<FamilyReport>,
    /// The relative error of the plain mean of the values instead of attention.
    pub uniform_error: Option<f64>,
    /// What to do.
    pub recommendation: Option<Recommendation>,
    /// What to be careful about.
    pub warnings: Vec<String>,
    /// The seed of all draws and samples.
    pub seed: u64,
    /// Measured errors are means over this many draws.
    pub draws: u64,
}

/// The pairs that the variances are means over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PairSample {
    /// Queries used.
    pub queries: usize,
    /// Keys used.
    pub keys: usize,
    /// Whether these are all.
    pub all: bool,
}

/// One family on one head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilyReport {
    /// Its name.
    pub name: Family,
    /// The shifted log-variance objective.
    pub objective: f64,
    /// The mean over pairs of the natural logarithm of `Var/K²`, for one feature.
    pub mean_log_relative_variance: f64,
    /// Number of features that a typical pair needs for a relative error of 10 %.
    pub features_needed: f64,
    /// Number of features that the median row sum needs for 10 %.
    pub features_needed_row_sum: Option<f64>,
    /// Number of features that the attention output needs for 10 %.
    pub features_needed_output: Option<f64>,
    /// One entry per number of features.
    pub measured: Vec<Measured>,
}

/// What was measured with computed features.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The number of features M.
    pub features: usize,
    /// The median over pairs of the relative error of the kernel.
    pub kernel_error: Option<f64>,
    /// The relative error of the attention output.
    pub attention_error: Option<f64>,
    /// What the closed form predicted for it, to first order.
    pub predicted_attention_error: Option<f64>,
    /// The median over queries of the number of features that carry the result.
    pub effective_sample_size: Option<f64>,
}

/// What to do, and what it is based on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The advice.
    #[serde(flatten)]
    pub advice: Advice,
    /// `attention output` or `row sums`.
    pub basis: &'static str,
    /// The advice in words.
    pub text: String,
}
