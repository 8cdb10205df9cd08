//! Several texts, padded to one length.

use crate::attention::KeyMask;
use crate::batches::like_length;
use crate::{Error, Result};
use burn::tensor::Tensor;

/// Tokens that long texts of a batch may have, in tokens for each of its texts.
const TOKENS: usize = 512;

/// The tokens of one text or of a pair of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens.
    pub ids: Vec<u32>,
    /// 0 for the first text of a pair, 1 for the second.
    pub types: Vec<u32>,
    /// Whether there was more than was kept.
    pub cut: bool,
}

impl Encoded {
    /// A single text of these tokens.
    pub fn new(ids: Vec<u32>) -> Self {
        Self { types: vec![0; ids.len()], ids, cut: false }
    }
}

/// Texts that go through a model together.
///
/// ```
/// use favor_nn::text::Batch;
/// let batch = Batch::new(vec![vec![2, 7, 8, 3], vec![2, 9, 3]])?;
/// assert_eq!((batch.len(), batch.length()), (2, 4));
/// assert_eq!(batch.ids(), [2, 7, 8, 3, 2, 9, 3, 0]);
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    ids: Vec<u32>,
    types: Vec<u32>,
    lengths: Vec<usize>,
    length: usize,
}

impl Batch {
    /// Single texts, of these tokens.
    pub fn new(texts: Vec<Vec<u32>>) -> Result<Self> {
        let encoded: Vec<Encoded> = texts.into_iter().map(Encoded::new).collect();
        Self::of(encoded.iter())
    }

    /// Texts or pairs, padded by zeros, which nobody looks at, to the length of the longest.
    pub fn of<'a>(texts: impl Iterator<Item = &'a Encoded> + Clone) -> Result<Self> {
        let lengths: Vec<usize> = texts.clone().map(|t| t.ids.len()).collect();
        let length = lengths.iter().copied().max().unwrap_or(0);
        if lengths.contains(&0) || length == 0 {
            return Err(Error::invalid("batch", "a text without any token"));
        }
        let pad = |part: fn(&Encoded) -> &[u32]| {
            let rows = texts.clone().flat_map(|t| {
                let row = part(t);
                row.iter().copied().chain(std::iter::repeat_n(0, length - row.len()))
            });
            rows.collect()
        };
        Ok(Self { ids: pad(|t| &t.ids), types: pad(|t| &t.types), lengths, length })
    }

    /// The number of texts.
    #[allow(clippy::len_without_is_empty)] // there is at least one
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// The number of tokens of each text, with padding.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The tokens, text after text, with padding.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The tokens, to be changed, as masking does.
    pub(crate) fn ids_mut(&mut self) -> &mut [u32] {
        &mut self.ids
    }

    /// The segments, text after text, with padding.
    pub fn types(&self) -> &[u32] {
        &self.types
    }

    /// The number of tokens of each text, without padding.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The rows that a model gives for texts, in the order of the texts. Those of like length go through
    /// it together, at most `size` at a time and fewer of long ones; `done` is told how many have, and in
    /// which batch the last of them.
    pub(crate) fn rows(
        texts: &[Encoded],
        size: usize,
        model: impl Fn(&Self) -> Result<Tensor<2>>,
        mut done: impl FnMut(usize, &Self),
    ) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
        let (mut out, mut count) = (vec![Vec::new(); texts.len()], 0);
        for group in like_length(&lengths, size.max(1), TOKENS * size.max(1)) {
            let batch = Self::of(group.iter().map(|i| &texts[*i]))?;
            let rows = model(&batch)?;
            let width = rows.dims()[1];
            let unread = |e| Error::invalid("model", format!("its output cannot be read: {e:?}"));
            let values = rows.try_into_vec_as::<f32>().map_err(unread)?;
            for (i, row) in group.iter().zip(values.chunks(width)) {
                out[*i] = row.to_vec();
            }
            count += group.len();
            done(count, &batch);
        }
        Ok(out)
    }

    /// False at padding.
    pub fn visible(&self) -> Vec<bool> {
        self.lengths.iter().flat_map(|l| (0..self.length).map(move |i| i < *l)).collect()
    }

    /// The mask of the keys, if there is any padding.
    pub fn mask(&self) -> Option<KeyMask> {
        let padded = self.lengths.iter().any(|l| *l < self.length);
        padded.then(|| KeyMask::of_lengths(&self.lengths, self.length))
    }
}
