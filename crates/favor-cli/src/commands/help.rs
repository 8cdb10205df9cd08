//! `favor help`.

use super::man::find;
use crate::failure::{Failure, Outcome};
use crate::{terminal, topics};

/// Print help on a command or a topic.
#[derive(Debug, clap::Args)]
#[command(after_help = topics::list())]
pub(crate) struct Arguments {
    /// Command, such as 'reproduce uci', or topic [default: favor itself]
    #[arg(value_name = "COMMAND|TOPIC")]
    path: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        if let [name] = &self.path[..]
            && let Some(text) = topics::text(name)
        {
            return terminal::print(&text);
        }
        let mut all = crate::command();
        let topics: Vec<&str> = topics::names().collect();
        find(&mut all, &self.path, &topics)?;
        // As `--help` prints it, which decides between the long form and the short one.
        let line = ["favor"].into_iter().chain(self.path.iter().map(String::as_str));
        match crate::command().try_get_matches_from(line.chain(["--help"])) {
            Err(help) => help.print().map_err(Failure::Print),
            Ok(_) => Ok(()),
        }
    }
}
