//! The state of causal attention as arrays, and back.

use super::Shape;
use super::block::Block;
use super::causal::State;
use crate::map::Cached;
use crate::store::{Array, File};
use crate::{Error, Result};

fn name(place: usize, what: &str) -> String {
    format!("exact.{place}.{what}")
}

fn wide<R: Cached>(numbers: &[R]) -> impl Iterator<Item = f64> {
    numbers.iter().map(|x| x.to_f64())
}

impl<R: Cached> State<R> {
    /// All but the sums, as arrays whose names begin with the place of the head.
    pub(crate) fn to_arrays(&self, place: usize) -> Vec<Array<'static>> {
        let mut arrays = vec![];
        let mut put = |what: &str, numbers: Vec<f64>| {
            arrays.push(Array::f64(name(place, what), [numbers.len()], &numbers));
        };
        let Self { recent, lists, .. } = self;
        let members = &lists.members;
        let blocks = [recent, &lists.first, &lists.worst];
        // What the blocks have, and then what the slots have.
        let all = |of_block: &dyn Fn(&Block<R>) -> Vec<f64>,
                   of_slot: &dyn Fn(usize) -> Vec<f64>|
         -> Vec<f64> {
            let slots = (0..members.slots()).flat_map(of_slot);
            blocks.into_iter().flat_map(of_block).chain(slots).collect()
        };
        let places = |p: &[usize]| p.iter().map(|p| *p as f64).collect();
        put("counts", all(&|b| vec![b.len() as f64], &|m| vec![members.len(m) as f64]));
        put("positions", all(&|b| places(&b.positions), &|m| places(members.positions(m))));
        put(
            "keys",
            all(&|b| wide(&b.keys).collect(), &|m| {
                members.keys_as_rows(m).flat_map(|row| wide(&row).collect::<Vec<_>>()).collect()
            }),
        );
        put(
            "values",
            all(&|b| wide(&b.values).collect(), &|m| wide(members.values_of(m)).collect()),
        );
        put(
            "constants",
            all(&|b| wide(&b.constants).collect(), &|m| wide(members.constants(m)).collect()),
        );
        put("pending", wide(&self.scores).collect());
        put("scores", (0..members.slots()).flat_map(|m| wide(members.scores(m))).collect());
        put("known", vec![self.lists.known as f64]);
        put("errors", self.lists.errors().to_vec());
        put("totals", wide(&self.lists.totals).collect());
        put("exponents", wide(&self.lists.exponents).collect());
        arrays
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
        let bad = |reason: &str| Error::invalid("decode state", reason.to_string());
        let read = |what: &str| file.f64(&name(place, what)).map(|(_, numbers)| numbers);
        let finite = |what: &str| -> Result<Vec<R>> {
            let numbers: Vec<R> = read(what)?.into_iter().map(R::from_f64).collect();
            if numbers.iter().all(|x| x.is_finite()) {
                Ok(numbers)
            } else {
                Err(bad("numbers of exact keys that are not finite"))
            }
        };
        let counts: Vec<usize> = read("counts")?.into_iter().map(|n| n as usize).collect();
        let total = counts.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n));
        let total = total.filter(|n| *n <= usize::MAX / 65536);
        let Some(total) = total.filter(|_| counts.len() == 3 + self.lists.members.slots()) else {
            return Err(bad("exact keys of the wrong number"));
        };
        let positions: Vec<usize> = read("positions")?.into_iter().map(|p| p as usize).collect();
        let (keys, values) = (finite("keys")?, finite("values")?);
        let (constants, pending) = (finite("constants")?, finite("pending")?);
        let (scores, known) = (finite("scores")?, read("known")?);
        let (errors, totals) = (read("errors")?, finite("totals")?);
        let exponents: Vec<R> = read("exponents")?.into_iter().map(R::from_f64).collect();
        let fits = positions.len() == total
            && positions.iter().all(|p| *p < tokens)
            && keys.len() == total * shape.dim_padded
            && values.len() == total * shape.value_width
            && constants.len() == total
            && scores.len() == counts[3..].iter().sum::<usize>()
            && pending.len() <= counts[0] * self.lists.members.slots()
            && (self.lists.members.slots() == 0
                || pending.len().is_multiple_of(self.lists.members.slots()))
            && known.len() == 1
            && errors.len() == counts[2]
            && errors.iter().all(|e| !e.is_nan())
            && totals.len() == exponents.len()
            && [0, shape.width].contains(&totals.len())
            && exponents.iter().all(|e| !e.to_f64().is_nan());
        if !fits {
            return Err(bad("exact keys of the wrong shape"));
        }
        let mut start = 0;
        let mut blocks = counts.iter().map(|&count| {
            let rows = start..start + count;
            start += count;
            let cut =
                |numbers: &[R], size: usize| numbers[rows.start * size..rows.end * size].to_vec();
            let mut block = Block::new(shape);
            block.positions = positions[rows.clone()].to_vec();
            block.keys = cut(&keys, shape.dim_padded);
            block.values = cut(&values, shape.value_width);
            block.constants = cut(&constants, 1);
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
        (lists.known, self.scores) = (known[0] as usize, pending);
        lists.restore(members, errors);
        self.position = tokens;
        Ok(())
    }
}
