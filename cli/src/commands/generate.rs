//! `xebec completions` and `xebec man`: files for packages.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::{Stdout, exit_code};

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  xebec completions bash > /usr/share/bash-completion/completions/xebec")]
pub struct Completions {
    /// Shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec man | man -l -\n  xebec man --to /usr/share/man/man1")]
pub struct Man {
    /// Command; without one, the page of the program.
    command: Option<String>,
    /// Write all pages to this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    to: Option<PathBuf>,
}

/// Runs `completions`.
pub fn completions(arguments: &Completions) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "xebec", &mut script);
    let mut out = Stdout::buffered();
    out.write_all(&script)?;
    out.flush()?;
    Ok(exit_code::OK)
}

/// Runs `man`.
pub fn man(arguments: &Man) -> anyhow::Result<u8> {
    // `help` would add a second page for each command.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    if let Some(to) = &arguments.to {
        std::fs::create_dir_all(to)
            .and_then(|()| clap_mangen::generate_to(program, to))
            .with_context(|| format!("{}: cannot write the pages", to.display()))?;
        return Ok(exit_code::OK);
    }
    let page = match &arguments.command {
        Some(name) => {
            let command =
                program.find_subcommand(name).with_context(|| format!("no such command: `{name}`"))?;
            clap_mangen::Man::new(command.clone())
        }
        None => clap_mangen::Man::new(program),
    };
    let mut out = Stdout::buffered();
    page.render(&mut out)?;
    out.flush()?;
    Ok(exit_code::OK)
}
