//! A model made ready to predict: from columns to columns.

use crate::encode::Missing;
use crate::head::TableHead;
use crate::judge;
use crate::model::{Model, Outputs};
use crate::{Error, Result, Setting};
use datafusion::arrow::array::{ArrayRef, Float64Array, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field};
use favor::Matrix;
use favor::learn::{HeadKind, KernelPca, Task, argmax};
use favor_io::setters;
use std::sync::Arc;

/// Which predictions are wanted.
///
/// ```
/// use favor_tables::{Missing, PredictOptions};
/// let options = PredictOptions::default().probabilities(true).keep(["id"]).missing(Some(Missing::Drop));
/// let plane = PredictOptions::default().components(Some(2));
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct PredictOptions {
    /// A column for the probability of each class.
    pub probabilities: bool,
    /// Columns for the ends of the interval that holds a new observation with this probability, in
    /// percent; for a Gaussian process.
    pub interval: Option<f64>,
    /// Coordinates along so many principal components of the features, in the place of predictions.
    pub components: Option<usize>,
    /// Columns of the table to carry over.
    pub keep: Vec<String>,
    /// What to do with missing values; what the model does when `None`.
    pub missing: Option<Missing>,
}

setters! { PredictOptions {
    probabilities: bool,
    interval: Option<f64>,
    components: Option<usize>,
    missing: Option<Missing>,
} }

impl PredictOptions {
    /// Columns of the table to carry over.
    #[must_use]
    pub fn keep<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { keep: columns.into_iter().map(Into::into).collect(), ..self }
    }
}

/// A model made ready to predict.
///
/// ```
/// use favor_tables::{PredictOptions, Predictor, datafusion::arrow::array::ArrayRef};
/// # fn example(model: &favor_tables::Model, columns: &[ArrayRef]) -> favor_tables::Result<()> {
/// // The columns are in the order of `model.info().encoder.names()`.
/// let predictions = Predictor::new(model, &PredictOptions::default())?.predict(columns)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    /// The labels, in the type of the target.
    labels: Option<ArrayRef>,
    probabilities: bool,
    interval: Option<f64>,
    components: Option<KernelPca>,
}

impl Predictor {
    /// Makes a model ready.
    pub fn new(model: &Model, options: &PredictOptions) -> Result<Self> {
        let mut model = model.clone();
        if let Some(missing) = options.missing {
            model.info.encoder.missing = missing;
        }
        let labels = match (model.info.task, &model.info.target) {
            (Task::Classify, Some(target)) => Some(target.labels(model.info.labels())?),
            _ => None,
        };
        let probabilities = options.probabilities;
        if probabilities && labels.is_none() {
            let reason = format!("a {} has no class probabilities", model.info.task.name());
            return Err(Error::request(Setting::Probabilities, reason));
        }
        if let Some(percent) = options.interval {
            if model.info.head != TableHead::Linear(HeadKind::Gp) {
                let reason = format!("a {} model has no intervals; fit a gp one", model.info.head);
                return Err(Error::request(Setting::Interval, reason));
            }
            if !(percent > 0.0 && percent < 100.0) {
                let reason = format!("{percent} %; give a number between 0 and 100");
                return Err(Error::request(Setting::Interval, reason));
            }
        }
        let components = match (options.components, model.gram()) {
            (None, _) => None,
            (Some(_), None) => {
                let reason =
                    "a nw model keeps no products of features; give a model of another head";
                return Err(Error::request(Setting::Components, reason));
            }
            (Some(count), Some(sums)) => Some(KernelPca::new(sums, count).map_err(|_| {
                let reason = format!("{count}; give 1 to {}", sums.width() - 1);
                Error::request(Setting::Components, reason)
            })?),
        };
        Ok(Self { model, labels, probabilities, interval: options.interval, components })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What was asked for, without the columns to carry over.
    pub(crate) fn options(&self) -> PredictOptions {
        PredictOptions::default()
            .probabilities(self.probabilities)
            .interval(self.interval)
            .components(self.components.as_ref().map(|c| c.variances().len()))
    }

    /// The column of the predictions.
    pub fn field(&self) -> Field {
        let data_type = self.labels.as_ref().map_or(&DataType::Float64, |l| l.data_type());
        let name = match self.model.info.task {
            Task::Density => "log_density",
            _ => "prediction",
        };
        Field::new(name, data_type.clone(), true)
    }

    /// All columns that are made.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let number = |name: &str| Field::new(name, DataType::Float64, true);
        if let Some(components) = &self.components {
            let count = components.variances().len();
            return (1..=count).map(|c| number(&format!("component_{c}"))).collect();
        }
        let mut fields = vec![self.field()];
        match self.model.info.head {
            TableHead::Nw => fields.push(number("relative_error")),
            TableHead::Linear(HeadKind::Gp) => fields.push(number("deviation")),
            _ => {}
        }
        if self.interval.is_some() {
            fields.extend(["lower", "upper"].map(number));
        }
        if self.probabilities {
            fields.extend(self.model.info.labels().iter().map(|l| number(&format!("p_{l}"))));
        }
        fields
    }

    /// The predictions alone, for columns in the model's order.
    pub fn predict(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        let count = columns.first().map_or(0, |c| c.len());
        let outputs = self.outputs(columns)?;
        self.prediction(&outputs, &places(&outputs, count))
    }

    fn outputs(&self, columns: &[ArrayRef]) -> Result<Outputs> {
        let encoded = self.model.info.encoder.encode::<f32>(columns, None)?;
        if let (Some(components), Some(design)) = (&self.components, self.model.design()) {
            let values = components.transform(design, encoded.rows.view())?;
            let kept = encoded.kept;
            return Ok(Outputs { values, relative_error: None, deviation: None, kept });
        }
        if encoded.rows.rows() == 0 {
            let values = Matrix::zeros(0, self.model.info.classes.len().max(1));
            let kept = encoded.kept;
            return Ok(Outputs { values, relative_error: None, deviation: None, kept });
        }
        self.model.predict(encoded)
    }

    fn prediction(&self, outputs: &Outputs, places: &[Option<usize>]) -> Result<ArrayRef> {
        match &self.labels {
            Some(labels) => {
                let index = |p: &Option<usize>| p.map(|i| argmax(outputs.values.row(i)) as u32);
                let indices: UInt32Array = places.iter().map(index).collect();
                Ok(take(labels, &indices, None)?)
            }
            None => Ok(column(&outputs.values, 0, places)),
        }
    }

    /// All columns that are made of a batch.
    pub(crate) fn columns(&self, columns: &[ArrayRef], count: usize) -> Result<Vec<ArrayRef>> {
        let outputs = self.outputs(columns)?;
        let places = places(&outputs, count);
        if self.components.is_some() {
            let all = 0..outputs.values.columns();
            return Ok(all.map(|c| column(&outputs.values, c, &places)).collect());
        }
        let mut out = vec![self.prediction(&outputs, &places)?];
        let of = |values: &Option<Vec<f64>>| -> ArrayRef {
            let value = |p: &Option<usize>| Some(values.as_ref()?[(*p)?]);
            Arc::new(places.iter().map(value).collect::<Float64Array>())
        };
        match self.model.info.head {
            TableHead::Nw => out.push(of(&outputs.relative_error)),
            TableHead::Linear(HeadKind::Gp) => out.push(of(&outputs.deviation)),
            _ => {}
        }
        if let Some(percent) = self.interval {
            for sign in [-1.0, 1.0] {
                let ends = outputs.deviation.as_ref().map(|deviation| {
                    let far = sign * judge::interval(percent);
                    let end = |(i, d): (usize, &f64)| outputs.values[(i, 0)] + far * d;
                    deviation.iter().enumerate().map(end).collect()
                });
                out.push(of(&ends));
            }
        }
        if self.probabilities {
            out.extend((0..outputs.values.columns()).map(|c| column(&outputs.values, c, &places)));
        }
        Ok(out)
    }
}

/// For each row of a batch its row among the outputs, if it has one.
fn places(outputs: &Outputs, count: usize) -> Vec<Option<usize>> {
    match &outputs.kept {
        None => (0..count).map(Some).collect(),
        Some(kept) => {
            let mut out = vec![None; count];
            kept.iter().enumerate().for_each(|(r, &i)| out[i] = Some(r));
            out
        }
    }
}

fn column(values: &Matrix<f64>, c: usize, places: &[Option<usize>]) -> ArrayRef {
    Arc::new(places.iter().map(|p| p.map(|i| values[(i, c)])).collect::<Float64Array>())
}
