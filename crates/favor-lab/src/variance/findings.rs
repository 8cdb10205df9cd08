//! The paper's findings next to ours.

use super::report::gaps;
use super::{Curve, Regime};
use crate::families::{compared, paper};
use crate::finding::Finding;
use favor::Family;

/// Differences of logarithms below this count as "on par".
const ON_PAR: f64 = 0.1;

/// All findings that the curves can speak to.
pub(super) fn compare(curves: &[Curve]) -> Vec<Finding> {
    let mut out = Vec::new();
    let others = |f: &Family| *f != Family::Sde;
    out.extend(lowest(
        curves,
        Family::Sde,
        paper().into_iter().filter(others).collect(),
        "paper: SDE is lower than or on par with every other family of the paper, everywhere",
    ));
    for (regime, size) in [
        (Regime::Heterogen, 5.0),
        (Regime::Mnist, 5.0),
        (Regime::MnistCifar10, 5.0),
        (Regime::Cifar10, 10.0),
    ] {
        out.extend(gap(curves, regime, (Family::Sde, Family::Ge), size));
    }
    out.extend(gap(curves, Regime::MnistCifar10, (Family::Ade, Family::Ge), 3.0));
    out.extend(lowest(
        curves,
        Family::Balanced,
        vec![Family::Sde],
        "ours: balanced is lower than or on par with SDE, everywhere",
    ));
    out.extend(lowest(
        curves,
        Family::Balanced,
        compared().into_iter().filter(|f| *f != Family::Balanced).collect(),
        "ours: balanced is lower than or on par with every other family, everywhere",
    ));
    out
}

/// One family against others, at every point.
fn lowest(curves: &[Curve], family: Family, others: Vec<Family>, claim: &str) -> Option<Finding> {
    let mut all: Vec<(Regime, f64, f64)> = Vec::new();
    let mut exceptions = Vec::new();
    let mut against = 0;
    for other in others {
        let mut places = Vec::new();
        for regime in Regime::ALL {
            let gaps = gaps(curves, regime, family, other).unwrap_or_default();
            all.extend(gaps.iter().map(|(scale, gap)| (regime, *scale, *gap)));
            let worse: Vec<(f64, f64)> = gaps.into_iter().filter(|g| g.1 < -ON_PAR).collect();
            against += worse.len();
            if let (Some(first), Some(last)) = (worse.first(), worse.last()) {
                let most = worse.iter().map(|g| -g.1).fold(0.0, f64::max);
                let range = if first.0 == last.0 {
                    format!("scale {}", first.0)
                } else {
                    format!("scale {} to {}", first.0, last.0)
                };
                places.push(format!("{} {range} (by up to e^{most:.1})", regime.name()));
            }
        }
        if !places.is_empty() {
            exceptions.push(format!("{other} is lower on {}", places.join(", ")));
        }
    }
    let largest = all.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let found = match against {
        0 => format!(
            "at all {} points; most on {} at scale {} (e^{:.1})",
            all.len(),
            largest.0.name(),
            largest.1,
            largest.2
        ),
        _ => format!("at {} of {} points it is not", against, all.len()),
    };
    Some(Finding { claim: claim.to_owned(), found, holds: against == 0, exceptions })
}

/// A family better than another by about `e^size`: holds if the gap reaches that size within the
/// range of scales.
fn gap(
    curves: &[Curve],
    regime: Regime,
    (better, worse): (Family, Family),
    size: f64,
) -> Option<Finding> {
    let gaps = gaps(curves, regime, better, worse)?;
    let largest = gaps.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // "About": within half a unit of the exponent.
    let reached = gaps.iter().find(|g| g.1 >= size - 0.5);
    let found = match reached {
        Some((scale, gap)) => format!(
            "e^{gap:.1} at scale {scale}, and the gap grows to e^{:.1} at scale {}",
            largest.1, largest.0
        ),
        None => format!("at most e^{:.1}, at scale {}", largest.1, largest.0),
    };
    let claim = format!(
        "paper: {} is about e^{size} better than {} on {}",
        upper(better),
        upper(worse),
        regime.name()
    );
    Some(Finding { claim, found, holds: reached.is_some(), exceptions: vec![] })
}

fn upper(family: Family) -> String {
    family.name().to_uppercase()
}
