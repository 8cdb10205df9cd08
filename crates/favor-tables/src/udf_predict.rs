//! A model as a scalar function of the query engine: its prediction alone, its probabilities or
//! intervals, or all columns of a prediction as a struct.

use crate::model::Model;
use crate::predict::{PredictOptions, Predictor};
use crate::wire::{self, Kind};
use crate::{Error, Result};
use datafusion::arrow::array::{ArrayRef, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result as QueryResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The percentage of the intervals that a function gives.
const INTERVAL: f64 = 95.0;

/// What a function gives of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// The prediction.
    Prediction,
    /// A struct with the probability of each class, under its label.
    Probabilities,
    /// A struct with the ends of the interval.
    Interval,
}

impl Part {
    fn options(self) -> PredictOptions {
        let options = PredictOptions::default();
        match self {
            Self::Prediction => options,
            Self::Probabilities => options.probabilities(true),
            Self::Interval => options.interval(Some(INTERVAL)),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Prediction => "predict",
            Self::Probabilities => "proba",
            Self::Interval => "interval",
        }
    }
}

/// What travels of the options: probabilities, the interval, the components.
type Wanted = (bool, Option<f64>, Option<usize>);

/// The scalar function `{prefix}_predict` of a model.
///
/// ```
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let session = favor_tables::session(None);
/// session.register_udf(favor_tables::predict_function("favor", model)?); // favor_predict
/// # Ok(())
/// # }
/// ```
pub fn predict_function(prefix: &str, model: &Model) -> Result<ScalarUDF> {
    part_function(prefix, Part::Prediction, model)
}

/// The scalar function that gives a part of the predictions of a model.
pub(crate) fn part_function(prefix: &str, part: Part, model: &Model) -> Result<ScalarUDF> {
    Ok(ScalarUDF::from(Predict::new(format!("{prefix}_{}", part.suffix()), part, model)?))
}

/// The scalar function that gives all columns of the predictions, as a struct.
///
/// ```
/// use favor_tables::{PredictOptions, predict_columns_function};
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let options = PredictOptions::default().probabilities(true);
/// let function = predict_columns_function(model, &options)?;
/// # Ok(())
/// # }
/// ```
pub fn predict_columns_function(model: &Model, options: &PredictOptions) -> Result<ScalarUDF> {
    Ok(ScalarUDF::from(PredictColumns::new(Predictor::new(model, options)?)?))
}

/// The bytes of one of our scalar functions, for a codec; `None` for any other function.
///
/// ```
/// use favor_tables::{predict_function, scalar_from_bytes, scalar_to_bytes};
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let function = predict_function("favor", model)?;
/// let bytes = scalar_to_bytes(&function).unwrap();
/// assert_eq!(scalar_from_bytes(function.name(), &bytes)?, function);
/// # Ok(())
/// # }
/// ```
pub fn scalar_to_bytes(function: &ScalarUDF) -> Option<Vec<u8>> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    let predict = inner.downcast_ref::<Predict>().map(|f| &f.bytes);
    predict.or_else(|| inner.downcast_ref::<PredictColumns>().map(|f| &f.bytes)).cloned()
}

/// The function that [`scalar_to_bytes`] was given, under this name.
///
/// ```
/// use favor_tables::{datafusion::logical_expr::ScalarUDF, scalar_from_bytes};
/// # fn example(bytes: &[u8]) -> favor_tables::Result<()> {
/// let function: ScalarUDF = scalar_from_bytes("favor_predict", bytes)?;
/// # Ok(())
/// # }
/// ```
pub fn scalar_from_bytes(name: &str, bytes: &[u8]) -> Result<ScalarUDF> {
    if wire::kind_of(bytes) == Ok(Kind::PredictColumns) {
        let (wanted, model): (Wanted, Vec<u8>) = wire::read(Kind::PredictColumns, bytes)?;
        let (probabilities, interval, components) = wanted;
        let options = PredictOptions::default()
            .probabilities(probabilities)
            .interval(interval)
            .components(components);
        return predict_columns_function(&Model::from_bytes(&model)?, &options);
    }
    let (part, model): (Part, Vec<u8>) = wire::read(Kind::Predict, bytes)?;
    Ok(ScalarUDF::from(Predict::new(name.into(), part, &Model::from_bytes(&model)?)?))
}

#[derive(Debug)]
struct Predict {
    name: String,
    part: Part,
    predictor: Predictor,
    bytes: Vec<u8>,
    signature: Signature,
}

impl Predict {
    fn new(name: String, part: Part, model: &Model) -> Result<Self> {
        let predictor = Predictor::new(model, &part.options())?;
        let signature = Signature::variadic_any(Volatility::Immutable);
        let bytes = wire::write(Kind::Predict, &(part, model.to_bytes()?))?;
        Ok(Self { name, part, predictor, bytes, signature })
    }

    /// The fields of the struct, and where their columns are among all that are made; none where the
    /// prediction alone is wanted.
    fn fields(&self) -> Option<(Fields, Vec<usize>)> {
        let all = self.predictor.fields();
        let named = |name: &str| match self.part {
            Part::Prediction => None,
            Part::Probabilities => name.strip_prefix("p_").map(str::to_owned),
            Part::Interval => ["lower", "upper"].contains(&name).then(|| name.to_owned()),
        };
        let of = |(k, field): (usize, &Field)| {
            Some((Field::new(named(field.name())?, field.data_type().clone(), true), k))
        };
        let (fields, places): (Vec<Field>, Vec<usize>) =
            all.iter().enumerate().filter_map(of).unzip();
        (self.part != Part::Prediction).then(|| (fields.into(), places))
    }

    fn values(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some((fields, places)) = self.fields() else {
            return self.predictor.predict(columns);
        };
        let all = self.predictor.columns(columns, rows)?;
        let chosen = places.into_iter().map(|k| all[k].clone()).collect();
        Ok(Arc::new(StructArray::try_new_with_length(fields, chosen, None, rows)?))
    }
}

impl PartialEq for Predict {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.bytes) == (&other.name, &other.bytes)
    }
}

impl Eq for Predict {}

impl Hash for Predict {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.name, &self.bytes).hash(hasher);
    }
}

impl ScalarUDFImpl for Predict {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> QueryResult<DataType> {
        let names = self.predictor.model().info().encoder.names();
        if arguments.len() != names.len() {
            let (found, wanted) = (arguments.len(), names.join(", "));
            let reason = format!("{} was given {found} columns; it takes {wanted}", self.name);
            return Err(Error::query(reason).into());
        }
        Ok(match self.fields() {
            Some((fields, _)) => DataType::Struct(fields),
            None => self.predictor.field().data_type().clone(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        let scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalars { 1 } else { args.number_rows };
        let predictions = self.values(&arrays(args.args, rows)?, rows)?;
        if scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&predictions, 0)?));
        }
        Ok(ColumnarValue::Array(predictions))
    }
}

/// All columns of a prediction as a struct, so that workers elsewhere can make them.
#[derive(Debug)]
pub(crate) struct PredictColumns {
    predictor: Predictor,
    fields: Fields,
    bytes: Vec<u8>,
    signature: Signature,
}

impl PredictColumns {
    pub(crate) const NAME: &str = "favor_predict_columns";

    pub(crate) fn new(predictor: Predictor) -> Result<Self> {
        let options = predictor.options();
        let wanted: Wanted = (options.probabilities, options.interval, options.components);
        let contents = (wanted, predictor.model().to_bytes()?);
        let bytes = wire::write(Kind::PredictColumns, &contents)?;
        let (fields, signature) =
            (predictor.fields().into(), Signature::variadic_any(Volatility::Immutable));
        Ok(Self { predictor, fields, bytes, signature })
    }
}

impl PartialEq for PredictColumns {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PredictColumns {}

impl Hash for PredictColumns {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bytes.hash(hasher);
    }
}

impl ScalarUDFImpl for PredictColumns {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> QueryResult<DataType> {
        Ok(DataType::Struct(self.fields.clone()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        let count = args.number_rows;
        let made = self.predictor.columns(&arrays(args.args, count)?, count)?;
        let rows = StructArray::try_new_with_length(self.fields.clone(), made, None, count)?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }
}

fn arrays(values: Vec<ColumnarValue>, rows: usize) -> QueryResult<Vec<ArrayRef>> {
    values.into_iter().map(|a| a.into_array(rows)).collect()
}
