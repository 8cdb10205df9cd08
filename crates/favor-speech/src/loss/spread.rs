//! Where labels are before anything is learned: spread evenly over the loud frames.
//!
//! A loss over all alignments says little as long as every alignment is as good as any other: the encoder
//! sees the same mixture of labels at every frame, and training stays there for dozens of epochs. A first
//! guess of the alignment, however rough, gets it out of there in a few (the "flat start" of hidden Markov
//! models).

use super::BLANK;
use crate::SUBSAMPLING;

/// A frame at least this many standard deviations below the mean loudness of its utterance is quiet.
const QUIET: f32 = 0.3;

/// The symbol of each frame after subsampling: the blank where `loudness` (before subsampling) is low, and
/// the labels in order, spread equally over the other frames.
pub(crate) fn spread(loudness: &[f32], labels: &[usize]) -> Vec<usize> {
    let blocks: Vec<f32> = loudness
        .chunks(SUBSAMPLING)
        .map(|block| block.iter().sum::<f32>() / block.len() as f32)
        .collect();
    let count = blocks.len() as f32;
    let mean = blocks.iter().sum::<f32>() / count;
    let deviation = (blocks.iter().map(|l| (l - mean).powi(2)).sum::<f32>() / count).sqrt();
    let quiet = |loudness: f32| loudness < mean - QUIET * deviation;
    let loud = blocks.iter().filter(|l| !quiet(**l)).count();
    let mut passed = 0;
    let symbol = |loudness: f32| {
        if labels.is_empty() || quiet(loudness) {
            return BLANK;
        }
        passed += 1;
        labels[(passed - 1) * labels.len() / loud]
    };
    blocks.into_iter().map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_share_the_loud_frames_in_their_order() {
        let loudness = |blocks: &[f32]| blocks.iter().flat_map(|l| [*l; SUBSAMPLING]).collect();
        let found: Vec<f32> = loudness(&[-2.0, 1.0, 1.5, -2.0, 1.0, 1.2, -2.0]);
        assert_eq!(spread(&found, &[7, 8]), [BLANK, 7, 7, BLANK, 8, 8, BLANK]);
        assert_eq!(spread(&found, &[5]), [BLANK, 5, 5, BLANK, 5, 5, BLANK]);
        assert_eq!(spread(&found, &[]), [BLANK; 7]);
        // If nothing is quiet, all frames are shared; the last block may be short.
        assert_eq!(spread(&[0.5; 13], &[3, 4]), [3, 3, 4, 4]);
        // Fewer frames than labels: some labels get none.
        assert_eq!(spread(&[0.5; 4], &[3, 4]), [3]);
    }
}
