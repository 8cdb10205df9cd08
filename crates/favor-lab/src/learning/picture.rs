//! Exact and approximate weights of a head side by side.

use super::Learning;
use super::image::{DIFFERENCES, WEIGHTS, data_uri};
use crate::{Error, Result};
use favor::reference::{Mask, exact_attention, hybrid_attention};
use favor::{ExactKeys, Matrix};
use favor_io::SequenceArrays;
use favor_io::numbers::percent;
use std::fmt::Write;

/// Tokens that are shown.
const SHOWN: usize = 128;

/// The part of the exact weights that the colours reach: the few above it have the last colour.
const COVERED: f64 = 0.995;

/// The weights of a head at the beginning of a held-out sequence.
pub(super) struct Picture {
    head: usize,
    rank: &'static str,
    after: f64,
    exact: Matrix<f64>,
    approximate: Matrix<f64>,
}

/// The heads with the least, the median and the largest error.
pub(super) fn pictures(learning: &Learning, arrays: &SequenceArrays) -> Result<Vec<Picture>> {
    let mut order: Vec<usize> = (0..learning.heads.len()).collect();
    let after = |h: usize| learning.heads[h].report.after;
    order.sort_by(|&a, &b| after(a).total_cmp(&after(b)));
    let last = order.len() - 1;
    let mut chosen = vec![("best", order[0])];
    if last > 1 {
        chosen.push(("median", order[last / 2]));
    }
    if last > 0 {
        chosen.push(("worst", order[last]));
    }
    let picture = |(rank, head)| {
        picture(learning, arrays, rank, head)
            .map_err(|reason| Error::at(format!("head {head}: "), reason))
    };
    chosen.into_iter().map(picture).collect()
}

fn picture(
    learning: &Learning,
    arrays: &SequenceArrays,
    rank: &'static str,
    head: usize,
) -> favor::Result<Picture> {
    let learned = &learning.heads[head];
    let [q, k] = [arrays.queries(), arrays.keys()].map(|x| learning.shown(x, head, SHOWN));
    let (q, k) = (q.view(), k.view());
    let (exact, causal) =
        learned.map.learned().map_or((ExactKeys::NONE, false), |l| (l.exact, l.causal));
    let mask = if causal { Mask::causal() } else { Mask::none() };
    // With unit vectors as values, outputs are the weights themselves.
    let unit = Matrix::identity(k.rows());
    Ok(Picture {
        head,
        rank,
        after: learned.report.after,
        exact: exact_attention(learned.map.kernel(), q, k, unit.view(), mask)?,
        approximate: hybrid_attention(&learned.map, exact, q, k, unit.view(), mask)?,
    })
}

impl Picture {
    /// Tokens that are shown.
    pub(super) fn tokens(&self) -> usize {
        self.exact.rows()
    }

    /// Three pictures with their colours.
    pub(super) fn to_html(&self) -> String {
        let (head, n) = (self.head, self.tokens());
        let top = self.top();
        let root = |w: f64| (w / top).max(0.0).sqrt();
        let shape = self.exact.shape();
        let weights = |m: &Matrix<f64>| Matrix::from_fn(shape.0, shape.1, |i, j| root(m[(i, j)]));
        let difference = Matrix::from_fn(shape.0, shape.1, |i, j| {
            let d = self.approximate[(i, j)] - self.exact[(i, j)];
            0.5 + 0.5 * d.signum() * root(d.abs())
        });
        let mut out = format!(
            "<h3>Head {head}, the {} one <span class=\"soft\">error of the output on held-out \
             sequences {}</span></h3>\n<div class=\"trio\">\n",
            self.rank,
            percent(self.after)
        );
        let digits = if top < 0.1 { 3 } else { 2 };
        let top = format!("{top:.digits$}");
        let cells = [
            ("exact", weights(&self.exact), WEIGHTS, ["0".to_owned(), top.clone()]),
            ("with features", weights(&self.approximate), WEIGHTS, ["0".to_owned(), top.clone()]),
            ("difference", difference, DIFFERENCES, [format!("−{top}"), format!("+{top}")]),
        ];
        for (name, places, ramp, [low, high]) in cells {
            let _ = writeln!(
                out,
                "<div><div class=\"card\"><img class=\"pixels\" width=\"{n}\" height=\"{n}\" \
                 alt=\"Attention weights of head {head}: {name}\" src=\"{}\"/></div>\
                 <p><b>{name}</b></p><p class=\"ramp\"><span>{low}</span>\
                 <i style=\"background:{}\"></i><span>{high}</span></p></div>",
                data_uri(&places, ramp),
                ramp.css()
            );
        }
        out + "</div>\n"
    }

    /// The weight that has the last colour.
    fn top(&self) -> f64 {
        let mut all: Vec<f64> =
            self.exact.as_slice().iter().copied().filter(|w| *w > 0.0).collect();
        all.sort_by(f64::total_cmp);
        let place = (COVERED * all.len() as f64) as usize;
        all.get(place.min(all.len().saturating_sub(1))).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_held_out;
    use super::*;
    use favor::diagnose::relative_error;
    use favor_io::Sequences;

    /// Without values, the error that learning measured is that of the weights.
    #[test]
    fn pictures_are_of_what_was_held_out() {
        for sequences in [4, 1] {
            let (learning, arrays) = one_held_out(sequences, false);
            for picture in pictures(&learning, &arrays).unwrap() {
                assert_eq!(picture.tokens(), 40);
                let error = relative_error(&picture.approximate, &picture.exact);
                // Learning computes in 32 bits.
                let off = (error - picture.after).abs();
                assert!(off < 1e-4, "{sequences} sequences: {error} for {}", picture.after);
            }
        }
    }

    /// Of four heads the median is the better one in the middle; of two there is none, and of one only the best.
    #[test]
    fn the_best_the_median_and_the_worst_head_are_shown() {
        let (one, arrays) = one_held_out(4, false);
        // Heads of the same map, with errors of a known order; the arrays are repeated for them.
        let chosen = |errors: &[f64]| -> Vec<(usize, &'static str)> {
            let mut learning = one.clone();
            learning.heads = errors
                .iter()
                .map(|error| {
                    let mut head = one.heads[0].clone();
                    head.report.after = *error;
                    head
                })
                .collect();
            let repeated = |x: &Sequences| {
                let [sequences, _, tokens, dim] = x.shape();
                let numbers = (0..sequences).flat_map(|s| {
                    let rows = x.head(s, 0);
                    errors.iter().flat_map(move |_| rows.as_slice().to_vec()).collect::<Vec<_>>()
                });
                let numbers = numbers.collect();
                Sequences::new(numbers, &[sequences, errors.len(), tokens, dim]).unwrap()
            };
            let (q, k) = (repeated(arrays.queries()), repeated(arrays.keys()));
            let arrays = SequenceArrays::new(q, k, None).unwrap();
            let all = pictures(&learning, &arrays).unwrap();
            for picture in &all {
                assert_eq!(picture.after, errors[picture.head]);
                let title = format!("Head {}, the {} one", picture.head, picture.rank);
                assert!(picture.to_html().contains(&title));
            }
            all.iter().map(|picture| (picture.head, picture.rank)).collect()
        };
        assert_eq!(chosen(&[0.3, 0.1, 0.4, 0.2]), [(1, "best"), (3, "median"), (2, "worst")]);
        assert_eq!(chosen(&[0.3, 0.1]), [(1, "best"), (0, "worst")]);
        assert_eq!(chosen(&[0.3]), [(0, "best")]);
    }

    #[test]
    fn few_large_weights_do_not_hide_the_others() {
        let exact = Matrix::from_fn(40, 40, |i, j| if (i, j) == (3, 4) { 1.0 } else { 0.01 });
        let picture =
            Picture { head: 2, rank: "best", after: 0.1, exact: exact.clone(), approximate: exact };
        assert_eq!(picture.top(), 0.01);
        let html = picture.to_html();
        assert_eq!(html.matches("data:image/png;base64,").count(), 3);
        assert!(html.contains("Head 2, the best one"));
    }
}
