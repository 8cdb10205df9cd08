//! Adam with a one-cycle learning rate, pulled towards the start.

use crate::simd::Real;

const KEEP: (f64, f64) = (0.9, 0.98);
const LEAST: f64 = 1e-8;

/// The fraction of the steps in which the learning rate rises.
const RISE: f64 = 0.2;

/// The running means of the optimiser.
pub(super) struct Adam {
    first: Vec<f64>,
    second: Vec<f64>,
    step: i32,
}

impl Adam {
    pub(super) fn new(count: usize) -> Self {
        Self { first: vec![0.0; count], second: vec![0.0; count], step: 0 }
    }

    /// One step down the gradient, and a fraction `pull · rate` of the way back to the start.
    pub(super) fn step<R: Real>(
        &mut self,
        values: &mut [R],
        gradient: &[R],
        start: &[R],
        rate: f64,
        pull: f64,
    ) {
        self.step += 1;
        let norm = gradient.iter().map(|g| g.to_f64().powi(2)).sum::<f64>().sqrt();
        if !norm.is_finite() {
            return;
        }
        let clip = if norm > 1.0 { 1.0 / norm } else { 1.0 };
        let correct = |keep: f64| 1.0 - keep.powi(self.step);
        let (first, second) = (correct(KEEP.0), correct(KEEP.1));
        let means = self.first.iter_mut().zip(&mut self.second);
        for (((v, g), (m1, m2)), s) in values.iter_mut().zip(gradient).zip(means).zip(start) {
            let g = g.to_f64() * clip;
            *m1 = KEEP.0 * *m1 + (1.0 - KEEP.0) * g;
            *m2 = KEEP.1 * *m2 + (1.0 - KEEP.1) * g * g;
            let move_by = (*m1 / first) / ((*m2 / second).sqrt() + LEAST);
            let back = pull * (v.to_f64() - s.to_f64());
            *v = R::from_f64(v.to_f64() - rate * (move_by + back));
        }
    }
}

/// The learning rate of a step: up to one and down to zero, in one cycle.
pub(super) fn cycle(step: usize, steps: usize) -> f64 {
    let at = (step as f64 + 0.5) / steps as f64;
    let cosine = |t: f64| 0.5 - 0.5 * (std::f64::consts::PI * t).cos();
    if at < RISE { cosine(at / RISE) } else { 1.0 - cosine((at - RISE) / (1.0 - RISE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a gradient a step goes the fraction `pull · rate` of the way back; with one, it is also less far
    /// from the start than without the pull.
    #[test]
    fn the_pull_is_towards_the_start() {
        let (start, far) = ([1.0, -2.0, 0.5], [3.0, -2.5, 0.5]);
        let step = |gradient: [f64; 3], pull: f64| {
            let mut values = far;
            Adam::new(3).step(&mut values, &gradient, &start, 0.1, pull);
            values
        };
        for ((v, f), s) in step([0.0; 3], 0.6).iter().zip(far).zip(start) {
            assert!((v - s - (1.0 - 0.06) * (f - s)).abs() < 1e-12, "{v}");
        }
        assert_eq!(step([0.0; 3], 0.0), far);
        // The gradient leads away from the start; where the number is still at it, nothing pulls.
        let (free, pulled) = (step([-1.0, 1.0, -1.0], 0.0), step([-1.0, 1.0, -1.0], 0.6));
        let distance = |values: [f64; 3], l: usize| (values[l] - start[l]).abs();
        assert!((0..2).all(|l| distance(pulled, l) < distance(free, l)), "{pulled:?} {free:?}");
        assert_eq!(pulled[2], free[2]);
    }
}
