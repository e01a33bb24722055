//! `xebec`: the command line.
//!
//! | part | subject |
//! |---|---|
//! | `args` | the command line: options of all commands, spellings of other programs |
//! | `open` | from a path on the command line to a volume: container, partition, journal |
//! | `operands`, `glob` | paths of files in an image, patterns expanded |
//! | `output` | standard output in big writes, messages on standard error, exit codes |
//! | `failure` | error messages with their path and errno |
//! | `acl`, `flags` | access control lists and inode flags as text |
//! | `names`, `times`, `owners`, `sizes` | formatting of names, times, owners and sizes |
//! | `urls` | volumes that URLs name, where a command line names files |
//! | `progress` | progress bar and messages of imports and extractions |
//! | `walk` | output of parallel walks of a tree |
//! | `json` | the envelope of JSON documents, arrays, messages |
//! | `interrupt` | removal of unfinished files on signals |
//! | `limits` | limits of this process |
//! | `memory` | memory of this process: the environment variable `XEBEC_MEMORY` |
//! | `geometry` | geometry and features of a volume |
//! | `commands` | one file per command with its arguments, and the table of them all |
//!
//! # Invariants
//! Nothing here knows the disk format. An error becomes one line on standard error. Names from an image are escaped
//! before they are written to a terminal, and checked before they are created on the host.
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
mod limits;
mod memory;
mod names;
mod open;
mod operands;
mod output;
mod owners;
mod progress;
mod sizes;
mod times;
mod urls;
mod values;
mod walk;

use std::process::ExitCode;

use clap::Parser as _;

/// Log snapshots are allocated by one thread and freed by another, which is slow in the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match bench::serve() {
        Ok(false) => {}
        served => return output::exit(served.map(|_| output::exit_code::OK), None),
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Err(error) = memory::read_environment() {
        return output::exit(Err(error), None);
    }
    let code = run(arguments);
    memory::record_peak();
    code
}

fn run(arguments: Vec<std::ffi::OsString>) -> ExitCode {
    if let Some(arguments) = commands::mount::helper::translate(&arguments) {
        return commands::mount::helper::run(arguments);
    }
    let words = args::rewrite_setfattr_value(args::rewrite_find_words(arguments));
    let words = args::rewrite_watch_interval(words);
    let parsed = image_operand::move_image_first(words.clone()).and_then(args::Cli::try_parse_from);
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return args::usage(&error, &words),
    };
    if arguments.global.json {
        output::use_json_messages();
    }
    let args::Cli { command, global } = arguments;
    output::exit((command.run)(&global), command.image.as_deref())
}
