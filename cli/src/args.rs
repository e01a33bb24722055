//! The command line: options of all commands, and the spellings of other programs.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, ValueEnum};
use remote::{CacheOptions, RemoteOptions};

use crate::commands::find::expression;
use crate::commands::table::{self, Command};
use crate::output::{self, Level, exit_code};
use crate::sizes;

/// The whole command line.
#[derive(Parser)]
#[command(
    name = "xebec",
    version,
    help_template = table::help_template(),
    about = "Create, inspect, check, extract and change XFS images without root",
    long_about = "Opens any XFS v5 image or block device without root, without mounting it and without a kernel \
    module.\n\n\
        IMAGE is a raw image, a block device, a qcow2 file, or a volume in a Ceph cluster \
        (rbd://POOL/IMAGE[@SNAPSHOT]) or on object storage (s3://BUCKET/PATH[@SNAPSHOT], gs://, az://, https://, \
        file:///PATH). If it is partitioned, the only partition with XFS is used; --partition or --offset select another. Commands that show a volume do not write to the \
        image: a dirty log is replayed in memory. Commands that change a volume lock the image, replay a dirty log \
        in place, and unmount the volume cleanly.\n\n\
        PATH is a path in the image; IMAGE PATH may also be written IMAGE:PATH. Paths of existing files may \
        contain shell patterns, which are expanded to names in the image, sorted: `*`, `?` and `[...]` within a \
        name; a leading dot must be matched explicitly. A path that exists literally is not expanded, and a \
        backslash quotes the next character. Names of files to be created are not expanded: operands of mkdir, \
        mknod, touch, write, truncate and fallocate (touch and truncate expand them with -c), and the last operand \
        of cp, mv, ln and reflink.",
    after_help = "Exit codes: 0 success; 1 failure, also partial failure; 2 usage error. `xebec check` uses those \
    of fsck.\n\
        The environment variable XEBEC_MEMORY is the memory for file data, metadata, inodes and names, in bytes, with \
    suffix k, m or g. By default it is a quarter of the machine's memory, or of the limit of the control group, and \
    at most 512m for commands other than mount. The command create always takes 128m, as images are reproducible.\n\
        `xebec COMMAND --help` shows options and examples.",
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Options of all commands.
    #[command(flatten)]
    pub global: Global,
}

/// Options of all commands.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Use partition N, counted from 1 (default: the only one with XFS).
    #[arg(long, value_name = "N", global = true, help_heading = "Image options")]
    pub partition: Option<u32>,
    /// Byte offset of the volume in the image or partition; suffixes k, m, g, t, and s for 512-byte sectors.
    #[arg(long, value_name = "BYTES", global = true, help_heading = "Image options", value_parser = sizes::parse)]
    pub offset: Option<u64>,
    /// Device or file with the external log.
    #[arg(long, value_name = "PATH", global = true, help_heading = "Image options")]
    pub log_device: Option<PathBuf>,
    /// Do not replay a dirty log: show the metadata on disk as it is.
    #[arg(long, global = true, help_heading = "Image options")]
    pub no_replay: bool,
    /// Allow a qcow2 image to refer to other files: backing images, external data. They are opened read-only.
    #[arg(long, global = true, help_heading = "Image options")]
    pub backing: bool,
    /// Use direct I/O, bypassing the page cache.
    #[arg(long, global = true, help_heading = "Image options")]
    pub direct: bool,
    /// I/O method for reading the image.
    #[arg(long, value_name = "HOW", global = true, help_heading = "Image options", default_value = "auto")]
    pub io: Io,
    /// Wait up to this long if another program has locked the image (commands that change it).
    #[arg(long, value_name = "SECONDS", global = true, help_heading = "Image options")]
    pub wait: Option<u64>,
    /// For volumes named by a URL: take the volume from another client that has it open, whose writes fail from then
    /// on.
    #[arg(long, global = true, help_heading = "Image options")]
    pub take_over: bool,
    /// For volumes named by a URL: how long to wait for the connection and for each request (default: 300 for object
    /// storage; for Ceph 30 for the monitors, and no limit for reads and writes).
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..),
        global = true,
        help_heading = "Image options"
    )]
    pub timeout: Option<u64>,
    /// For volumes on object storage: keep a cache of what is read and written in DIR, of at most SIZE (default 10g);
    /// least recently used parts are deleted first.
    #[arg(
        long,
        value_name = "DIR[,SIZE]",
        value_parser = parse_cache,
        global = true,
        help_heading = "Image options"
    )]
    pub cache: Option<CacheOptions>,
    /// Number of threads (default: number of processors). `bench` takes several, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', global = true, help_heading = "Image options")]
    pub threads: Vec<NonZeroUsize>,
    /// Write output as JSON, and messages as JSON objects to standard error (see docs/json.md).
    #[arg(long, global = true, help_heading = "Output options")]
    pub json: bool,
    /// Do not print notes on standard error.
    #[arg(short, long, global = true, help_heading = "Output options", conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more details; create, extract, sync and trim print a summary.
    #[arg(short, long, global = true, help_heading = "Output options")]
    pub verbose: bool,
    /// Colorize the output: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, value_name = "WHEN", global = true, help_heading = "Output options", default_value = "auto")]
    pub color: ColorChoice,
}

impl Global {
    /// How long to wait for the lock of the image.
    pub fn wait(&self) -> Option<Duration> {
        self.wait.map(Duration::from_secs)
    }

    /// How to open a volume that is named by a URL.
    pub fn remote(&self, writable: bool) -> RemoteOptions {
        let timeout = self.timeout.map(Duration::from_secs);
        let cache = self.cache.clone();
        RemoteOptions { writable, wait: self.wait(), take_over: self.take_over, timeout, cache }
    }

    /// Number of threads: `--threads`, or the number of processors.
    pub fn thread_count(&self) -> usize {
        let given = self.threads.first().copied();
        given.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
    }
}

/// Size of a cache that names none.
const CACHE_BYTES: u64 = 10 << 30;

fn parse_cache(text: &str) -> Result<CacheOptions, String> {
    let (folder, bytes) = match text.rsplit_once(',') {
        None => (text, CACHE_BYTES),
        Some((folder, size)) => (folder, sizes::parse(size)?),
    };
    if folder.is_empty() {
        return Err("it names no directory".into());
    }
    Ok(CacheOptions { folder: folder.into(), bytes })
}

/// I/O method for reading an image.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Io {
    /// io_uring if available, else pread.
    Auto,
    /// Always pread.
    Pread,
    /// io_uring; fail if it is not available.
    Uring,
}

/// When to colorize the output.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Rewrites an expression of find(1) for clap: words with one dash (`-name`), operators and parentheses become long
/// options.
pub fn rewrite_find_words(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(command) = arguments.iter().position(|argument| argument == "find") else { return arguments };
    let mut rest = arguments.iter_mut().skip(command + 1);
    while let Some(argument) = rest.next() {
        let Some(word) = expression::word_of(argument).or_else(|| depth_option(argument)) else { continue };
        let takes_value = expression::takes_value(word).unwrap_or(true);
        *argument = format!("--{word}").into();
        if takes_value {
            // Its value may look like an option.
            rest.next();
        }
    }
    arguments
}

/// The options of `find` outside of the expression.
fn depth_option(argument: &OsStr) -> Option<&str> {
    argument.to_str()?.strip_prefix('-').filter(|word| matches!(*word, "maxdepth" | "mindepth"))
}

/// Rewrites `-v` of setfattr(1), which conflicts with `--verbose`, to `--value`.
pub fn rewrite_setfattr_value(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(command) = arguments.iter().position(|argument| argument == "setfattr") else {
        return arguments;
    };
    for argument in arguments.iter_mut().skip(command + 1).filter(|argument| *argument == "-v") {
        *argument = OsString::from("--value");
    }
    arguments
}

/// Attaches the interval of `status --watch SECONDS MNT` to its option: a word after an option that may have no value
/// would be its value, or the mount point.
pub fn rewrite_watch_interval(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(command) = arguments.iter().position(|argument| argument == "status") else { return arguments };
    let rest = arguments.iter().enumerate().skip(command + 1);
    let Some(watch) = rest.take_while(|(_, a)| *a != "--").find(|(_, a)| *a == "--watch").map(|(at, _)| at)
    else {
        return arguments;
    };
    let operands = arguments.iter().skip(command + 1).filter(|argument| !is_option(argument)).count();
    let number =
        arguments.get(watch + 1).and_then(|word| word.to_str()).filter(|word| word.parse::<f64>().is_ok());
    // A single operand is the mount point, whatever its name.
    if let Some(number) = number.filter(|_| operands > 1) {
        let attached = format!("--watch={number}");
        arguments.splice(watch..watch + 2, [attached.into()]);
    }
    arguments
}

/// Prints help to standard output, or a usage error to standard error.
pub fn usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let in_json = arguments.iter().skip(1).take_while(|a| *a != "--").any(|a| a == "--json");
    if in_json && error.use_stderr() {
        output::use_json_messages();
        output::print_message(Level::Error, "", usage_line(error));
    } else {
        // Errors of a closed pipe are ignored.
        let _ = error.print();
    }
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let is_check = arguments.iter().skip(1).find(|a| !is_option(a)).is_some_and(|a| a == "check");
    ExitCode::from(if is_check { exit_code::CHECK_USAGE } else { exit_code::USAGE })
}

/// A usage error in one line, without the usage.
pub fn usage_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "missing command (see --help)".into();
    }
    let text = error.to_string();
    let is_usage =
        |paragraph: &&str| paragraph.starts_with("Usage:") || paragraph.starts_with("For more information");
    let paragraphs = text.trim().split("\n\n").filter(|paragraph| !is_usage(paragraph));
    let lines = paragraphs.map(|paragraph| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    let line = lines.collect::<Vec<_>>().join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).into()
}

fn is_option(argument: &OsStr) -> bool {
    argument.as_encoded_bytes().first() == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_interval_of_watch_is_attached() {
        let parse = |words: &[&str]| {
            let words = ["xebec", "status"].iter().chain(words).map(OsString::from).collect();
            rewrite_watch_interval(words)
                .iter()
                .skip(2)
                .map(|word| word.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(parse(&["--watch", "2", "mnt"]), ["--watch=2", "mnt"]);
        assert_eq!(parse(&["mnt", "--watch", "0.5", "--json"]), ["mnt", "--watch=0.5", "--json"]);
        assert_eq!(parse(&["--watch", "mnt"]), ["--watch", "mnt"]);
        assert_eq!(parse(&["--watch", "2"]), ["--watch", "2"]);
    }

    #[test]
    fn find_and_setfattr_spellings_are_rewritten() {
        let spell = |words: &[&str]| {
            let arguments = words.iter().map(OsString::from).collect();
            rewrite_find_words(arguments).iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            spell(&["xebec", "find", "a.img", "-name", "-x", "--type", "f"]),
            ["xebec", "find", "a.img", "--name", "-x", "--type", "f"]
        );
        assert_eq!(spell(&["xebec", "ls", "-ls"]), ["xebec", "ls", "-ls"]);
        let arguments = ["xebec", "setfattr", "a.img", "-n", "user.a", "-v", "b", "/f"].map(OsString::from);
        let rewritten = rewrite_setfattr_value(arguments.to_vec());
        assert!(rewritten.contains(&"--value".into()) && Cli::try_parse_from(rewritten).is_ok());
    }
}
