//! `xebec bench`: claims, measured beside peers in one run.
//!
//! | module | subject |
//! |---|---|
//! | `arguments` | the command line |
//! | `registry` | all experiments, and the publications that they follow |
//! | `subject` | who is measured: Xebec in two ways, its variants, other file systems |
//! | `tasks` | what several subjects do, with several numbers of threads |
//! | `claims` | experiments on any file system |
//! | `engine`, `contents` | changes of metadata, and file contents, as a library and in the kernel |
//! | `commands`, `create` | commands and their peers |
//! | `mounted` | mounts of different file systems |
//! | `bench_volume` | a volume of Xebec or a directory of another file system, with the same operations |
//! | `peers` | programs that are measured beside Xebec, and what is missing of them |
//! | `sharing` | cache lines that operations share, from memory traces |
//! | `measure` | one run of a command: time, CPU time, peak memory |
//! | `images` | images of the commands |
//! | `child` | processes that a measurement starts |
//! | `recorder`, `progress` | collects what was measured, and shows how far the run is |
//! | `cleanup` | removal of what a killed run would leave |
//!
//! # Method
//! Xebec and its peers run in turns, so that other load on the machine affects all. A full measurement does not count
//! the first run of each. The report gives medians with the lowest and the highest run, and ratios of the medians,
//! which depend less on the machine than absolute numbers do.
#![forbid(unsafe_code)]

pub mod arguments;
mod bench_volume;
mod child;
mod claims;
pub mod cleanup;
mod commands;
mod contents;
mod create;
mod engine;
mod images;
mod measure;
mod mounted;
mod peers;
mod progress;
mod rate_device;
mod recorder;
mod registry;
mod run;
mod scale;
mod sharing;
mod subject;
mod tasks;

pub use arguments::{Arguments, Settings};
pub use report::Report;
pub use run::{is_interruption, run, serve};
