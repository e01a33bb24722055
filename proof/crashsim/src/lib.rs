//! The crash simulator: a run on a device that remembers every write, the power cut at each of them, and a judgement of
//! every state that a cut could leave.
//!
//! | part | subject |
//! |---|---|
//! | [`Target`] | what is tested: something that formats, opens, unmounts and judges volumes |
//! | [`Workload`], [`run()`], [`work`], [`Run`] | threads at work, and all that is known of it afterwards |
//! | [`State`], [`Fate`], [`states`], [`Builder`] | what a cut leaves: which writes, and which of their sectors |
//! | [`judge`], [`survived`], [`Depth`], [`Verdict`] | whether one state recovers to a sound volume and a prefix of history |
//! | [`judge_run`], [`Choice`], [`Counts`] | all states of a run, in parallel |
//! | [`keep`] | a wrong state in a folder, to be judged again |
//! | [`engine`], [`shape`], [`standard`] | Xebec as the target, the shapes of its volumes, and what each seed does |
//! | [`files`] | contents of its files as a subject |
//! | [`mod@short`] | what each seed does where runs are short and many |
//! | [`stamped`] | contents of which each sector tells which write it is of |
//! | [`Image`], [`ImageDevice`] | pages that copies share |
//!
//! # What is judged
//! After recovery in place and an unmount, the volume has no damage, and the tree below each thread's directory is what
//! the model has after some prefix of what the thread did. The prefix holds all that a sync had made stable, and
//! whatever another thread had ended before a step began that survived. For some states the recovery itself is cut, and
//! must come to the same tree when it is done again.
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

pub use campaign::{Choice, Counts, Wrong, judge_run, one};
pub use image::{Image, ImageDevice};
pub use state::{Builder, Fate, State, states, states_with_tears};
pub use target::Target;
pub use verdict::{Depth, Verdict, judge, survived};
pub use workload::{Mark, Run, Worked, Workload, prepare, run, run_on, work};
