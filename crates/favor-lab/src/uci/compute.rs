//! The protocol: the bandwidth by validation, then the test.

use super::report::{Curve, Exact, Point, SetResult};
use super::split::{Part, Split};
use super::{QueryMoments, Set, UciOptions, classify};
use crate::{Error, Result};
use favor::{Family, Moments};
use favor_io::progress::{Counter, Listener};
use favor_io::stats::mean_and_deviation;
use rayon::prelude::*;

/// The results of every set.
pub(super) fn results(
    options: &UciOptions,
    splits: &[(Set, Split)],
    listener: &Listener<'_>,
) -> Result<Vec<SetResult>> {
    // Draw by draw over all sets, so that progress is even.
    let trials: Vec<Trial> = (0..options.seeds)
        .flat_map(|draw| {
            splits.iter().enumerate().flat_map(move |(set, _)| {
                options.families.iter().map(move |&family| Trial { set, family, draw })
            })
        })
        .collect();
    let counter =
        Counter::new(listener, splits.len() * options.bandwidths.len() + 2 * trials.len());
    let references = exact(options, splits, &counter)?;

    // Rows that were classified right, for every bandwidth and number of features.
    let validated = over(&trials, splits, &counter, |trial, split| {
        let counts = options.bandwidths.iter().map(|&bandwidth| {
            let count = |&m| trial.count(options, split, &split.validation, m, bandwidth);
            options.features.iter().map(count).collect::<favor::Result<Vec<usize>>>()
        });
        counts.collect::<favor::Result<Vec<Vec<usize>>>>()
    })?;
    let chosen = |set: usize, family: Family, m: usize| -> (usize, usize) {
        let of = |s: usize| {
            let own = trials.iter().zip(&validated).filter(|(t, _)| t.is(set, family));
            own.map(|(_, counts)| counts[s][m]).sum::<usize>()
        };
        best((0..options.bandwidths.len()).map(of))
    };
    // The bandwidth by place in the grid, and its sum of right rows, for every set, family and number.
    let choices: Vec<Vec<Vec<(usize, usize)>>> = (0..splits.len())
        .map(|set| {
            let of = |&f: &Family| (0..options.features.len()).map(|m| chosen(set, f, m)).collect();
            options.families.iter().map(of).collect()
        })
        .collect();
    let choice = |set: usize, family: Family, m: usize| {
        let place = options.families.iter().position(|f| *f == family).unwrap_or(0);
        choices[set][place][m]
    };
    let tested = over(&trials, splits, &counter, |trial, split| {
        let counts = options.features.iter().enumerate().map(|(m, &features)| {
            let bandwidth = options.bandwidths[choice(trial.set, trial.family, m).0];
            trial.count(options, split, &split.test, features, bandwidth)
        });
        counts.collect::<favor::Result<Vec<usize>>>()
    })?;

    let results = splits.iter().zip(references).enumerate().map(|(set, ((name, split), exact))| {
        let curves = options.families.iter().map(|&family| {
            let points = options.features.iter().enumerate().map(|(m, &features)| {
                let own = trials.iter().zip(&tested).filter(|(t, _)| t.is(set, family));
                let shares: Vec<f64> =
                    own.map(|(_, counts)| share(counts[m], &split.test)).collect();
                let (accuracy, deviation) = mean_and_deviation(&shares);
                let (place, right) = choice(set, family, m);
                let validation = share(right, &split.validation) / options.seeds as f64;
                let bandwidth = options.bandwidths[place];
                Point { features, bandwidth, accuracy, deviation, validation }
            });
            Curve { family, points: points.collect() }
        });
        SetResult {
            set: *name,
            rows: [&split.training, &split.validation, &split.test].map(|p| p.labels.len()),
            dim: split.training.vectors.columns(),
            classes: split.one_hot.columns(),
            majority: split.majority(),
            exact,
            curves: curves.collect(),
        }
    });
    Ok(results.collect())
}

/// One draw of one family on one set.
#[derive(Debug, Clone, Copy)]
struct Trial {
    set: usize,
    family: Family,
    draw: u64,
}

impl Trial {
    fn is(&self, set: usize, family: Family) -> bool {
        self.set == set && self.family == family
    }

    fn count(
        &self,
        options: &UciOptions,
        split: &Split,
        part: &Part,
        features: usize,
        bandwidth: f64,
    ) -> favor::Result<usize> {
        let queries: &Moments = match options.moments {
            QueryMoments::Training => &split.training.moments,
            QueryMoments::Queries => &part.moments,
        };
        // All families, bandwidths and numbers of features share the draws of a seed.
        let seed = options.seed.wrapping_mul(1 << 20).wrapping_add(self.draw);
        let spec = classify::spec(self.family, features, bandwidth, seed)?;
        classify::by_features(split, part, queries, &spec)
    }
}

/// Runs all trials on all cores, in an order that does not show in the result.
fn over<T: Send>(
    trials: &[Trial],
    splits: &[(Set, Split)],
    counter: &Counter<'_>,
    work: impl Fn(&Trial, &Split) -> favor::Result<T> + Sync,
) -> Result<Vec<T>> {
    trials
        .par_iter()
        .map(|trial| {
            let (set, split) = &splits[trial.set];
            let done = work(trial, split)
                .map_err(|e| Error::at(format!("{}, {}: ", set.name(), trial.family), e))?;
            counter.step(set.name());
            Ok(done)
        })
        .collect()
}

/// The exact kernel on every set.
fn exact(
    options: &UciOptions,
    splits: &[(Set, Split)],
    counter: &Counter<'_>,
) -> Result<Vec<Exact>> {
    let one = |(set, split): &(Set, Split)| -> favor::Result<Exact> {
        let counts = options.bandwidths.iter().map(|&bandwidth| {
            let count = classify::exact(split, &split.validation, bandwidth);
            counter.step(set.name());
            count
        });
        let (place, right) = best(counts.collect::<favor::Result<Vec<_>>>()?.into_iter());
        let bandwidth = options.bandwidths[place];
        let accuracy = share(classify::exact(split, &split.test, bandwidth)?, &split.test);
        Ok(Exact { bandwidth, accuracy, validation: share(right, &split.validation) })
    };
    splits.iter().map(|s| one(s).map_err(|e| Error::at(format!("{}: ", s.0.name()), e))).collect()
}

/// The place of the largest count, and the count. Of equal ones the first.
fn best(counts: impl Iterator<Item = usize>) -> (usize, usize) {
    let better =
        |best: (usize, usize), new: (usize, usize)| if new.1 > best.1 { new } else { best };
    counts.enumerate().reduce(better).unwrap_or((0, 0))
}

fn share(right: usize, part: &Part) -> f64 {
    right as f64 / part.labels.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_counts_the_first_is_chosen() {
        assert_eq!(best([3, 7, 5, 7].into_iter()), (1, 7));
        assert_eq!(best([0, 0].into_iter()), (0, 0));
    }
}
