//! Experiments on any file system, with any number of threads.
//!
//! | module | follows |
//! |---|---|
//! | [`fs_mark`] | Gorman 2011, Chinner 2014: files created, written and closed in directories |
//! | [`file_ops`] | Piggin 2010: open and close, create and unlink, `stat` |
//! | [`trees`] | Piggin 2010: trees whose metadata is compared by many threads |
//! | [`git`] | Piggin 2010: `git diff` on trees in memory |
//! | [`anonymous`], [`teardown`] | Piggin 2010: files without names, and processes that end with them |
//! | [`syncs`] | Kara and Chinner 2014: many syncs at once |
//! | [`finobt`] | Foster 2013: the cost of the finobt |
//! | [`cil`] | Chinner 2022, Wong 2023: commits, `fsync` with a full list, CPUs that come and go |
//! | [`fxmark`], [`applications`] | Min and others 2016: microbenchmarks, and patterns of applications |

pub mod anonymous;
pub mod applications;
pub mod cil;
pub mod file_ops;
pub mod finobt;
pub mod fs_mark;
pub mod fxmark;
pub mod git;
pub mod syncs;
pub mod teardown;
pub mod trees;
