//! Frames of numbers.

use crate::{Error, Result};
use std::path::Path;

/// One utterance as frames with a fixed number of entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    values: Vec<f32>,
    dim: usize,
}

impl Features {
    /// The frames, concatenated.
    pub fn new(values: Vec<f32>, dim: usize) -> Result<Self> {
        if dim > 0 && values.len().is_multiple_of(dim) {
            Ok(Self { values, dim })
        } else {
            let reason = format!("{} numbers in frames of {dim}", values.len());
            Err(Error::invalid("features", reason))
        }
    }

    /// A NumPy file of ready-made features, `[frames, numbers]`.
    pub fn read(path: &Path) -> Result<Self> {
        let found = favor_io::arrays::read(path, None)
            .map_err(|e| Error::invalid("features", e.to_string().replace('\n', " ")))?;
        let [matrix] = found.heads() else {
            return Err(Error::file(path, "features are a matrix [frames, numbers]"));
        };
        let values = matrix.as_slice().iter().map(|v| *v as f32).collect();
        Self::new(values, matrix.columns())
    }

    /// The number of frames.
    pub fn frames(&self) -> usize {
        self.values.len() / self.dim
    }

    /// The number of entries per frame.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The frames, concatenated.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The frame `t`.
    pub fn frame(&self, t: usize) -> &[f32] {
        &self.values[t * self.dim..][..self.dim]
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The frames `start..end`.
    pub fn part(&self, start: usize, end: usize) -> Self {
        Self { values: self.values[start * self.dim..end * self.dim].to_vec(), dim: self.dim }
    }

    /// Adds first and second differences, by the usual regression over two frames on either side.
    pub fn with_deltas(&self) -> Self {
        let first = self.delta();
        let second = first.delta();
        let rows = (0..self.frames())
            .flat_map(|t| [self.frame(t), first.frame(t), second.frame(t)].concat());
        Self { values: rows.collect(), dim: 3 * self.dim }
    }

    fn delta(&self) -> Self {
        let last = self.frames().saturating_sub(1);
        let at = |t: usize, by: isize| self.frame(t.saturating_add_signed(by).min(last));
        let rows = (0..self.frames()).flat_map(|t| {
            let [a, b, c, d] = [at(t, -2), at(t, -1), at(t, 1), at(t, 2)];
            let slope = move |i: usize| (2.0 * (d[i] - a[i]) + (c[i] - b[i])) / 10.0;
            (0..self.dim).map(slope)
        });
        Self { values: rows.collect(), dim: self.dim }
    }

    /// As if spoken faster by this factor: frames are interpolated.
    pub fn faster(&self, speed: f64) -> Self {
        let last = self.frames().saturating_sub(1);
        let frames = ((self.frames() as f64 / speed).round() as usize).max(1);
        let rows = (0..frames).flat_map(|t| {
            let place = (t as f64 * speed).min(last as f64);
            let (low, part) = (place.floor() as usize, place.fract() as f32);
            let (a, b) = (self.frame(low), self.frame((low + 1).min(last)));
            a.iter().zip(b).map(move |(a, b)| a + part * (b - a)).collect::<Vec<_>>()
        });
        Self { values: rows.collect(), dim: self.dim }
    }
}
