//! The crash simulator: records all writes of a run, simulates a power cut at each of them, and judges every state that
//! a cut may leave.
//!
//! | part | subject |
//! |---|---|
//! | [`Target`] | the file system under test: formats, opens, unmounts and judges volumes |
//! | [`Workload`], [`run()`], [`work`], [`RecordedRun`] | runs a workload in threads and records it |
//! | [`CrashState`], [`WriteFate`], [`states`], [`StateBuilder`] | which sectors of which writes survive |
//! | [`judge`], [`survived`], [`Depth`], [`Verdict`] | judges the recovery of one state |
//! | [`judge_run`], [`JudgeOptions`], [`Counts`] | judges all states of a run, in parallel |
//! | [`keep`] | keeps a failed state in a folder, to judge it again |
//! | [`engine`], [`shape`], [`standard`] | Xebec as the target, shapes of volumes, the standard workload of each seed |
//! | [`files`] | contents of Xebec's files as a subject of the model |
//! | [`mod@short`] | the workload of each seed in the campaign of short runs |
//! | [`stamped`] | file contents in which each sector identifies the write that it came from |
//! | [`Image`], [`ImageDevice`] | device contents in copy-on-write pages |
//!
//! # What is judged
//! After recovery in place and an unmount, the volume is sound, and the tree below each thread's directory matches the
//! model after some prefix of the thread's operations. The prefix contains all operations before the last completed
//! sync, and all that any thread had completed before a surviving operation of another thread began. For some states
//! the recovery itself is cut; a second recovery must then produce the same tree.
#![forbid(unsafe_code)]

mod campaign;
pub mod engine;
pub mod files;
mod image;
pub mod keep;
pub mod shape;
pub mod short;
pub mod stamped;
pub mod standard;
mod state;
mod target;
#[cfg(test)]
mod tests;
mod verdict;
mod workload;

pub use campaign::{Counts, FailedState, JudgeOptions, judge_run, judge_state};
pub use image::{Image, ImageDevice};
pub use state::{CrashState, StateBuilder, WriteFate, states, states_with_tears};
pub use target::Target;
pub use verdict::{Depth, Verdict, judge, survived};
pub use workload::{RecordedRun, SyncPoint, WorkResult, Workload, create_homes, prepare, run, run_on, work};
