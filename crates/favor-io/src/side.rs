//! Whether queries, keys and values fit.

use crate::Error;

/// The queries, the keys or the values.
pub(crate) trait Side {
    /// The size of an axis.
    fn size(&self, axis: usize) -> usize;

    /// Where the array came from.
    fn source(&self) -> Option<&str>;

    /// All sizes, for messages.
    fn sizes_in_words(&self) -> String;
}

/// An error if two arrays, each with what it is, differ in the size of this axis.
pub(crate) fn fit<S: Side>(
    left: (&str, &S),
    right: (&str, &S),
    axis: usize,
    rule: &'static str,
) -> Result<(), Error> {
    if left.1.size(axis) == right.1.size(axis) {
        return Ok(());
    }
    Err(Error::Misfit { left: describe(left), right: describe(right), rule })
}

fn describe<S: Side>((what, array): (&str, &S)) -> String {
    let source = array.source().map_or_else(String::new, |source| format!(" {source}"));
    format!("{what}{source} ({})", array.sizes_in_words())
}
