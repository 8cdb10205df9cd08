//! Which heads stay exact: those whose features do most harm.

use super::distil::distance;
use crate::Result;
use crate::bert::Bert;
use crate::text::Encoded;
use favor::ExactKeys;

/// A head by its layer and its number.
pub(super) type Head = (usize, usize);

/// The heads by which the loss on these texts falls most when one of them alone becomes exact.
pub(super) fn most_harmful(
    student: &Bert,
    teacher: &Bert,
    texts: &[Encoded],
    (count, size): (usize, usize),
    mut done: impl FnMut(u64, u64) -> Result<()>,
) -> Result<Vec<Head>> {
    let shape = |layer: &crate::bert::Layer| layer.attention.given().map_or(0, |g| g.exact().len());
    let all: Vec<Head> = student
        .encoder
        .layers
        .iter()
        .enumerate()
        .flat_map(|(l, layer)| (0..shape(layer)).map(move |h| (l, h)))
        .collect();
    let mut losses = Vec::with_capacity(all.len());
    for (i, head) in all.iter().enumerate() {
        let mut one = student.clone();
        keep_exact(&mut one, &[*head])?;
        losses.push((distance(&one, teacher, texts, size)?.loss(), *head));
        done(i as u64 + 1, all.len() as u64)?;
    }
    losses.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut heads: Vec<Head> = losses.into_iter().take(count).map(|(_, head)| head).collect();
    heads.sort_unstable();
    Ok(heads)
}

/// Makes these heads exact.
pub(super) fn keep_exact(model: &mut Bert, heads: &[Head]) -> Result<()> {
    for &(l, h) in heads {
        let attention = &mut model.encoder.layers[l].attention;
        let Some(given) = attention.given().cloned() else { continue };
        let mut exact = given.exact().to_vec();
        exact[h] = ExactKeys::ALL;
        attention.set_given(Some(given.with_exact(exact)))?;
    }
    Ok(())
}
