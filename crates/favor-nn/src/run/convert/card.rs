//! The model card of a converted model: what was done, and what came of it.

use super::options::name;
use super::{ConvertRequest, Converted, StageReport, keys_in_words};
use crate::attention::Attention;

/// The text of `README.md`.
pub(super) fn text(request: &ConvertRequest, found: &Converted) -> String {
    let (model, source) = (name(&request.model), request.source.to_string());
    let features = if request.has_maps() {
        let alone = if request.exact_alone { ", switched off" } else { "" };
        format!("{} features per head{alone}, {}", request.features, keys_in_words(request.exact))
    } else {
        "no maps".to_owned()
    };
    let kind = match request.attention {
        Attention::Learned => "learned features".to_owned(),
        other => format!("attention '{other}'"),
    };
    let mut out = format!(
        "---\nlibrary_name: transformers\ntags:\n- favor-sharp\n- linear-attention\n---\n\n\
         # {model} with attention in linear time\n\n\
         Converted from the exact model `{model}` to {kind} ({features}). The weights \
         expect this attention: opened without `favor_sharp.safetensors` the model is another one.\n\n\
         ```python\n\
         import favor_sharp.hf\n\
         from transformers import AutoModel\n\n\
         model = AutoModel.from_pretrained(folder)\n\
         favor_sharp.hf.load(model)\n\
         ```\n\n"
    );
    if let Some(note) = &request.card_note {
        out += &format!("{note}\n\n");
    }
    out += &format!(
        "## What was done\n\n\
         Shown: {source}; {} texts to learn from, {} held out, at most {} tokens each; seed {}.\n\n",
        found.texts[0], found.texts[1], request.options.length, request.options.seed
    );
    if let Some(layers) = &request.layers {
        out += &format!("Only the layers {layers:?}, from 0, were converted.\n\n");
    }
    if !found.exact_heads.is_empty() {
        out += &format!("Heads that stayed exact (layer, head): {:?}.\n\n", found.exact_heads);
    }
    let metric = found.exact_score.map(|(metric, _)| metric);
    let (title, line) = metric.map_or((String::new(), ""), |m| (format!(" {m} |"), "---|"));
    out += "Errors are relative to the exact model, on held-out texts: of the states after each layer, and of ";
    out += "the output.\n\n";
    out += &format!("| stage | steps | states | output |{title}\n|---|---|---|---|{line}\n");
    for StageReport { name, steps, distance, score, undone, .. } in &found.stages {
        let score = metric.map_or(String::new(), |_| {
            score.map_or(" – |".into(), |s| format!(" {:.1} |", 100.0 * s))
        });
        let name = if *undone { format!("{name} (undone)") } else { name.clone() };
        let (states, output) = (100.0 * distance.states, 100.0 * distance.output);
        out += &format!("| {name} | {steps} | {states:.1} % | {output:.1} % |{score}\n");
    }
    if let Some((_, score)) = found.exact_score {
        out += &format!("| exact model | – | 0 % | 0 % | {:.1} |\n", 100.0 * score);
    }
    out
}
