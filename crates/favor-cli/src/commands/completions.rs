//! `favor completions`.

use crate::failure::Outcome;
use crate::terminal;
use clap_complete::Shell;

const EXAMPLES: &str = "Examples:
  favor completions bash > ~/.local/share/bash-completion/completions/favor
  favor completions zsh > ~/.zfunc/_favor
  favor completions fish > ~/.config/fish/completions/favor.fish";

/// Print a shell completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Shell to complete in
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "favor", &mut script);
        terminal::print(&String::from_utf8_lossy(&script))
    }
}
