//! What a near field does to the error: neighbours exactly, the rest by features.
//!
//! Next to the error for each width stand what the window alone would give, without anything of what
//! lies further off, and the plain mean of the values.

use crate::{Error, Result};
use favor::diagnose::relative_error;
use favor::reference::{attention_to, mean_of_values, window_keys};
use favor::{ExactKeys, Family, FeatureSpec, Kernel, Method, Moments};
use favor_figure::{Figure, Panel, Series};
use favor_inspect::head_attention;
use favor_io::numbers::percent;
use favor_io::progress::{Counter, Listener};
use favor_io::stats::mean;
use favor_io::table::Table;
use favor_io::{Head, HeadArrays};
use rayon::prelude::*;
use serde::Serialize;

/// Errors of features are means over this many draws.
const DRAWS: u64 = 5;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NearOptions {
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

impl Default for NearOptions {
    fn default() -> Self {
        Self {
            widths: vec![0, 32, 64, 128, 256],
            features: 128,
            family: Family::default(),
            causal: false,
            seed: 0,
        }
    }
}

setters! { NearOptions {
    widths: Vec<usize>,
    features: usize,
    family: Family,
    causal: bool,
    seed: u64,
} }

impl NearOptions {
    fn check(&self) -> Result<()> {
        if self.widths.is_empty() {
            return Err(Error::invalid("widths", "give at least one"));
        }
        if self.features == 0 {
            return Err(Error::invalid("features", "0 is too few; give at least 1"));
        }
        Ok(())
    }
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

/// What near fields of several widths give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NearReport {
    /// Number of features.
    pub features: usize,
    /// Whether attention was causal.
    pub causal: bool,
    /// Tokens.
    pub length: usize,
    /// One entry per width.
    pub widths: Vec<Width>,
    /// The error of the plain mean of the visible values, head by head.
    pub mean_of_values: Vec<f64>,
}

/// Measures the error of attention with near fields of several widths.
pub fn measure(
    arrays: &HeadArrays,
    options: &NearOptions,
    listener: &Listener<'_>,
) -> Result<NearReport> {
    options.check()?;
    let counter = Counter::new(listener, arrays.heads().len());
    let rows: Vec<Errors> = arrays
        .heads()
        .par_iter()
        .map(|head| {
            let errors = head_errors(options, head)?;
            counter.step("head");
            Ok(errors)
        })
        .collect::<Result<_>>()?;
    let column = |f: &dyn Fn(&Errors) -> f64| rows.iter().map(f).collect();
    let widths = options.widths.iter().enumerate().map(|(w, &width)| Width {
        width,
        with_features: column(&|r| r.with_features[w]),
        window_alone: (width > 0).then(|| column(&|r| r.window_alone[w])),
    });
    Ok(NearReport {
        features: options.features,
        causal: options.causal,
        length: arrays.heads().first().map_or(0, |h| h.queries.rows()),
        widths: widths.collect(),
        mean_of_values: column(&|r| r.mean_of_values),
    })
}

/// The errors of one head: one per width, and that of the mean.
struct Errors {
    with_features: Vec<f64>,
    window_alone: Vec<f64>,
    mean_of_values: f64,
}

fn head_errors(options: &NearOptions, head: &Head) -> Result<Errors> {
    let (q, k) = (&head.queries, &head.keys);
    let v = head.values.as_ref().ok_or_else(|| {
        Error::invalid("values", "there are none; the error of attention needs one per key")
    })?;
    if q.rows() != k.rows() {
        let reason = format!(
            "{} for {} queries; a window needs as many keys as queries, since both are positions in \
             one sequence",
            k.rows(),
            q.rows()
        );
        return Err(Error::invalid("keys", reason));
    }
    let (length, dim) = q.shape();
    let kernel = Kernel::attention(dim);
    let exact = head_attention(Method::Exact(kernel), q, k, v, options.causal)?;
    let (mq, mk) = (Moments::of(q.view())?, Moments::of(k.view())?);
    let mut with_features = vec![];
    let mut window_alone = vec![];
    for &near in &options.widths {
        let mut sum = 0.0;
        for draw in 0..DRAWS {
            let spec = FeatureSpec::new(options.family, options.features)
                .kernel(kernel)
                .seed(options.seed + draw);
            let map = [spec.fit(&mq, &mk)?];
            let method = Method::Hybrid { maps: &map, exact: &[ExactKeys::NONE.near(near)] };
            sum += relative_error(&head_attention(method, q, k, v, options.causal)?, &exact);
        }
        with_features.push(sum / DRAWS as f64);
        let keys = |i| window_keys(i, near, length, options.causal);
        let alone = attention_to(kernel, q.view(), k.view(), v.view(), keys)?;
        window_alone.push(relative_error(&alone, &exact));
    }
    let mean_of_values = relative_error(&mean_of_values(v.view(), length, options.causal), &exact);
    Ok(Errors { with_features, window_alone, mean_of_values })
}

impl NearReport {
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
             output, relative to the exact one:\n\n{}\nThe plain mean of the values has an error of {}.\n",
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
        Figure::new(format!("{kind} attention with an exact window"))
            .columns(1)
            .plot_size(620.0, 330.0)
            .panel(panel)
            .caption("Relative to exact attention; mean over the heads.")
            .to_svg()
    }
}
