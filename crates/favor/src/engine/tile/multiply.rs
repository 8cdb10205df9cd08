//! Products of the rows of a tile, by one kernel.

use crate::map::Panels;
use crate::simd::{Gemm, Kernels, Prefetch, Real};

/// `C = A · B` or `C += A · B` for the rows of a tile. Slices come with their row strides.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, R: Real> {
    kernels: &'a Kernels<R>,
    left: (&'a [R], usize),
    rows: usize,
    in_parts: bool,
    prefetch: Prefetch,
}

impl<'a, R: Real> Product<'a, R> {
    /// Products whose left side is `rows` rows of `left`.
    pub(crate) fn new(kernels: &'a Kernels<R>, left: (&'a [R], usize), rows: usize) -> Self {
        Self { kernels, left, rows, in_parts: false, prefetch: Prefetch::default() }
    }

    /// The same, while what is read next is fetched.
    pub(crate) fn prefetching(self, prefetch: Prefetch) -> Self {
        Self { prefetch, ..self }
    }

    /// `out = left · panels`.
    pub(crate) fn all_panels(self, panels: &Panels<R>, out: (&mut [R], usize)) {
        self.panels(panels, (0, panels.width), out);
    }

    /// `out = left · panels` for the columns `start..end` only, filled up to whole panels; `start` is a
    /// multiple of a panel. Returns their number.
    pub(crate) fn panels(
        self,
        panels: &Panels<R>,
        (start, end): (usize, usize),
        out: (&mut [R], usize),
    ) -> usize {
        let width = end.next_multiple_of(panels.panel).min(panels.width) - start;
        let data = &panels.data[start * panels.depth..(start + width) * panels.depth];
        let right = (panels.panel, panels.depth * panels.panel);
        self.run(width, panels.depth, (data, right), (out.0, out.1, false));
        width
    }

    /// `out = left · panels` for panels of an upper triangle, which begin where they are not zero.
    pub(crate) fn upper(self, panels: &Panels<R>, out: (&mut [R], usize)) {
        for start in (0..panels.width).step_by(panels.panel) {
            let data = &panels.data[start * panels.depth + start * panels.panel..];
            let part = Self { left: (&self.left.0[start..], self.left.1), ..self };
            let out = (&mut out.0[start..], out.1, false);
            part.run(panels.panel, panels.depth - start, (data, (panels.panel, 0)), out);
        }
    }

    /// `out = left · right`, where `right` has `depth` rows of its width.
    pub(crate) fn rows(self, depth: usize, right: (&[R], usize), out: &mut [R]) {
        self.plain_rows(depth, right, (out, false));
    }

    /// `out += left · right`, as for [`rows`](Self::rows).
    pub(crate) fn add_rows(self, depth: usize, right: (&[R], usize), out: &mut [R]) {
        self.plain_rows(depth, right, (out, true));
    }

    fn plain_rows(self, depth: usize, right: (&[R], usize), out: (&mut [R], bool)) {
        let (data, width) = right;
        let strides = (width, 2 * self.kernels.lanes);
        // One or two tokens alone: there are no equal rows elsewhere that should give the same.
        Self { in_parts: self.rows <= 2, ..self }.run(
            width,
            depth,
            (data, strides),
            (out.0, width, out.1),
        );
    }

    /// `right` comes with the strides of its rows and panels, `out` with that of its rows and whether
    /// the product is added to it.
    fn run(
        self,
        columns: usize,
        depth: usize,
        (right, (b_row, b_panel)): (&[R], (usize, usize)),
        (out, c_row, accumulate): (&mut [R], usize, bool),
    ) {
        let Self { kernels, left, rows, prefetch, .. } = self;
        let (a, in_parts) = ((left.1, 1), self.in_parts);
        let gemm =
            Gemm { rows, columns, depth, a, b_row, b_panel, c_row, accumulate, in_parts, prefetch };
        kernels.gemm(&gemm, left.0, right, out);
    }
}
