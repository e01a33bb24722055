//! Proof from memory traces: operations that commute share no cache line, except for listed reasons.
//!
//! Two operations commute if their results do not depend on their order. Then they can be implemented so that neither
//! touches memory that the other one writes (the scalable commutativity rule), and any number of CPUs can run them
//! without waiting for each other's cache lines. Each [pair](pairs::PAIRS) is run by two threads under valgrind, which
//! prints all memory accesses. A line that one thread writes and the other one touches needs a
//! [reason](reasons::Reason). `docs/design/sharing.md` has the method and the results.
//!
//! | module | subject |
//! |---|---|
//! | [`pairs`] | the table: pairs of operations, and why they share lines |
//! | [`reasons`] | the reasons |
//! | [`operations`], [`actor`] | calls of the engine, and the files and directories that they work on |
//! | [`target`] | the traced program: two threads that take turns |
//! | [`marks`] | how the program marks its operations in the trace |
//! | [`run`] | starts valgrind and the program |
//! | [`trace`], [`observe`] | the lines of a trace, and what is read from them |
//! | [`calls`], [`symbols`] | the functions that access a line |
//! | [`lines`] | transfers of lines between two caches |
//! | [`verdict`] | what a pair shares, compared with the table |
//! | [`model`], [`measure`] | predictions for many CPUs, and measurements to compare with |
//! | [`report`] | text and JSON |
#![forbid(unsafe_code)]

pub mod actor;
pub mod calls;
pub mod lines;
pub mod marks;
pub mod measure;
pub mod model;
pub mod observe;
pub mod operations;
pub mod pairs;
pub mod reasons;
pub mod report;
pub mod run;
pub mod symbols;
pub mod target;
pub mod trace;
pub mod verdict;

pub use run::judge;
