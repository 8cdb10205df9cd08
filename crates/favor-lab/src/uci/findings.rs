//! The paper's findings next to ours.

use super::Reproduction;
use super::ranking::standing;
use crate::families::paper;
use crate::finding::Finding;
use favor::Family;
use favor_io::numbers::fixed;
use favor_io::stats::mean;

/// All findings that the families can speak to.
pub(super) fn compare(found: &Reproduction) -> Vec<Finding> {
    let families = &found.options.families;
    let ran = |f: &Family| families.contains(f);
    let mut out = Vec::new();
    let paper: Vec<Family> = paper().into_iter().filter(ran).collect();
    if ran(&Family::Sde) && paper.len() > 1 {
        out.push(most_pairs(found, Family::Sde, &paper));
        out.push(best_average(found, Family::Sde, &paper));
    }
    if ran(&Family::Sde) && ran(&Family::Balanced) {
        out.push(not_worse(found, Family::Balanced, Family::Sde));
    }
    out
}

/// Best at more than half of the pairs of a set and a number of features.
fn most_pairs(found: &Reproduction, family: Family, among: &[Family]) -> Finding {
    let pairs = found.sets.len() * found.options.features.len();
    let (best, beaten) = standing(found, family, among);
    let others: Vec<Family> = among.iter().copied().filter(|f| *f != family).collect();
    Finding {
        claim: "paper: SDE is the most accurate of the paper's families at most pairs of a set \
                and M"
            .to_owned(),
        found: format!(
            "best or level at {best} of {pairs} pairs, clearly beaten at {beaten} (by more than \
             three standard errors over the draws)"
        ),
        holds: 2 * best > pairs,
        exceptions: beaten_by(found, family, &others),
    }
}

/// Best mean over the sets at every number of features.
fn best_average(found: &Reproduction, family: Family, among: &[Family]) -> Finding {
    let mut lines = Vec::new();
    let mut holds = true;
    for (m, features) in found.options.features.iter().enumerate() {
        let Some(own) = found.average(family, m) else { continue };
        let others = among.iter().filter(|f| **f != family);
        let others = others.filter_map(|&f| Some((f, found.average(f, m)?)));
        let Some((next, other)) = others.max_by(|a, b| a.1.accuracy.total_cmp(&b.1.accuracy))
        else {
            continue;
        };
        holds &= own.accuracy >= other.accuracy;
        let gap = own.accuracy - other.accuracy;
        lines.push(format!(
            "M = {features}: {} %, the best of the others {next} with {} %, difference {} ± {}",
            fixed(100.0 * own.accuracy),
            fixed(100.0 * other.accuracy),
            fixed(100.0 * gap),
            fixed(100.0 * own.error.hypot(other.error)),
        ));
    }
    let found = if holds { "at every M" } else { "not at every M" };
    Finding {
        claim: "paper: SDE has the best average over the sets".to_owned(),
        found: found.to_owned(),
        holds,
        exceptions: lines,
    }
}

/// Nowhere clearly worse.
fn not_worse(found: &Reproduction, family: Family, other: Family) -> Finding {
    let exceptions = beaten_by(found, family, &[other]);
    let places = 0..found.options.features.len();
    let gaps: Vec<f64> = places
        .filter_map(|m| {
            Some(found.average(family, m)?.accuracy - found.average(other, m)?.accuracy)
        })
        .collect();
    let gap = 100.0 * mean(&gaps);
    let (_, beaten) = standing(found, family, &[other]);
    Finding {
        claim: format!("ours: {family} is nowhere clearly less accurate than {other}"),
        found: format!("clearly less at {beaten} pairs; on average {gap:+.2} percentage points"),
        holds: beaten == 0,
        exceptions,
    }
}

/// Where others are clearly more accurate, one line per family.
fn beaten_by(found: &Reproduction, family: Family, others: &[Family]) -> Vec<String> {
    let mut lines = Vec::new();
    for &other in others {
        let mut places = Vec::new();
        for set in &found.sets {
            let mut at = Vec::new();
            for (m, features) in found.options.features.iter().enumerate() {
                let means = found.mean(set, family, m).zip(found.mean(set, other, m));
                let Some((own, theirs)) = means else { continue };
                if theirs.clearly_above(&own) {
                    let gap = 100.0 * (theirs.accuracy - own.accuracy);
                    at.push(format!("M = {features} by {gap:.1}"));
                }
            }
            if !at.is_empty() {
                places.push(format!("{} ({})", set.set.name(), at.join(", ")));
            }
        }
        if !places.is_empty() {
            lines.push(format!("{other} is clearly better on {}", places.join(", ")));
        }
    }
    lines
}
