//! The command line.

use std::path::PathBuf;

use clap::Args;
use report::Report;

/// Prints a report.
pub type PrintReport = dyn Fn(&Report) -> anyhow::Result<()>;

/// How the command line wants a run, beside its arguments.
pub struct Settings<'s> {
    /// Numbers of threads; by default 1, 2, 4, ... up to the CPUs, at most 64.
    pub threads: Vec<u32>,
    /// Prints the report as JSON, instead of the text of each task.
    pub print_json: Option<&'s PrintReport>,
    /// Whether the user wants the run to end: what was measured by then is reported.
    pub is_interrupted: &'s dyn Fn() -> bool,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without --on, Xebec is measured as a library and mounted, beside the kernel's XFS on a loop \
    mount, where the user may mount.\n\n\
    Examples:\n  \
    xebec bench --quick --html report.html          # everything, in about ten minutes\n  \
    xebec bench file-ops --threads 1,2,4,8\n  \
    xebec bench fs-mark fxmark --on /mnt/other      # beside the file system of a directory\n  \
    xebec bench file-ops cil --ab                   # each mechanism on and off\n  \
    xebec bench --list\n  \
    xebec bench --compare before.json after.json\n\n\
    Exit codes: 0 success; 1 failure, or interrupted; 2 usage error."
)]
pub struct Arguments {
    /// Experiments to run, or parts of them (`file-ops/stat`) [default: all].
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// List the experiments with their parts.
    #[arg(long, conflicts_with_all = ["experiments", "compare"])]
    pub list: bool,
    /// Also measure on the file system of a directory, or on a copy of an image.
    #[arg(long, value_name = "DIR|IMAGE")]
    pub on: Vec<PathBuf>,
    /// Measure Xebec also with each of its mechanisms switched off.
    #[arg(long)]
    pub ab: bool,
    /// Write a report with charts to a file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the results to a file.
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Compare two files of results instead of measuring.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub compare: Vec<PathBuf>,
    /// Show results of `xebec-sharing --json`, instead of tracing memory accesses.
    #[arg(long, value_name = "FILE")]
    pub sharing_results: Option<PathBuf>,
    /// Measure less: everything takes about ten minutes.
    #[arg(long)]
    pub quick: bool,
    /// Measured runs of each subject [default: 5, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Measure Xebec without peers, which needs no root.
    #[arg(long)]
    pub alone: bool,
    /// Largest number of inodes on a volume.
    #[arg(long, default_value_t = 10_000_000)]
    pub inodes: u32,
    /// Directory for images, which needs some GiB; they are in `xebec-bench` in it, and those of commands are kept
    /// [default: a temporary directory].
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Test the harness: the numbers mean nothing.
    #[arg(long, hide = true)]
    pub smoke: bool,
}
