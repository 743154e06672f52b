use clap::{Args, CommandFactory};
use clap_complete::Shell;

const EXAMPLES: &str = "Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions zsh > ~/.zfunc/_windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish";

/// Print the shell completions of this command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run<C: CommandFactory>(self) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "windlass", &mut script);
        crate::output::say(String::from_utf8_lossy(&script).trim_end());
    }
}
