//! The column that is predicted, and its type: the one place where labels are texts and something
//! else.

use crate::Result;
use crate::encode::is_text;
use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{self, Expr, ident};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The column that is predicted.
///
/// ```
/// # fn example(model: &favor_tables::Model) {
/// if let Some(target) = &model.info().target {
///     println!("{} of type {}", target.name, target.data_type);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its type; labels are given back in it.
    #[serde(with = "as_text")]
    pub data_type: DataType,
}

impl Target {
    /// A column of this type. All texts are of one type, whichever a reader gives, and a dictionary
    /// is of the type of its values.
    pub(crate) fn new(name: &str, data_type: &DataType) -> Self {
        let data_type = match data_type {
            text if is_text(text) => DataType::Utf8,
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        Self { name: name.into(), data_type }
    }

    pub(crate) fn is_text(&self) -> bool {
        self.data_type == DataType::Utf8
    }

    /// The column of a table where it is of another type: labels of that type would be other texts.
    pub(crate) fn expression(&self, found: &DataType) -> Expr {
        let plain = ident(&self.name);
        if *found == self.data_type {
            plain
        } else {
            logical_expr::cast(plain, self.data_type.clone())
        }
    }

    /// Texts as what they were.
    pub(crate) fn labels(&self, texts: Vec<String>) -> Result<ArrayRef> {
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        Ok(cast(&texts, &self.data_type)?)
    }
}

/// Labels once each, in order: that of numbers for numbers, of the alphabet for texts.
pub(crate) fn sort_labels(labels: &mut Vec<String>, target: Option<&Target>) {
    let text = target.is_some_and(Target::is_text);
    let number = |label: &String| label.parse::<f64>().ok().filter(|_| !text);
    labels.sort_by(|a, b| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y),
        _ => a.cmp(b),
    });
    labels.dedup();
}

/// A type as Arrow writes it.
mod as_text {
    use datafusion::arrow::datatypes::DataType;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        data_type: &DataType,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(data_type)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DataType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::TimeUnit;

    #[test]
    fn types_come_back_as_they_were() {
        let dictionary = |t| DataType::Dictionary(Box::new(DataType::Int32), Box::new(t));
        for data_type in [
            DataType::Utf8,
            DataType::Utf8View,
            DataType::Boolean,
            DataType::Int8,
            DataType::UInt64,
            DataType::Float32,
            DataType::Date32,
            DataType::Decimal128(12, 3),
            DataType::Timestamp(TimeUnit::Microsecond, Some("+02:00".into())),
            DataType::Timestamp(TimeUnit::Second, None),
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Duration(TimeUnit::Millisecond),
            DataType::FixedSizeBinary(4),
            dictionary(DataType::Utf8),
            dictionary(DataType::Int64),
        ] {
            let target = Target::new("t", &data_type);
            let text = serde_json::to_string(&target).unwrap();
            assert_eq!(serde_json::from_str::<Target>(&text).unwrap(), target, "{text}");
        }
        assert!(Target::new("t", &DataType::Utf8View).is_text());
        assert!(Target::new("t", &dictionary(DataType::Utf8)).is_text());
        assert_eq!(Target::new("t", &dictionary(DataType::Int64)).data_type, DataType::Int64);
        let unknown = r#"{"name": "t", "data_type": "Int7"}"#;
        assert!(serde_json::from_str::<Target>(unknown).is_err());
    }
}
