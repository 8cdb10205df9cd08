//! The families in the order of their average accuracy.

use super::Reproduction;
use super::report::Mean;
use favor::Family;
use favor_io::stats::mean;

/// One family in the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// The family.
    pub family: Family,
    /// The mean accuracy over all sets, one number per number of features.
    pub averages: Vec<f64>,
    /// The mean of these.
    pub overall: f64,
    /// Pairs of a set and a number of features at which no other family is more accurate.
    pub best: usize,
    /// Pairs at which some other family is clearly more accurate: by more than three standard
    /// errors of the difference over the draws.
    pub beaten: usize,
}

pub(super) fn rank(found: &Reproduction) -> Vec<Rank> {
    let families = &found.options.families;
    let mut ranks: Vec<Rank> = families.iter().map(|&f| row(found, f, families)).collect();
    // A stable order: of equal averages the one that was asked for first.
    ranks.sort_by(|a, b| b.overall.total_cmp(&a.overall));
    ranks
}

fn row(found: &Reproduction, family: Family, families: &[Family]) -> Rank {
    let places = 0..found.options.features.len();
    let averages: Vec<f64> =
        places.filter_map(|m| Some(found.average(family, m)?.accuracy)).collect();
    let overall = mean(&averages);
    let (best, beaten) = standing(found, family, families);
    Rank { family, averages, overall, best, beaten }
}

/// At how many pairs a family is best among some, and at how many it is clearly beaten by one.
pub(super) fn standing(found: &Reproduction, family: Family, among: &[Family]) -> (usize, usize) {
    let (mut best, mut beaten) = (0, 0);
    for set in &found.sets {
        for m in 0..found.options.features.len() {
            let Some(own) = found.mean(set, family, m) else { continue };
            let others: Vec<Mean> = among.iter().filter_map(|&f| found.mean(set, f, m)).collect();
            best += usize::from(others.iter().all(|o| o.accuracy <= own.accuracy));
            beaten += usize::from(others.iter().any(|o| o.clearly_above(&own)));
        }
    }
    (best, beaten)
}
