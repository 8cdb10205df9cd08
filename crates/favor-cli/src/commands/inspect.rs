//! `favor inspect`.

use crate::failure::Outcome;
use crate::terminal::{self, Bar};
use favor_io::write_atomically;
use favor_lab::families;
use favor_lab::inspect::{InputScale, Request, inspect};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor inspect --queries q.npy --keys k.npy
  favor inspect --queries qkv.npz:q --keys qkv.npz:k --values qkv.npz:v --attention
  favor inspect --queries x.csv --keys x.csv --alpha -0.5 --families sde,balanced --json";

/// Say how well random features serve on given queries and keys.
///
/// For every head and family: the variance of the features in closed form, how many features an
/// error of 10 % needs, what was measured, and what to do. Files end in .npy, .npz, .safetensors or
/// .csv and hold rows × columns or heads × rows × columns.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Queries, as in q.npy, or file:array as in qkv.npz:q
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Keys, with as many heads and columns as the queries, as in k.npy
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Values, one row a key: adds the error of the attention output, as in v.npy
    #[arg(long, value_name = "FILE")]
    values: Option<String>,
    /// The kernel exp(A‖x‖² + xᵀy + A‖y‖²): 0 is softmax, -0.5 the Gaussian
    #[arg(long, value_name = "A", default_value_t = 0.0, allow_negative_numbers = true)]
    alpha: f64,
    /// Numbers of features to measure at, as in 64,256
    #[arg(long, value_name = "M,…", default_value = "64,256", value_delimiter = ',')]
    features: Vec<usize>,
    /// Families to compare: all, or names with commas, as in sde,balanced
    #[arg(long, value_name = "NAME,…", default_value = "all")]
    families: String,
    /// Multiply queries and keys by d^(-1/4), as attention does
    #[arg(long, conflicts_with = "scale")]
    attention: bool,
    /// Multiply queries and keys by a number, as in 0.5, or by "attention"
    #[arg(long, value_name = "S", value_parser = scale, allow_negative_numbers = true)]
    scale: Option<InputScale>,
    /// Print JSON at full precision instead of tables
    #[arg(long)]
    json: bool,
    /// Draw the variances as a figure, as in variance.svg
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Decides all draws and samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn scale(text: &str) -> Result<InputScale, String> {
    match text {
        "attention" => Ok(InputScale::Attention),
        _ => text
            .parse()
            .map(InputScale::Factor)
            .map_err(|_| "give a positive number or \"attention\"".to_owned()),
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = Request {
            values: self.values,
            alpha: self.alpha,
            scale: match self.attention {
                true => InputScale::Attention,
                false => self.scale.unwrap_or(InputScale::AsGiven),
            },
            features: self.features,
            families: families::parse(&self.families)?,
            seed: self.seed,
            ..Request::new(self.queries, self.keys)
        };
        let bar = Bar::new("inspect");
        let found = inspect(&request, &|tick| bar.show(tick))?;
        drop(bar);
        if let Some(path) = &self.plot {
            write_atomically(path, found.to_svg().as_bytes())?;
        }
        terminal::print(&if self.json { found.to_json() } else { found.to_text() })
    }
}
