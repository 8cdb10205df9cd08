//! Products of small matrices in cache: `C (+)= A B`.

// Indices name registers here; iterators over arrays of vectors would hide which.
#![allow(clippy::needless_range_loop)]

use super::lanes::{Constants, Lanes};
use super::prefetch::{Fetching, Prefetch};

/// Shapes and strides of a product. `A` may have any strides; `B` and `C` have contiguous rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gemm {
    /// Rows of `A` and `C`.
    pub(crate) rows: usize,
    /// Columns of `B` and `C`, a multiple of the vector length.
    pub(crate) columns: usize,
    /// Columns of `A`, rows of `B`.
    pub(crate) depth: usize,
    /// From one row of `A` to the next, and from one column to the next.
    pub(crate) a: (usize, usize),
    /// From one row of `B` to the next.
    pub(crate) b_row: usize,
    /// From one panel of two vectors of columns of `B` to the next.
    pub(crate) b_panel: usize,
    /// From one row of `C` to the next.
    pub(crate) c_row: usize,
    /// Add to `C` rather than overwrite it.
    pub(crate) accumulate: bool,
    /// Sum few rows in several parts, which is faster. Equal rows of `A` may then give unequal rows of `C`,
    /// so do not compare the results.
    pub(crate) in_parts: bool,
    /// What is prefetched meanwhile.
    pub(crate) prefetch: Prefetch,
}

/// # Safety
/// The processor must support `V`, and the slices behind the pointers must hold what `s` says.
#[inline(always)]
pub(super) unsafe fn gemm<V: Lanes>(
    s: &Gemm,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    let tiles = s.columns.div_ceil(2 * V::COUNT) * s.rows.div_ceil(V::TILE_ROWS);
    let mut prefetch = s.prefetch.spread(tiles);
    let mut column = 0;
    let mut panel = 0;
    while column < s.columns {
        // SAFETY: the panel lies inside B and C by the caller's promise.
        unsafe {
            let (b, c) = (b.add(panel * s.b_panel), c.add(column));
            if s.rows == 1 && !s.in_parts && s.columns - column >= 4 * V::COUNT {
                row_of_two_panels::<V>(s, a, b, c);
                column += 4 * V::COUNT;
                panel += 1;
            } else if s.columns - column >= 2 * V::COUNT {
                rows::<V, 2>(s, a, b, c, &mut prefetch);
                column += 2 * V::COUNT;
            } else {
                rows::<V, 1>(s, a, b, c, &mut prefetch);
                column += V::COUNT;
            }
        }
        panel += 1;
    }
}

/// All rows of one panel of columns.
///
/// # Safety
/// As for [`gemm`].
#[inline(always)]
unsafe fn rows<V: Lanes, const N: usize>(
    s: &Gemm,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
    prefetch: &mut Fetching,
) {
    let mut row = 0;
    while row < s.rows {
        prefetch.step::<V>();
        let left = s.rows - row;
        let step = [12, 8, 6, 4, 2, 1].into_iter().find(|&n| n <= left && n <= V::TILE_ROWS);
        // SAFETY: `step` rows are left, and the tile lies inside A and C by the caller's promise.
        unsafe {
            let (a, c) = (a.add(row * s.a.0), c.add(row * s.c_row));
            match step {
                Some(12) => tile::<V, 12, N, 1>(s, a, b, c),
                Some(8) => tile::<V, 8, N, 1>(s, a, b, c),
                Some(6) => tile::<V, 6, N, 1>(s, a, b, c),
                Some(4) => tile::<V, 4, N, 1>(s, a, b, c),
                Some(2) if s.in_parts => tile::<V, 2, N, 4>(s, a, b, c),
                Some(2) => tile::<V, 2, N, 1>(s, a, b, c),
                _ if s.in_parts => tile::<V, 1, N, 4>(s, a, b, c),
                _ => tile::<V, 1, N, 1>(s, a, b, c),
            }
        }
        row += step.unwrap_or(1);
    }
}

/// A single row of two panels of columns. One panel alone would be two chains of additions, which stall;
/// each sum is the same as there.
///
/// # Safety
/// As for [`gemm`].
#[inline(always)]
unsafe fn row_of_two_panels<V: Lanes>(
    s: &Gemm,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    // SAFETY: every address lies inside the caller's slices.
    unsafe {
        let mut sums = [V::splat(<V::Real as Constants>::ZERO); 4];
        for k in 0..s.depth {
            let factor = V::splat(*a.add(k * s.a.1));
            let b = b.add(k * s.b_row);
            for (n, sum) in sums.iter_mut().enumerate() {
                let b = b.add(n / 2 * s.b_panel + n % 2 * V::COUNT);
                *sum = factor.mul_add(V::load(b), *sum);
            }
        }
        for (n, sum) in sums.into_iter().enumerate() {
            let out = c.add(n * V::COUNT);
            let sum = if s.accumulate { V::load(out).add(sum) } else { sum };
            sum.store(out);
        }
    }
}

/// A tile of `M` rows and `N` vectors, held in registers, each summed in `U` parts: in a small tile a
/// single chain of additions would stall.
///
/// # Safety
/// As for [`gemm`].
#[inline(always)]
unsafe fn tile<V: Lanes, const M: usize, const N: usize, const U: usize>(
    s: &Gemm,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    // SAFETY: every address lies inside the caller's slices.
    unsafe {
        let zero = V::splat(<V::Real as Constants>::ZERO);
        let mut sums = [[[zero; N]; M]; U];
        // Rows of A in groups of four: one pointer per group, and three shared strides. One pointer per row
        // would not fit into the registers, one for all would be a chain of additions.
        let (row, three) = (s.a.0, 3 * s.a.0);
        let mut groups = [a; 3];
        for (g, group) in groups.iter_mut().enumerate() {
            *group = a.wrapping_add(4 * g * row);
        }
        let mut b = b;
        let mut step = |sums: &mut [[V; N]; M]| {
            let mut right = [zero; N];
            for n in 0..N {
                right[n] = V::load(b.add(n * V::COUNT));
            }
            for m in 0..M {
                let within = match m % 4 {
                    0 => 0,
                    1 => row,
                    2 => 2 * row,
                    _ => three,
                };
                let factor = V::splat(*groups[m / 4].wrapping_add(within));
                for n in 0..N {
                    sums[m][n] = factor.mul_add(right[n], sums[m][n]);
                }
            }
            for group in &mut groups {
                *group = group.wrapping_add(s.a.1);
            }
            b = b.wrapping_add(s.b_row);
        };
        for _ in 0..s.depth / U {
            for part in &mut sums {
                step(part);
            }
        }
        for part in sums.iter_mut().take(s.depth % U) {
            step(part);
        }
        for m in 0..M {
            for n in 0..N {
                let mut sum = sums[0][m][n];
                for part in 1..U {
                    sum = sum.add(sums[part][m][n]);
                }
                let out = c.add(m * s.c_row + n * V::COUNT);
                let sum = if s.accumulate { V::load(out).add(sum) } else { sum };
                sum.store(out);
            }
        }
    }
}

/// Shapes and strides of products with scattered rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    /// Columns of `B`, whole vectors or a single shorter one; its rows are contiguous.
    pub(crate) columns: usize,
    /// Columns of `A`, rows of `B`.
    pub(crate) depth: usize,
    /// From one row of `A` to the next.
    pub(crate) a_row: usize,
}

/// `C_{target n} = A_{row n} B` for scattered rows of `A` and targets in `C`.
///
/// # Safety
/// The processor must support `V`, and the slices behind the pointers must hold what `s`, `rows` and
/// `targets` say; there are as many targets as rows.
#[inline(always)]
pub(super) unsafe fn gather<V: Lanes>(
    s: &Gather,
    (rows, targets): (&[usize], &[usize]),
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    for column in (0..s.columns).step_by(V::COUNT) {
        let mut done = 0;
        while done < rows.len() {
            // SAFETY: the rows lie inside A and C by the caller's promise.
            unsafe {
                let some = (&rows[done..], &targets[done..]);
                let (b, c) = (b.add(column), c.add(column));
                done += match rows.len() - done {
                    6.. => gather_tile::<V, 6, 1>(s, some, a, b, c),
                    3.. => gather_tile::<V, 3, 2>(s, some, a, b, c),
                    2 => gather_tile::<V, 2, 4>(s, some, a, b, c),
                    _ => gather_tile::<V, 1, 8>(s, some, a, b, c),
                };
            }
        }
    }
}

/// A tile of `M` rows and one vector, each summed in `U` parts. Returns `M`.
///
/// # Safety
/// As for [`gather`].
#[inline(always)]
unsafe fn gather_tile<V: Lanes, const M: usize, const U: usize>(
    s: &Gather,
    (rows, targets): (&[usize], &[usize]),
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) -> usize {
    // SAFETY: every address lies inside the caller's slices.
    unsafe {
        let zero = V::splat(<V::Real as Constants>::ZERO);
        let mut sums = [[zero; M]; U];
        let mut left = [a; M];
        for m in 0..M {
            left[m] = a.add(rows[m] * s.a_row);
        }
        let step = |k: usize, sums: &mut [V; M]| {
            let right = V::load(b.add(k * s.columns));
            for m in 0..M {
                sums[m] = V::splat(*left[m].add(k)).mul_add(right, sums[m]);
            }
        };
        let whole = s.depth / U * U;
        for k in (0..whole).step_by(U) {
            for (u, part) in sums.iter_mut().enumerate() {
                step(k + u, part);
            }
        }
        for (k, part) in (whole..s.depth).zip(&mut sums) {
            step(k, part);
        }
        for m in 0..M {
            let mut sum = sums[0][m];
            for part in 1..U {
                sum = sum.add(sums[part][m]);
            }
            sum.store(c.add(targets[m]));
        }
        M
    }
}

/// `out += Σ_g Σ_{c < room} w_{g,c} x_{start g + c}` for rows of `x` as long as `out`, in vectors.
///
/// # Safety
/// The processor must support `V`; `weights` holds `room` numbers per start, `out` whole vectors, and `x`
/// all rows from each start on.
#[inline(always)]
pub(super) unsafe fn add_places<V: Lanes>(
    (room, starts): (usize, &[usize]),
    weights: *const V::Real,
    x: *const V::Real,
    (out, width): (*mut V::Real, usize),
) {
    let mut column = 0;
    while column < width {
        // SAFETY: every address lies inside the caller's slices.
        unsafe {
            let (x, out) = (x.add(column), out.add(column));
            if width - column >= 4 * V::COUNT {
                add_columns::<V, 4>((room, starts), weights, (x, width), out);
                column += 4 * V::COUNT;
            } else {
                add_columns::<V, 1>((room, starts), weights, (x, width), out);
                column += V::COUNT;
            }
        }
    }
}

/// `N` vectors of columns, summed in two parts.
///
/// # Safety
/// As for [`add_places`].
#[inline(always)]
unsafe fn add_columns<V: Lanes, const N: usize>(
    (room, starts): (usize, &[usize]),
    weights: *const V::Real,
    (x, stride): (*const V::Real, usize),
    out: *mut V::Real,
) {
    // SAFETY: every address lies inside the caller's slices.
    unsafe {
        let mut sums = [[V::splat(<V::Real as Constants>::ZERO); N]; 2];
        for (g, start) in starts.iter().enumerate() {
            let (weights, x) = (weights.add(g * room), x.add(start * stride));
            let mut step = |c: usize, part: usize| {
                let weight = V::splat(*weights.add(c));
                for n in 0..N {
                    let row = V::load(x.add(c * stride + n * V::COUNT));
                    sums[part][n] = weight.mul_add(row, sums[part][n]);
                }
            };
            for c in (0..room / 2 * 2).step_by(2) {
                step(c, 0);
                step(c + 1, 1);
            }
            if room % 2 == 1 {
                step(room - 1, 0);
            }
        }
        for n in 0..N {
            let out = out.add(n * V::COUNT);
            V::load(out).add(sums[0][n].add(sums[1][n])).store(out);
        }
    }
}

/// `C_ij = Σ_k A_ik B_jk` with contiguous rows on both sides; `depth` is whole vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GemmTransposed {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) a_row: usize,
    pub(crate) b_row: usize,
    pub(crate) c_row: usize,
}

/// # Safety
/// The processor must support `V`, and the slices behind the pointers must hold what `s` says.
#[inline(always)]
pub(super) unsafe fn inner<V: Lanes>(
    s: &GemmTransposed,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    for i in (0..s.rows).step_by(4) {
        for j in (0..s.columns).step_by(4) {
            // SAFETY: the block lies inside the slices; partial blocks take the narrow way.
            unsafe {
                let (a, b) = (a.add(i * s.a_row), b.add(j * s.b_row));
                let c = c.add(i * s.c_row + j);
                if s.rows - i >= 4 && s.columns - j >= 4 {
                    inner_tile::<V, 4>(s, a, b, c);
                } else {
                    for m in 0..(s.rows - i).min(4) {
                        for n in 0..(s.columns - j).min(4) {
                            let (a, b) = (a.add(m * s.a_row), b.add(n * s.b_row));
                            inner_tile::<V, 1>(s, a, b, c.add(m * s.c_row + n));
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
/// As for [`inner`], with `N` rows and columns left.
#[inline(always)]
unsafe fn inner_tile<V: Lanes, const N: usize>(
    s: &GemmTransposed,
    a: *const V::Real,
    b: *const V::Real,
    c: *mut V::Real,
) {
    // SAFETY: every address lies inside the caller's slices.
    unsafe {
        let zero = V::splat(<V::Real as Constants>::ZERO);
        let mut sums = [[zero; N]; N];
        for k in (0..s.depth).step_by(V::COUNT) {
            let mut right = [zero; N];
            for n in 0..N {
                right[n] = V::load(b.add(n * s.b_row + k));
            }
            for m in 0..N {
                let left = V::load(a.add(m * s.a_row + k));
                for n in 0..N {
                    sums[m][n] = left.mul_add(right[n], sums[m][n]);
                }
            }
        }
        for m in 0..N {
            for n in 0..N {
                *c.add(m * s.c_row + n) = sums[m][n].sum();
            }
        }
    }
}
