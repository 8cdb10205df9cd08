//! What to inspect: checked, and read from the files.

use super::MOST_FEATURES;
use crate::families::SHOWN;
use crate::{Error, Result};
use favor::{Family, Kernel, Matrix};
use favor_io::arrays::{self, Heads};

/// The factor that queries and keys are multiplied by before the kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InputScale {
    /// None: the vectors are taken as they are.
    AsGiven,
    /// `d^{-1/4}` on both sides, as attention has it.
    Attention,
    /// Any positive number.
    Factor(f64),
}

impl InputScale {
    fn factor(self, dim: usize) -> f64 {
        match self {
            Self::AsGiven => 1.0,
            Self::Attention => Kernel::attention(dim).scale(),
            Self::Factor(factor) => factor,
        }
    }

    pub(super) fn describe(self, dim: usize) -> String {
        match self {
            Self::AsGiven => "queries and keys as given (scale 1)".to_owned(),
            Self::Attention => format!(
                "queries and keys times d^(-1/4) = {:.4}, as in attention (d = {dim})",
                self.factor(dim)
            ),
            Self::Factor(factor) => format!("queries and keys times {factor}"),
        }
    }
}

/// What to inspect and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// File of the queries, with the name of an array after a colon where there are several.
    pub queries: String,
    /// File of the keys.
    pub keys: String,
    /// File of the values of attention.
    pub values: Option<String>,
    /// `α` of the kernel `exp(α‖x‖² + xᵀy + α‖y‖²)`.
    pub alpha: f64,
    /// What queries and keys are multiplied by.
    pub scale: InputScale,
    /// The numbers of features to measure at.
    pub features: Vec<usize>,
    /// The families to compare.
    pub families: Vec<Family>,
    /// Decides all draws and samples.
    pub seed: u64,
}

impl Request {
    /// The softmax kernel on the vectors as they are, 64 and 256 features of all families.
    pub fn new(queries: impl Into<String>, keys: impl Into<String>) -> Self {
        Self {
            queries: queries.into(),
            keys: keys.into(),
            values: None,
            alpha: 0.0,
            scale: InputScale::AsGiven,
            features: vec![64, 256],
            families: SHOWN.to_vec(),
            seed: 0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::Invalid(message));
        if let Some(m) = self.features.iter().find(|m| !(1..=MOST_FEATURES).contains(*m)) {
            let range = format!("a number of features lies between 1 and {MOST_FEATURES}");
            return refuse(format!("--features: {m} is out of range; {range}"));
        }
        if self.features.is_empty() {
            return refuse("--features: give at least one number, as in --features 64".into());
        }
        if self.families.is_empty() {
            return refuse("--families: give at least one family, as in --families all".into());
        }
        Kernel::new(self.alpha, self.scale.factor(1)).map(|_| ()).map_err(Error::from)
    }

    pub(super) fn kernel(&self, dim: usize) -> Result<Kernel> {
        Ok(Kernel::new(self.alpha, self.scale.factor(dim))?)
    }

    /// What a person who gave values but no scale should know.
    pub(super) fn hint(&self) -> Option<String> {
        let unscaled = self.values.is_some() && self.scale == InputScale::AsGiven;
        unscaled.then(|| {
            "values are given but no scale: for the attention of a model add --attention, which \
             multiplies queries and keys by d^(-1/4)"
                .to_owned()
        })
    }

    /// Reads the files and checks that they fit each other.
    pub(crate) fn read(&self) -> Result<Inputs> {
        let queries = arrays::read_spec(&self.queries)?;
        let keys = arrays::read_spec(&self.keys)?;
        let values = self.values.as_deref().map(arrays::read_spec).transpose()?;
        self.put_together(queries, keys, values)
    }

    /// Checks that the sides fit each other.
    pub(super) fn put_together(
        &self,
        queries: Heads,
        keys: Heads,
        values: Option<Heads>,
    ) -> Result<Inputs> {
        let (q, k) = (shape(&queries), shape(&keys));
        let both = |a: (&str, &str, &Heads), b: (&str, &str, &Heads), rule: &str| {
            let side = |(what, file, heads): (&str, &str, &Heads)| {
                format!("{what} {file} has {}", dimensions(heads))
            };
            Err(Error::Invalid(format!("{} but {}; {rule}", side(a), side(b))))
        };
        let query_side = ("--queries", self.queries.as_str(), &queries);
        let key_side = ("--keys", self.keys.as_str(), &keys);
        if q.0 != k.0 {
            return both(query_side, key_side, "both need the same number of heads");
        }
        if q.2 != k.2 {
            return both(query_side, key_side, "both need the same number of columns");
        }
        if let (Some(file), Some(values)) = (&self.values, &values) {
            let value_side = ("--values", file.as_str(), values);
            let v = shape(values);
            if v.0 != k.0 {
                return both(key_side, value_side, "both need the same number of heads");
            }
            if v.1 != k.1 {
                return both(key_side, value_side, "every key needs one value");
            }
        }
        let three_dimensional = queries.three_dimensional || keys.three_dimensional;
        let mut values = values.map(|v| v.heads.into_iter());
        let heads = queries.heads.into_iter().zip(keys.heads);
        let heads = heads
            .map(|(queries, keys)| {
                let values = values.as_mut().and_then(Iterator::next);
                HeadInput { queries, keys, values }
            })
            .collect();
        Ok(Inputs { heads, three_dimensional })
    }
}

/// Heads, rows and columns.
fn shape(heads: &Heads) -> (usize, usize, usize) {
    let (rows, columns) = heads.heads.first().map_or((0, 0), Matrix::shape);
    (heads.heads.len(), rows, columns)
}

fn dimensions(heads: &Heads) -> String {
    let (count, rows, columns) = shape(heads);
    match heads.three_dimensional {
        true => format!("{count} heads of {rows} × {columns}"),
        false => format!("{rows} × {columns}"),
    }
}

/// The vectors of one head.
pub(crate) struct HeadInput {
    pub(super) queries: Matrix<f64>,
    pub(super) keys: Matrix<f64>,
    pub(super) values: Option<Matrix<f64>>,
}

/// All heads.
pub(crate) struct Inputs {
    pub(super) heads: Vec<HeadInput>,
    pub(super) three_dimensional: bool,
}

impl Inputs {
    /// Queries, keys and values of every head that has all three.
    pub(crate) fn into_heads(self) -> Vec<(Matrix<f64>, Matrix<f64>, Matrix<f64>)> {
        self.heads.into_iter().filter_map(|h| Some((h.queries, h.keys, h.values?))).collect()
    }

    pub(super) fn dim(&self) -> usize {
        self.heads.first().map_or(0, |h| h.queries.columns())
    }
}
