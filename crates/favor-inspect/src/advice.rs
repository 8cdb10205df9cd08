//! What to do, and what to be careful about.

use crate::closed::WANTED;
use crate::report::{FamilyReport, Recommendation};
use favor::Family;
use favor::diagnose::{Candidate, break_even, recommend};
use favor_io::numbers::{figures, percent};

/// An error above this fraction of the uniform baseline's counts as close to it.
const CLOSE: f64 = 0.8;

/// Decides by the attention output if there are values, otherwise by the row sums.
pub(super) fn recommendation(
    families: &[FamilyReport],
    queries: usize,
    keys: usize,
) -> Option<Recommendation> {
    let with = |need: fn(&FamilyReport) -> Option<f64>| -> Vec<Candidate> {
        let found = families.iter().filter_map(|f| Some((f.name, need(f)?)));
        found.map(|(family, features)| Candidate { family, features }).collect()
    };
    let outputs = with(|f| f.features_needed_output);
    let (candidates, basis) = if outputs.is_empty() {
        (with(|f| f.features_needed_row_sum), "row sums")
    } else {
        (outputs, "attention output")
    };
    let advice = recommend(&candidates, break_even(queries, keys, false))?;
    let text = format!("for {} error of the {basis}, {advice}", percent(WANTED));
    Some(Recommendation { advice, basis, text })
}

/// Warnings where features are no better, or hardly better, than no attention at all.
pub(super) fn warnings(families: &[FamilyReport], uniform: Option<f64>) -> Vec<String> {
    match uniform {
        Some(uniform) if uniform > 1e-9 => against_uniform(families, uniform),
        Some(_) => vec![
            "the plain mean of the values is already exact here: these values cannot tell good \
             attention from bad"
                .to_owned(),
        ],
        None => against_need(families),
    }
}

fn against_uniform(families: &[FamilyReport], uniform: f64) -> Vec<String> {
    let mut out = Vec::new();
    for at in 0..families.first().map_or(0, |f| f.measured.len()) {
        // A family without a figure failed completely.
        let error = |f: &FamilyReport| f.measured[at].attention_error.unwrap_or(f64::INFINITY);
        let features = families[0].measured[at].features;
        let names = |keep: &dyn Fn(f64) -> bool| -> Vec<&'static str> {
            families.iter().filter(|f| keep(error(f))).map(|f| f.name.name()).collect()
        };
        let worse = names(&|e| e >= uniform);
        let close = names(&|e| e < uniform && e >= CLOSE * uniform);
        let best = families.iter().min_by(|a, b| error(a).total_cmp(&error(b)));
        let Some(best) = best.filter(|b| error(b).is_finite()) else { continue };
        let base = figures(uniform);
        if worse.len() == families.len() {
            out.push(format!(
                "{features} features of any family are worse than the plain mean of the values \
                 (error {base}; best {} {}): they are useless here",
                best.name,
                figures(error(best))
            ));
            continue;
        }
        if !worse.is_empty() {
            out.push(format!(
                "{features} features of {} are worse than the plain mean of the values (error \
                 {base})",
                worse.join(", ")
            ));
        }
        if !close.is_empty() {
            out.push(format!(
                "{features} features of {} are hardly better than the plain mean of the values \
                 (error {base})",
                close.join(", ")
            ));
        }
    }
    out
}

/// Without values: the best family's row sums at the largest number of features.
fn against_need(families: &[FamilyReport]) -> Vec<String> {
    let needs = families.iter().filter_map(|f| Some((f.name, f.features_needed_row_sum?)));
    let best: Option<(Family, f64)> = needs.min_by(|a, b| a.1.total_cmp(&b.1));
    let most = families.iter().flat_map(|f| &f.measured).map(|m| m.features).max();
    let (Some((family, need)), Some(most)) = (best, most) else { return vec![] };
    let error = WANTED * (need / most as f64).sqrt();
    if error < 0.5 {
        return vec![];
    }
    vec![format!(
        "{most} features are far too few: even with {family} the typical relative error \
         of a row sum is about {}",
        figures(error)
    )]
}
