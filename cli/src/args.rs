//! The command line: commands and the options that all of them share.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::edit::{
    self, Chattr, Chmod, Chown, Copy, Cowextsize, Extsize, Fallocate, Ln, Mkdir, Mknod, Mv, Project, Reflink,
    Rm, Rmdir, Setfacl, Setfattr, TarIn, Touch, Truncate, Write,
};
use crate::commands::find::expression;
use crate::commands::{
    On, cat, check, create, dump, extract, filefrag, find, generate, getfacl, getfattr, info, life, log, ls,
    lsattr, manifest, mkfs, mount, stat, tree,
};
use crate::output::{self, Level, exit_code};
use crate::sizes;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "xebec",
    version,
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

/// One command each; its arguments are declared in its own file.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show geometry, features, usage and the state of the log.
    Info(info::Arguments),
    /// List directories.
    Ls(On<ls::Arguments>),
    /// Draw a directory tree.
    Tree(tree::Arguments),
    /// Show what is known of files.
    Stat(On<stat::Arguments>),
    /// Write the contents of files to standard output.
    Cat(On<cat::Arguments>),
    /// Find files by name, type, size and more.
    Find(Box<find::Arguments>),
    /// Take files out, into a directory or a tar archive.
    Extract(extract::Arguments),
    /// Verify everything, and say what is damaged.
    Check(check::Arguments),
    /// Show the log: records, transactions, items.
    Log(log::Arguments),
    /// Show any structure, every field by name.
    Dump(dump::Arguments),
    /// Show where the blocks of files lie.
    Filefrag(On<filefrag::Arguments>),
    /// Show access control lists.
    Getfacl(On<getfacl::Arguments>),
    /// Show extended attributes.
    Getfattr(On<getfattr::Arguments>),
    /// Show flags and projects.
    Lsattr(On<lsattr::Arguments>),
    /// Write one line of JSON per file, for comparison.
    Manifest(manifest::Arguments),
    /// Make directories.
    Mkdir(On<Mkdir>),
    /// Make files, or set the times of those that exist.
    Touch(On<Touch>),
    /// Make hard and symbolic links.
    Ln(On<Ln>),
    /// Move and rename.
    Mv(On<Mv>),
    /// Remove files, and directories with everything in them.
    Rm(On<Rm>),
    /// Remove empty directories.
    Rmdir(On<Rmdir>),
    /// Change permissions.
    Chmod(On<Chmod>),
    /// Change owners and groups.
    Chown(On<Chown>),
    /// Write contents of a file.
    Write(On<Write>),
    /// Copy files into an image, out of it, or within it.
    Cp(Copy),
    /// Take an archive into the volume.
    TarIn(On<TarIn>),
    /// Write a directory as a tar stream to standard output.
    TarOut(extract::TarOut),
    /// Cut files off, or make them longer.
    Truncate(On<Truncate>),
    /// Reserve blocks for files, take them away, shift what is behind.
    Fallocate(On<Fallocate>),
    /// Make files share their blocks.
    Reflink(On<Reflink>),
    /// Change access control lists.
    Setfacl(Box<On<Setfacl>>),
    /// Set and remove extended attributes.
    Setfattr(On<Setfattr>),
    /// Change flags: immutable, append only and others.
    Chattr(On<Chattr>),
    /// Give files a project.
    Project(On<Project>),
    /// Set the unit in which space is allocated.
    Extsize(On<Extsize>),
    /// Set the unit in which is allocated what is copied on write.
    Cowextsize(On<Cowextsize>),
    /// Make device nodes, named pipes and sockets.
    Mknod(On<Mknod>),
    /// Run many commands that change a volume in one session.
    Sh(edit::shell::Arguments),
    /// Replay a dirty log in place, and leave the volume clean.
    Replay(edit::replay::Arguments),
    /// Make a volume a directory of this machine, for any program.
    Mount(mount::Arguments),
    /// Unmount a volume.
    Umount(mount::umount::Arguments),
    /// Show what a mount has done so far.
    Status(mount::status::Arguments),
    /// Make a volume larger.
    Grow(life::size::Grow),
    /// Make a volume smaller, by the free space at its end.
    Shrink(life::size::Shrink),
    /// Make a volume as small as it can be.
    Minimize(life::size::Minimize),
    /// Make holes in an image file where space is free.
    Trim(life::trim::Trim),
    /// Show the label, or set it.
    Label(life::identity::Label),
    /// Show the UUID, or set it.
    Uuid(life::identity::Uuid),
    /// Show features, or add some.
    Features(life::identity::Features),
    /// Copy an image, with a UUID of its own.
    Clone(life::clone::Clone),
    /// Make a tree in an image equal to a directory, by what differs alone.
    Sync(Box<life::sync::Arguments>),
    /// Make an image from directories and archives.
    Create(Box<create::Arguments>),
    /// Make a new volume, as mkfs.xfs does.
    Mkfs(Box<mkfs::Arguments>),
    /// Write completions for a shell.
    Completions(generate::Completions),
    /// Write manual pages.
    Man(generate::Man),
}

impl Command {
    /// The image that it works on, if it works on one.
    pub fn image(&self) -> Option<&Path> {
        Some(match self {
            Self::Info(arguments) => &arguments.image,
            Self::Ls(on) => &on.image,
            Self::Tree(arguments) => &arguments.image,
            Self::Stat(on) => &on.image,
            Self::Cat(on) => &on.image,
            Self::Find(arguments) => &arguments.image,
            Self::Extract(arguments) => &arguments.image,
            Self::Check(arguments) => &arguments.image,
            Self::Log(arguments) => &arguments.image,
            Self::Dump(arguments) => &arguments.image,
            Self::Filefrag(on) => &on.image,
            Self::Getfacl(on) => &on.image,
            Self::Getfattr(on) => &on.image,
            Self::Lsattr(on) => &on.image,
            Self::Manifest(arguments) => &arguments.image,
            Self::Mkdir(on) => &on.image,
            Self::Touch(on) => &on.image,
            Self::Ln(on) => &on.image,
            Self::Mv(on) => &on.image,
            Self::Rm(on) => &on.image,
            Self::Rmdir(on) => &on.image,
            Self::Chmod(on) => &on.image,
            Self::Chown(on) => &on.image,
            Self::Write(on) => &on.image,
            Self::TarIn(on) => &on.image,
            Self::TarOut(arguments) => &arguments.image,
            Self::Truncate(on) => &on.image,
            Self::Fallocate(on) => &on.image,
            Self::Reflink(on) => &on.image,
            Self::Setfacl(on) => &on.image,
            Self::Setfattr(on) => &on.image,
            Self::Chattr(on) => &on.image,
            Self::Project(on) => &on.image,
            Self::Extsize(on) => &on.image,
            Self::Cowextsize(on) => &on.image,
            Self::Mknod(on) => &on.image,
            Self::Sh(arguments) => &arguments.image,
            Self::Replay(arguments) => &arguments.image,
            Self::Mount(arguments) => &arguments.image,
            Self::Grow(arguments) => &arguments.image,
            Self::Shrink(arguments) => &arguments.image,
            Self::Minimize(arguments) => &arguments.image,
            Self::Trim(arguments) => &arguments.image,
            Self::Label(arguments) => &arguments.image,
            Self::Uuid(arguments) => &arguments.image,
            Self::Features(arguments) => &arguments.image,
            Self::Clone(arguments) => &arguments.image,
            Self::Sync(arguments) => &arguments.target.image,
            Self::Create(arguments) => &arguments.image,
            Self::Mkfs(arguments) => &arguments.image,
            Self::Umount(arguments) => &arguments.directory,
            Self::Status(arguments) => &arguments.directory,
            // `cp` works on two sides, and each of its messages names the image it is about.
            Self::Cp(_) | Self::Completions(_) | Self::Man(_) => return None,
        })
    }
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
