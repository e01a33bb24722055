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
//! | `measure` | one run of a command: time, CPU time, peak memory |
//! | `images` | images of the commands |
//! | `machine` | description of the machine |
//! | `record`, `recorder` | what was measured |
//! | `report` | output as text, JSON and HTML |
//!
//! # Method
//! Xebec and its peers run in turns, so that other load on the machine affects all. A full measurement does not count
//! the first run of each. The report gives medians with the lowest and the highest run, and ratios of the medians,
//! which depend less on the machine than absolute numbers do.
#![forbid(unsafe_code)]

pub mod arguments;
mod bench_volume;
mod claims;
mod commands;
mod contents;
mod create;
mod engine;
mod images;
pub mod machine;
mod measure;
mod mounted;
mod rate_device;
pub mod record;
mod recorder;
mod registry;
pub mod report;
mod run;
mod scale;
mod subject;
mod tasks;

pub use arguments::{Arguments, Settings};
pub use run::{is_interruption, run, serve};
