//! The state of causal attention as numbers, in a file or in another format.

use super::block::Block;
use super::causal::State;
use super::{Hybrid, Shape};
use crate::engine::tile::Sums;
use crate::map::Cached;
use crate::store::{Array, File};
use crate::{Error, ExactKeys, Result};
use std::collections::HashSet;

/// Positions are stored as `f64`: beyond this they would not be whole.
const MOST_TOKENS: usize = 1 << 53;

fn name(place: usize, what: &str) -> String {
    format!("exact.{place}.{what}")
}

fn wide<R: Cached>(numbers: &[R]) -> impl Iterator<Item = f64> {
    numbers.iter().map(|x| x.to_f64())
}

/// The first `count` numbers of each row: how far rows are filled up depends on the processor.
fn cut_rows<R: Cached>(rows: &[R], width: usize, count: usize) -> Vec<f64> {
    rows.chunks(width).flat_map(|row| wide(&row[..count])).collect()
}

/// The same rows, filled up with zeros.
fn fill_rows<R: Cached>(numbers: &[R], count: usize, width: usize) -> Vec<R> {
    let mut rows = Vec::with_capacity(numbers.len() / count.max(1) * width);
    for row in numbers.chunks(count) {
        rows.extend_from_slice(row);
        rows.resize(rows.len() + width - count, R::ZERO);
    }
    rows
}

impl<R: Cached> State<R> {
    /// All but the sums, by name.
    fn to_numbers(&self) -> Vec<(&'static str, Vec<f64>)> {
        let Self { recent, lists, .. } = self;
        let members = &lists.members;
        let Shape { dim, dim_padded, features, columns, value_width, .. } = recent.shape;
        let blocks = [recent, &lists.first, &lists.worst];
        // What the blocks have, and then what the slots have.
        let all = |of_block: &dyn Fn(&Block<R>) -> Vec<f64>,
                   of_slot: &dyn Fn(usize) -> Vec<f64>|
         -> Vec<f64> {
            let slots = (0..members.slots()).flat_map(of_slot);
            blocks.into_iter().flat_map(of_block).chain(slots).collect()
        };
        let places = |p: &[usize]| p.iter().map(|p| *p as f64).collect();
        let keys = |m: usize| -> Vec<f64> {
            members.keys_as_rows(m).flat_map(|row| wide(&row[..dim]).collect::<Vec<_>>()).collect()
        };
        let per_feature = |numbers: &[R]| wide(&numbers[..features.min(numbers.len())]).collect();
        vec![
            ("counts", all(&|b| vec![b.len() as f64], &|m| vec![members.len(m) as f64])),
            ("positions", all(&|b| places(&b.positions), &|m| places(members.positions(m)))),
            ("keys", all(&|b| cut_rows(&b.keys, dim_padded, dim), &keys)),
            (
                "values",
                all(&|b| cut_rows(&b.values, value_width, columns), &|m| {
                    cut_rows(members.values_of(m), value_width, columns)
                }),
            ),
            (
                "constants",
                all(&|b| wide(&b.constants).collect(), &|m| wide(members.constants(m)).collect()),
            ),
            ("pending", wide(&self.scores).collect()),
            ("scores", (0..members.slots()).flat_map(|m| wide(members.scores(m))).collect()),
            ("known", vec![lists.known as f64]),
            ("errors", lists.errors().to_vec()),
            ("totals", per_feature(&lists.totals)),
            ("exponents", per_feature(&lists.exponents)),
        ]
    }

    /// All but the sums, as arrays whose names begin with the place of the head.
    pub(crate) fn to_arrays(&self, place: usize) -> Vec<Array<'static>> {
        let array = |(what, numbers): (&str, Vec<f64>)| {
            Array::f64(name(place, what), [numbers.len()], &numbers)
        };
        self.to_numbers().into_iter().map(array).collect()
    }

    /// Takes up what [`to_arrays`](Self::to_arrays) left after `tokens` tokens, in a state before its
    /// first token.
    pub(crate) fn restore<H>(
        &mut self,
        shape: Shape,
        file: &File<'_, H>,
        place: usize,
        tokens: usize,
    ) -> Result<()> {
        let read = |what: &str| file.f64(&name(place, what)).map(|(_, numbers)| numbers);
        self.take_numbers(shape, &read, tokens)
    }

    /// The same state in `f64`, with these sums.
    pub(crate) fn widened(
        &self,
        hybrid: &Hybrid<'_, f64>,
        columns: usize,
        sums: Sums<f64>,
    ) -> Result<State<f64>> {
        let numbers = self.to_numbers();
        let read = |what: &str| {
            let found = numbers.iter().find(|(name, _)| *name == what);
            found.map(|(_, numbers)| numbers.clone()).ok_or_else(|| bad(what))
        };
        let mut wide = State::new(hybrid, columns);
        wide.take_numbers(hybrid.shape(columns), &read, self.position)?;
        wide.sums = sums;
        Ok(wide)
    }

    fn take_numbers(
        &mut self,
        shape: Shape,
        read: &dyn Fn(&str) -> Result<Vec<f64>>,
        tokens: usize,
    ) -> Result<()> {
        let finite = |what: &str| -> Result<Vec<R>> {
            let numbers: Vec<R> = read(what)?.into_iter().map(R::from_f64).collect();
            if numbers.iter().all(|x| x.is_finite()) {
                Ok(numbers)
            } else {
                Err(bad("numbers of exact keys that are not finite"))
            }
        };
        let whole = |what: &str| -> Result<Vec<usize>> {
            let numbers = read(what)?;
            // NaN, signs and fractions do not come back from a whole number.
            if numbers.iter().all(|x| *x as usize as f64 == *x) {
                Ok(numbers.into_iter().map(|x| x as usize).collect())
            } else {
                Err(bad("counts or positions of exact keys that are not whole numbers"))
            }
        };
        let Shape { dim, dim_padded, features, width, columns, value_width } = shape;
        let slots = self.lists.members.slots();
        let counts = whole("counts")?;
        let total = counts.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n));
        let total = total.filter(|n| *n <= usize::MAX / 65536);
        let Some(total) = total.filter(|_| counts.len() == 3 + slots) else {
            return Err(bad("exact keys of the wrong number"));
        };
        let positions = whole("positions")?;
        let (keys, values) = (finite("keys")?, finite("values")?);
        let (constants, pending) = (finite("constants")?, finite("pending")?);
        let (scores, known) = (finite("scores")?, whole("known")?);
        let (errors, mut totals) = (read("errors")?, finite("totals")?);
        let mut exponents = finite("exponents")?;
        let fits = positions.len() == total
            && keys.len() == total * dim
            && values.len() == total * columns
            && constants.len() == total
            && scores.len() == counts[3..].iter().sum::<usize>()
            && known.len() == 1
            && errors.len() == counts[2]
            && errors.iter().all(|e| !e.is_nan())
            && totals.len() == exponents.len();
        if !fits {
            return Err(bad("exact keys of the wrong shape"));
        }
        let known = known[0];
        let of_lists = if known > 0 { features } else { 0 };
        let waiting = tokens.checked_sub(known).filter(|n| *n <= ExactKeys::BLOCK);
        let lists_matter = slots > 0 || counts[1..].iter().any(|n| *n > 0);
        let follows = tokens <= MOST_TOKENS
            && known <= tokens
            && known.is_multiple_of(ExactKeys::BLOCK)
            && totals.len() == of_lists
            && (waiting.is_some_and(|n| n <= counts[0]) || !lists_matter)
            && pending.len() == waiting.map_or(0, |n| n * slots)
            && in_place(&positions, &counts, known, tokens);
        if !follows {
            return Err(bad("exact keys that these tokens cannot have left"));
        }
        if let Some(last) = exponents.last().copied() {
            totals.resize(width, R::ZERO);
            exponents.resize(width, last);
        }
        let mut start = 0;
        let mut blocks = counts.iter().map(|&count| {
            let rows = start..start + count;
            start += count;
            let cut = |numbers: &[R], size: usize, width: usize| {
                fill_rows(&numbers[rows.start * size..rows.end * size], size, width)
            };
            let mut block = Block::new(shape);
            block.positions = positions[rows.clone()].to_vec();
            block.keys = cut(&keys, dim, dim_padded);
            block.values = cut(&values, columns, value_width);
            block.constants = cut(&constants, 1, 1);
            block
        });
        let lists = &mut self.lists;
        let (recent, first, worst) = (blocks.next(), blocks.next(), blocks.next());
        if let (Some(recent), Some(first), Some(worst)) = (recent, first, worst) {
            (self.recent, lists.first, lists.worst) = (recent, first, worst);
        }
        let mut scores = scores.into_iter();
        let members = blocks.map(|block| {
            let own: Vec<R> = scores.by_ref().take(block.len()).collect();
            (block, own)
        });
        let members: Vec<_> = members.collect();
        (lists.totals, lists.exponents) = (totals, exponents);
        (lists.known, self.scores) = (known, pending);
        lists.restore(members, errors);
        // A slot takes no more members than it has room for.
        if (0..slots).any(|m| lists.members.len(m) != counts[3 + m]) {
            return Err(bad("more members of a slot than exact keys were asked for"));
        }
        self.position = tokens;
        Ok(())
    }
}

/// Whether keys are where tokens leave them: recent ones up to the last token, first ones from the
/// first token on, and each of the others once in its list, among the keys that the lists know.
fn in_place(positions: &[usize], counts: &[usize], known: usize, tokens: usize) -> bool {
    let mut rest = positions;
    let mut lists = counts.iter().map(|count| {
        let (own, later) = rest.split_at(*count);
        rest = later;
        own
    });
    let (Some(recent), Some(first), Some(worst)) = (lists.next(), lists.next(), lists.next())
    else {
        return false;
    };
    let follow = |keys: &[usize], start: usize| (start..).zip(keys).all(|(p, key)| *key == p);
    let known_once = |keys: &[usize]| {
        let different: HashSet<_> = keys.iter().filter(|p| **p < known).collect();
        different.len() == keys.len()
    };
    recent.len().max(first.len()) <= tokens
        && follow(recent, tokens - recent.len())
        && follow(first, 0)
        && worst.iter().all(|p| *p >= first.len())
        && known_once(worst)
        && lists.all(known_once)
}

fn bad(reason: &str) -> Error {
    Error::invalid("decode state", reason.to_string())
}
