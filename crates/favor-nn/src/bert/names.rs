//! The names of weights in files of transformers.

use crate::weights::Name;

/// The name of a weight without the prefix `bert.`, given its path in [`Bert`](super::Bert).
pub(super) fn stored(path: &str) -> Option<Name> {
    let (place, leaf) = path.rsplit_once('.').unwrap_or(("", path));
    if path == "masked.bias" {
        return Some(Name { name: "cls.predictions.bias".into(), transposed: false });
    }
    let (module, kind) = module(place)?;
    let (leaf, transposed) = match (kind, leaf) {
        (Kind::Matrix, "weight") => ("weight", true),
        (Kind::Matrix, "bias") | (Kind::Norm, "beta") => ("bias", false),
        (Kind::Table, "weight") | (Kind::Norm, "gamma") => ("weight", false),
        _ => return None,
    };
    Some(Name { name: format!("{module}.{leaf}"), transposed })
}

#[derive(Clone, Copy)]
enum Kind {
    Matrix,
    Table,
    Norm,
}

fn module(place: &str) -> Option<(String, Kind)> {
    let fixed = match place {
        "encoder.embeddings.word" => ("embeddings.word_embeddings", Kind::Table),
        "encoder.embeddings.position" => ("embeddings.position_embeddings", Kind::Table),
        "encoder.embeddings.token_type" => ("embeddings.token_type_embeddings", Kind::Table),
        "encoder.embeddings.norm" => ("embeddings.LayerNorm", Kind::Norm),
        "pooler" => ("pooler.dense", Kind::Matrix),
        "masked.transform" => ("cls.predictions.transform.dense", Kind::Matrix),
        "masked.norm" => ("cls.predictions.transform.LayerNorm", Kind::Norm),
        "classifier" => ("classifier", Kind::Matrix),
        _ => {
            let (layer, rest) = place.strip_prefix("encoder.layers.")?.split_once('.')?;
            let (name, kind) = in_layer(rest)?;
            return Some((format!("encoder.layer.{layer}.{name}"), kind));
        }
    };
    Some((fixed.0.into(), fixed.1))
}

fn in_layer(place: &str) -> Option<(&'static str, Kind)> {
    Some(match place {
        "attention.query" => ("attention.self.query", Kind::Matrix),
        "attention.key" => ("attention.self.key", Kind::Matrix),
        "attention.value" => ("attention.self.value", Kind::Matrix),
        "attention.output" => ("attention.output.dense", Kind::Matrix),
        "attention_norm" => ("attention.output.LayerNorm", Kind::Norm),
        "intermediate" => ("intermediate.dense", Kind::Matrix),
        "output" => ("output.dense", Kind::Matrix),
        "output_norm" => ("output.LayerNorm", Kind::Norm),
        _ => return None,
    })
}

/// Whether a weight belongs to a head, which transformers writes without the prefix `bert.`.
pub(super) fn is_head(name: &str) -> bool {
    name.starts_with("cls.") || name.starts_with("classifier.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_transformers() {
        let name = |path| stored(path).map(|s| (s.name, s.transposed));
        let query = "encoder.layer.3.attention.self.query.weight".to_owned();
        assert_eq!(name("encoder.layers.3.attention.query.weight"), Some((query, true)));
        let beta = "embeddings.LayerNorm.bias".to_owned();
        assert_eq!(name("encoder.embeddings.norm.beta"), Some((beta, false)));
        assert_eq!(name("encoder.layers.3.elsewhere.weight"), None);
    }
}
