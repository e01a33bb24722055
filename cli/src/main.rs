//! `xebec`: XFS images without root: inspect, check, extract.
//!
//! | part | subject |
//! |---|---|
//! | `args` | the command line: commands and the options that all of them share |
//! | `open` | from a path on the command line to a volume: container, partition, journal |
//! | `operands`, `glob` | paths of files in an image, patterns expanded |
//! | `output` | standard output in big writes, messages on standard error, exit codes |
//! | `failure` | what failed, with its path and error number |
//! | `acl`, `flags` | access control lists and flags, as text |
//! | `names`, `times`, `owners`, `sizes` | how names, times, owners and sizes are written |
//! | `listing`, `walk` | a directory in memory, and a whole tree through `base::pipeline` |
//! | `json` | the envelope of JSON documents, arrays, messages |
//! | `interrupt` | signals while a file is made |
//! | `geometry` | a volume's sizes and features |
//! | `commands` | one file per command with its arguments, and the table of them all |
//!
//! # Invariants
//! Nothing here knows the disk format: it is asked of the crates below. An error of theirs becomes one line on
//! standard error. Names from an image reach a terminal only escaped, and a directory on this machine only checked.
#![forbid(unsafe_code)]

mod acl;
mod args;
mod commands;
mod excludes;
mod failure;
mod flags;
mod geometry;
mod glob;
mod image_operand;
mod interrupt;
mod json;
mod listing;
mod names;
mod open;
mod operands;
mod output;
mod owners;
mod sizes;
mod times;
mod values;
mod walk;

use std::process::ExitCode;

use clap::Parser as _;

/// Snapshots of the journal are made by one thread and freed by another, which the C library's allocator pays for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(asked) = commands::mount::helper::asked(&arguments) {
        return commands::mount::helper::run(asked);
    }
    let words = args::with_setfattr_spelling(args::with_find_spelling(arguments));
    let parsed = image_operand::with_image_first(words.clone()).and_then(args::Cli::try_parse_from);
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return args::usage(&error, &words),
    };
    if arguments.global.json {
        output::say_in_json();
    }
    let args::Cli { command, global } = arguments;
    output::exit((command.run)(&global), command.image.as_deref())
}
