//! What a near field does to the error: neighbours exactly, the rest by features.
//!
//! Beside the error for each width stand what the window alone would give, without anything of what
//! lies further off, and the plain mean of the values.

use crate::inspect::Request as Files;
use crate::{Error, Result};
use favor::diagnose::relative_error;
use favor::{
    Family, FeatureSpec, Kernel, Matrix, Moments, Options, Tensor, attention,
    exact_attention_tensors,
};
use favor_figure::{Figure, Panel, Series};
use favor_io::numbers::percent;
use favor_io::progress::{Counter, Listener};
use favor_io::stats::mean;
use favor_io::table::Table;
use rayon::prelude::*;
use serde::Serialize;

/// Errors of features are means over this many draws.
const DRAWS: u64 = 5;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Files of queries, keys and values, each with the name of an array after a colon where there
    /// are several.
    pub files: [String; 3],
    /// Widths of the near field: keys before and behind each query.
    pub widths: Vec<usize>,
    /// Number of features.
    pub features: usize,
    /// The family of the maps, fitted to each head.
    pub family: Family,
    /// Whether queries see only keys that are not later.
    pub causal: bool,
    /// Decides the draws.
    pub seed: u64,
}

/// The errors of one width, relative to the exact output, head by head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Width {
    /// Keys before and behind each query that count exactly.
    pub width: usize,
    /// Window and features.
    pub with_features: Vec<f64>,
    /// The window alone; `None` without a window.
    pub window_alone: Option<Vec<f64>>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Number of features.
    pub features: usize,
    /// Whether attention was causal.
    pub causal: bool,
    /// Tokens.
    pub length: usize,
    /// One entry a width.
    pub widths: Vec<Width>,
    /// The error of the plain mean of the visible values, head by head.
    pub mean_of_values: Vec<f64>,
}

/// Measures the error of attention with near fields of several widths.
pub fn measure(request: &Request, listener: &Listener<'_>) -> Result<Found> {
    let Request { files: [q, k, v], widths, features, .. } = request;
    if widths.is_empty() || *features == 0 {
        return Err(Error::Invalid("give at least one width, and at least one feature".into()));
    }
    let files = Files { values: Some(v.clone()), ..Files::new(q, k) };
    let heads: Vec<_> = files.read()?.into_heads();
    let length = heads.first().map_or(0, |(q, _, _)| q.rows());
    if heads.iter().any(|(q, k, _)| q.rows() != k.rows()) {
        let reason = "a near field needs as many keys as queries: both are places in one sequence";
        return Err(Error::Invalid(reason.into()));
    }
    let counter = Counter::new(listener, heads.len());
    let rows: Vec<Errors> = heads
        .par_iter()
        .map(|head| {
            let errors = one(request, head)?;
            counter.step("head");
            Ok(errors)
        })
        .collect::<Result<_>>()?;
    let column = |f: &dyn Fn(&Errors) -> f64| rows.iter().map(f).collect();
    let widths = widths.iter().enumerate().map(|(w, &width)| Width {
        width,
        with_features: column(&|r| r.with_features[w]),
        window_alone: (width > 0).then(|| column(&|r| r.window_alone[w])),
    });
    let (features, causal) = (request.features, request.causal);
    Ok(Found {
        features,
        causal,
        length,
        widths: widths.collect(),
        mean_of_values: column(&|r| r.mean_of_values),
    })
}

type Head = (Matrix<f64>, Matrix<f64>, Matrix<f64>);

/// The errors of one head; one a width, and that of the mean.
struct Errors {
    with_features: Vec<f64>,
    window_alone: Vec<f64>,
    mean_of_values: f64,
}

fn one(request: &Request, (q, k, v): &Head) -> Result<Errors> {
    let (length, dim) = q.shape();
    let kernel = Kernel::attention(dim);
    let shape = |m: &Matrix<f64>| [1, 1, m.rows(), m.columns()];
    let tensors = || -> favor::Result<_> {
        Ok((
            Tensor::new(q.as_slice(), shape(q))?,
            Tensor::new(k.as_slice(), shape(k))?,
            Tensor::new(v.as_slice(), shape(v))?,
        ))
    };
    let (tq, tk, tv) = tensors()?;
    let options = Options { causal: request.causal, ..Options::default() };
    let matrix = |out: Vec<f64>| Matrix::new(out, length, v.columns());
    let exact = matrix(exact_attention_tensors(kernel, tq, tk, tv, &options)?)?;
    let (mq, mk) = (Moments::of(q.view())?, Moments::of(k.view())?);
    let mut with_features = vec![];
    let mut window_alone = vec![];
    for &near in &request.widths {
        let mut sum = 0.0;
        for draw in 0..DRAWS {
            let spec = FeatureSpec::new(request.family, request.features)
                .kernel(kernel)
                .seed(request.seed + draw);
            let map = [spec.fit(&mq, &mk)?];
            let out = attention(&map, tq, tk, tv, &Options { near, ..options })?;
            sum += relative_error(&matrix(out)?, &exact);
        }
        with_features.push(sum / DRAWS as f64);
        let alone = window(kernel, (q, k, v), near, request.causal)?;
        window_alone.push(relative_error(&alone, &exact));
    }
    let mean = window(kernel.scaled(1e-9)?, (q, k, v), length, request.causal)?;
    let mean_of_values = relative_error(&mean, &exact);
    Ok(Errors { with_features, window_alone, mean_of_values })
}

/// Exact attention to the window alone.
fn window(
    kernel: Kernel,
    (q, k, v): (&Matrix<f64>, &Matrix<f64>, &Matrix<f64>),
    near: usize,
    causal: bool,
) -> Result<Matrix<f64>> {
    let length = q.rows();
    let mut out = Matrix::zeros(length, v.columns());
    for i in 0..length {
        let end = if causal { i + 1 } else { (i + near + 1).min(length) };
        let keys = i.saturating_sub(near)..end;
        let log = |j: usize| kernel.log_value(q.row(i), k.row(j));
        let logs = keys.clone().map(log).collect::<favor::Result<Vec<f64>>>()?;
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|l| (l - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (j, w) in keys.zip(&weights) {
            let row = out.row_mut(i).iter_mut().zip(v.row(j));
            row.for_each(|(o, v)| *o += w / total * v);
        }
    }
    Ok(out)
}

impl Found {
    /// A table for people.
    pub fn to_text(&self) -> String {
        let worst = |v: &[f64]| v.iter().copied().fold(0.0, f64::max);
        let mut table = Table::new("window");
        for (group, name) in [
            ("window and features", "mean of heads"),
            ("window and features", "worst head"),
            ("window alone", "mean of heads"),
        ] {
            table.column(group, name);
        }
        for w in &self.widths {
            let alone = w.window_alone.as_deref().map_or("—".to_owned(), |a| percent(mean(a)));
            let all = &w.with_features;
            table.row(vec![format!("{}", w.width), percent(mean(all)), percent(worst(all)), alone]);
        }
        let kind = if self.causal { "Causal" } else { "Bidirectional" };
        format!(
            "{kind} attention, {} heads of {} tokens, {} features, mean of {DRAWS} draws.\nError of the \
             output, relative to the exact one:\n\n{}\nThe plain mean of the values has an error of {}. The engine widens windows to whole tiles of \
             its own; the window alone is as wide as it says.\n",
            self.mean_of_values.len(),
            self.length,
            self.features,
            table.render("  "),
            percent(mean(&self.mean_of_values)),
        )
    }

    /// JSON at full precision.
    pub fn to_json(&self) -> String {
        // Nothing in here that JSON cannot hold.
        serde_json::to_string_pretty(self).unwrap_or_else(|_| "null".to_owned()) + "\n"
    }

    /// Errors against the width.
    pub fn to_svg(&self) -> String {
        let points = |f: &dyn Fn(&Width) -> Option<f64>| {
            let all = self.widths.iter().filter_map(|w| Some((w.width as f64, f(w)?)));
            all.collect::<Vec<_>>()
        };
        let both = Series::new(
            format!("window and {} features", self.features),
            points(&|w| Some(mean(&w.with_features))),
        );
        let alone = Series::new("window alone", points(&|w| w.window_alone.as_deref().map(mean)));
        let panel = Panel::new("", "exact neighbours on each side", "error of the output")
            .series(both.emphasised())
            .series(alone)
            .reference("mean of the values", mean(&self.mean_of_values));
        let kind = if self.causal { "Causal" } else { "Bidirectional" };
        Figure::new(format!("{kind} attention with a near field"))
            .columns(1)
            .plot_size(620.0, 330.0)
            .panel(panel)
            .caption("Relative to exact attention; mean over the heads.")
            .to_svg()
    }
}
