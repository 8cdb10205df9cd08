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
        let norm = gradient.iter().map(|g| g.to_f64().powi(2)).sum::<f64>().sqrt();
        if !norm.is_finite() {
            return;
        }
        self.step += 1;
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

    /// Five steps of PyTorch's, with rates of their own. Where it clips, it adds 1e-6 to the norm: the norms here are
    /// below one, or so large that this is nothing. The last number has gradients as small as what is added to the
    /// root of their mean square.
    ///
    /// ```python
    /// x = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    /// adam = torch.optim.Adam([x], betas=(0.9, 0.98))
    /// for rate, gradient in zip(RATES, GRADIENTS):
    ///     adam.param_groups[0]["lr"] = rate
    ///     x.grad = torch.tensor(gradient, dtype=torch.float64)
    ///     torch.nn.utils.clip_grad_norm_([x], 1.0)
    ///     adam.step()
    ///     print(x.tolist())
    /// ```
    #[test]
    fn steps_are_those_of_pytorch() {
        let rates = [0.01, 0.04, 0.07, 0.05, 0.02];
        let gradients = [
            [0.3, -0.2, 0.1, 1e-8],
            [3e9, 4e9, -1e10, 1e2],
            [-0.5, 0.25, 0.0, -2e-8],
            [2e10, -1e10, 5e9, 3e2],
            [0.01, 0.6, -0.4, 5e-9],
        ];
        let wanted = [
            [0.9900000003333334, -1.9900000005, 0.4900000009999999, 2.995],
            [0.9501567453666433, -2.002878979868418, 0.5164811505869125, 2.975608577651158],
            [0.9512332082928109, -2.0410481934893405, 0.5524775676702505, 2.9797562948805076],
            [0.928397064287829, -2.0380396256612405, 0.5661416478977334, 2.9738635331012855],
            [0.920538600581149, -2.044644041053388, 0.5747334164038312, 2.970890823367388],
        ];
        let start = [1.0, -2.0, 0.5, 3.0];
        let (mut adam, mut values) = (Adam::new(4), start);
        for (step, ((rate, gradient), wanted)) in
            rates.iter().zip(gradients).zip(wanted).enumerate()
        {
            // What is not a number is left out, as if there had been no such step.
            adam.step(&mut values, &[f64::NAN, 1.0, 1.0, 1.0], &start, *rate, 0.5);
            adam.step(&mut values, &gradient, &start, *rate, 0.0);
            for (v, w) in values.iter().zip(wanted) {
                // A few roundings per step, of numbers up to 3.
                let bound = 8.0 * (step + 1) as f64 * f64::EPSILON;
                assert!((v - w).abs() < bound, "step {step}: {v} for {w}");
            }
        }
    }

    /// Half a cosine up in a fifth of the steps, half a cosine down in the rest.
    #[test]
    fn the_rate_rises_and_falls_once() {
        let steps = 1000;
        let rates: Vec<f64> = (0..steps).map(|step| cycle(step, steps)).collect();
        assert!(rates[..200].is_sorted() && rates[200..].is_sorted_by(|a, b| a >= b));
        // (1 − cos 2x)/2 = sin² x, half a step from the start, from the peak on both sides, and from the end. The
        // cosine of numbers near 0 or π is rounded to 2⁻⁵³.
        let sine = |x: f64| (std::f64::consts::FRAC_PI_2 * x).sin().powi(2);
        let (rise, fall) = (0.5 / 200.0, 0.5 / 800.0);
        let wanted = [sine(rise), 1.0 - sine(rise), 1.0 - sine(fall), sine(fall)];
        for (at, wanted) in [0, 199, 200, 999].into_iter().zip(wanted) {
            assert!((rates[at] - wanted).abs() <= 2.0 * f64::EPSILON, "{at}: {}", rates[at]);
        }
        // The only step is at half the time, after three eighths of the fall.
        assert!((cycle(0, 1) - (1.0 - sine(0.375))).abs() <= 2.0 * f64::EPSILON);
    }

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
