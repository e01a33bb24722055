//! The command line: options of all commands, and the spellings of other programs.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, ValueEnum};

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
    about = "XFS images without root: inspect, check, extract, change",
    long_about = "Opens any XFS v5 image or block device without root, without mounting it and without a kernel \
    module.\n\n\
        IMAGE is a raw image, a block device or a qcow2 file, read and changed in place; a partition in it is found \
        by itself, or named by \
        --partition or --offset. Commands that show only read: a dirty log is replayed in memory, so that a crashed \
        volume reads as the kernel would show it, and the image stays untouched. Commands that change lock the \
        image, replay a dirty log in place, and leave the volume cleanly unmounted.\n\n\
        PATH is a path in the image; IMAGE PATH may also be written IMAGE:PATH. Paths of files that exist may hold \
        patterns, which are expanded with the names in the image as a shell does it: `*`, `?` and `[...]` within a \
        name, sorted; a dot at the start of a name only matches a dot. A path that exists as it is written is that \
        path, and a backslash takes away the meaning of the character behind it. Names of files that a command makes \
        are taken as they are: of mkdir, mknod, touch, write, truncate, fallocate (of touch and truncate not with -c), \
        and the last operand of cp, mv, ln and reflink.",
    after_help = "Exit codes: 0 done; 1 something failed, or part of it; 2 wrong usage. `xebec check` has those \
    of fsck: see its --help.\n\
        Every command has --help with examples.",
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options that all commands share.
    #[command(flatten)]
    pub global: Global,
}

/// Options that all commands share.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Use partition N, counted from 1 (found by itself where only one holds XFS).
    #[arg(long, value_name = "N", global = true, help_heading = "Image options")]
    pub partition: Option<u32>,
    /// The volume begins this many bytes into the image or the partition; suffixes k, m, g, t, and s for sectors of
    /// 512.
    #[arg(long, value_name = "BYTES", global = true, help_heading = "Image options", value_parser = sizes::parse)]
    pub offset: Option<u64>,
    /// The log lies on this device or in this file.
    #[arg(long, value_name = "PATH", global = true, help_heading = "Image options")]
    pub log_device: Option<PathBuf>,
    /// Show the image as it lies: do not replay a dirty log.
    #[arg(long, global = true, help_heading = "Image options")]
    pub no_replay: bool,
    /// Open the other files that a qcow2 image names: backing images, external data. They are only read.
    #[arg(long, global = true, help_heading = "Image options")]
    pub backing: bool,
    /// Bypass the page cache.
    #[arg(long, global = true, help_heading = "Image options")]
    pub direct: bool,
    /// How the image is read.
    #[arg(long, value_name = "HOW", global = true, help_heading = "Image options", default_value = "auto")]
    pub io: Io,
    /// Wait so long for another program that has the image open for writing (commands that change it).
    #[arg(long, value_name = "SECONDS", global = true, help_heading = "Image options")]
    pub wait: Option<u64>,
    /// Threads to use (all processors).
    #[arg(long, value_name = "N", global = true, help_heading = "Image options")]
    pub threads: Option<NonZeroUsize>,
    /// Write JSON, and messages as JSON objects on standard error (see docs/json.md).
    #[arg(long, global = true, help_heading = "Output options")]
    pub json: bool,
    /// Say less: no notes on standard error.
    #[arg(short, long, global = true, help_heading = "Output options", conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; create, extract, sync and trim say at the end how much they did.
    #[arg(short, long, global = true, help_heading = "Output options")]
    pub verbose: bool,
    /// Colours: on a terminal, unless NO_COLOR is set; always; or never.
    #[arg(long, value_name = "WHEN", global = true, help_heading = "Output options", default_value = "auto")]
    pub color: When,
}

impl Global {
    /// How long to wait for another program.
    pub fn wait(&self) -> Option<Duration> {
        self.wait.map(Duration::from_secs)
    }

    /// How many threads to use: as asked, else one per processor.
    pub fn thread_count(&self) -> usize {
        self.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
    }
}

/// How an image is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Io {
    /// io_uring where the kernel allows it, else pread.
    Auto,
    /// pread always.
    Pread,
    /// io_uring, or an error.
    Uring,
}

/// When to do something that suits only terminals.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `find` as people write it: words of its expression with one dash (`-name`), operators, and parentheses become
/// options.
pub fn with_find_spelling(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(find) = arguments.iter().position(|argument| argument == "find") else { return arguments };
    let mut rest = arguments.iter_mut().skip(find + 1);
    while let Some(argument) = rest.next() {
        let Some(word) = expression::spelled(argument).or_else(|| depth_word(argument)) else { continue };
        let takes_value = expression::takes_value(word).unwrap_or(true);
        *argument = format!("--{word}").into();
        if takes_value {
            // The value is left as it is, whatever it looks like.
            rest.next();
        }
    }
    arguments
}

/// The options of `find` that are no part of the expression.
fn depth_word(argument: &OsStr) -> Option<&str> {
    argument.to_str()?.strip_prefix('-').filter(|word| matches!(*word, "maxdepth" | "mindepth"))
}

/// `setfattr` as people write it: its `-v` is not that of all commands, but the value.
pub fn with_setfattr_spelling(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(command) = arguments.iter().position(|argument| argument == "setfattr") else {
        return arguments;
    };
    for argument in arguments.iter_mut().skip(command + 1).filter(|argument| *argument == "-v") {
        *argument = OsString::from("--value");
    }
    arguments
}

/// Prints what clap has to say: help on standard output, errors of usage on standard error.
pub fn usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let in_json = arguments.iter().skip(1).take_while(|a| *a != "--").any(|a| a == "--json");
    if in_json && error.use_stderr() {
        output::say_in_json();
        output::say(Level::Error, "", usage_line(error));
    } else {
        // A closed pipe is not worth another message.
        let _ = error.print();
    }
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let is_check = arguments.iter().skip(1).find(|a| !is_option(a)).is_some_and(|a| a == "check");
    ExitCode::from(if is_check { exit_code::CHECK_USAGE } else { exit_code::USAGE })
}

/// An error of usage in one line, without the usage itself.
pub fn usage_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing (see --help)".into();
    }
    let text = error.to_string();
    let is_said = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more information");
    let line = |part: &str| part.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let parts: Vec<_> = text.trim().split("\n\n").filter(is_said).map(line).collect();
    let line = parts.join("; ");
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn find_takes_its_tests_with_one_dash_or_two() {
        let spell = |words: &[&str]| {
            let given = words.iter().map(OsString::from).collect();
            with_find_spelling(given).iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            spell(&["xebec", "find", "a.img", "-name", "-x", "--type", "f"]),
            ["xebec", "find", "a.img", "--name", "-x", "--type", "f"]
        );
        assert_eq!(spell(&["xebec", "ls", "-ls"]), ["xebec", "ls", "-ls"]);
        let given = ["xebec", "setfattr", "a.img", "-n", "user.a", "-v", "b", "/f"].map(OsString::from);
        let spelled = with_setfattr_spelling(given.to_vec());
        assert!(spelled.contains(&"--value".into()) && Cli::try_parse_from(spelled).is_ok());
    }
}
