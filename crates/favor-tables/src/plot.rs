//! Models and evaluations as figures.

use crate::evaluate::Evaluation;
use crate::model::Model;
use crate::{Error, Result, Setting};
use favor::learn::Task;
use favor_figure::{Figure, Panel, Scale, Series};

impl Model {
    /// What the folds say of the number of features, as SVG; not for Nadaraya–Watson.
    pub fn to_svg(&self) -> Result<String> {
        let Some(report) = &self.info.report else {
            let reason = "there is nothing to draw of nw: it has no folds; give another head";
            return Err(Error::request(Setting::Head, reason));
        };
        let target = self.info.target.as_ref().map_or("", |t| &t.name);
        let axis = match self.info.task {
            Task::Classify => "R² of the indicators, by cross-validation",
            _ => "R², by cross-validation",
        };
        let points: Vec<(f64, f64)> =
            report.curve.iter().map(|p| (p.features as f64, p.score)).collect();
        let marks = points.iter().map(|p| p.0).collect();
        let mut panel =
            Panel::new(format!("{} head on '{target}'", self.info.head), "features", axis)
                .x_scale(Scale::Log10)
                .x_marks(marks)
                .series(Series::new("first features of the model", points).emphasised());
        if let Some(doubled) = report.doubled {
            panel = panel.reference("twice as many, about", doubled);
        }
        Ok(Figure::new("What more features bring")
            .caption(
                "Cross-validated scores with the first features alone, each with its best penalty, from the \
                 sums of one fit.",
            )
            .panel(panel)
            .to_svg())
    }
}

impl Evaluation {
    /// Probabilities against frequencies, as SVG; for classes.
    pub fn to_svg(&self) -> Result<String> {
        let judged = self.judgement.as_ref().filter(|j| !j.reliability.is_empty());
        let Some(judged) = judged else {
            let reason = "there is nothing to draw: reliability is drawn of classes";
            return Err(Error::request(Setting::Probabilities, reason));
        };
        let points = judged.reliability.iter().map(|r| (r.probability, r.frequency)).collect();
        let error = judged.calibration_error.unwrap_or(0.0);
        let panel = Panel::new(
            format!("calibration error {error:.4} on {} rows", self.rows),
            "predicted probability",
            "frequency",
        )
        .y_limits(0.0, 1.0)
        .series(Series::new("calibrated", vec![(0.0, 0.0), (1.0, 1.0)]))
        .series(Series::new("the model", points).emphasised());
        Ok(Figure::new("Reliability").panel(panel).to_svg())
    }
}
