//! Sums in a fixed order that goes by vectors: for loops that are compiled for the processor at hand.

/// Numbers that are summed side by side.
const LANES: usize = 16;

#[inline(always)]
pub(crate) fn sum(x: &[f64]) -> f64 {
    let (mut lanes, (whole, rest)) = ([0.0; LANES], x.as_chunks::<LANES>());
    for x in whole {
        lanes.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
    }
    lanes.iter_mut().zip(rest).for_each(|(sum, x)| *sum += x);
    lanes.iter().sum()
}

/// The inner product of as many numbers each.
#[inline(always)]
pub(crate) fn inner<T: Copy + Into<f64>>(x: &[T], y: &[T]) -> f64 {
    let (mut lanes, (x, x_rest), (y, y_rest)) =
        ([0.0; LANES], x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let add = |sum: &mut f64, (x, y): (&T, &T)| *sum += (*x).into() * (*y).into();
    for (x, y) in x.iter().zip(y) {
        lanes.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, pair)| add(sum, pair));
    }
    lanes.iter_mut().zip(x_rest.iter().zip(y_rest)).for_each(|(sum, pair)| add(sum, pair));
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers have no rounding; lengths with and without a rest.
    #[test]
    fn sums_have_every_number_once() {
        for count in [0_u32, 1, 15, 16, 17, 40] {
            let x: Vec<f64> = (1..=count).map(f64::from).collect();
            let y: Vec<f32> = (1..=count).map(|i| i as f32).collect();
            let n = f64::from(count);
            assert_eq!(sum(&x), n * (n + 1.0) / 2.0);
            assert_eq!(inner(&x, &x), n * (n + 1.0) * (2.0 * n + 1.0) / 6.0);
            assert_eq!(inner(&y, &y), inner(&x, &x));
        }
    }
}
