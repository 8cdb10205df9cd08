//! A matrix product by faer, as a measure of the machine.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};

/// Two square matrices of 32-bit numbers.
pub(super) struct Squares {
    a: Mat<f32>,
    b: Mat<f32>,
}

impl Squares {
    pub(super) fn new(n: usize) -> Self {
        let entry = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as f32 * 0.1;
        Self { a: Mat::from_fn(n, n, entry), b: Mat::from_fn(n, n, entry) }
    }

    /// Their product, its columns shared out among threads; returns one entry of each share.
    ///
    /// The threads are new each time and end with the product: faer's kernels may leave the vector
    /// registers of a thread in a state that slows down what comes after them.
    pub(super) fn multiply(&self, threads: Option<usize>) -> f32 {
        let n = self.a.nrows();
        let threads = threads.unwrap_or_else(rayon::current_num_threads).clamp(1, n);
        let width = n.div_ceil(threads);
        std::thread::scope(|scope| {
            let parts: Vec<_> = (0..n)
                .step_by(width)
                .map(|start| {
                    scope.spawn(move || {
                        let columns = width.min(n - start);
                        let mut c = Mat::<f32>::zeros(n, columns);
                        let right = self.b.as_ref().subcols(start, columns);
                        matmul(c.as_mut(), Accum::Replace, self.a.as_ref(), right, 1.0, Par::Seq);
                        c[(0, 0)]
                    })
                })
                .collect();
            parts.into_iter().filter_map(|part| part.join().ok()).sum()
        })
    }
}
