//! Rates of metadata changes, compared with the kernel's XFS on a loop mount.
//!
//! | part | subject |
//! |---|---|
//! | [`namespace`] | creating and removing files, by one thread and by several |
//! | [`commits`] | commits that change one inode |
//! | [`paths`] | `stat` and `open` of names in memory; the same with coarse locks |
//! | [`trees`] | listing with metadata; walks of a tree by many threads |
//! | [`tmpfiles`] | files without names |
//! | [`collisions`] | many names with one hash in a directory |
//! | [`finobt`] | allocating inodes on a volume with many inodes |
//! | [`recovery`] | replaying a full log |
//! | [`instructions`] | instructions of an operation |
//! | [`threads`] | work on several threads |
//!
//! Both sides use images of the same `mkfs` with the same options, in the page cache. The kernel needs a system call
//! for each change; the work on log and btrees is the same.

mod collisions;
mod commits;
mod finobt;
mod instructions;
mod namespace;
mod paths;
mod recovery;
pub mod threads;
mod tmpfiles;
mod trees;

use std::path::PathBuf;

use anyhow::Context;

use crate::table::{Experiment, Table};

pub use instructions::serve;

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// Measured runs of each volume.
    pub rounds: u32,
    /// Whether to leave out the kernel.
    pub alone: bool,
    /// Numbers of threads that are compared with one thread.
    pub threads: Vec<u32>,
    /// Files created per run.
    pub files: u32,
    /// Commits per run.
    pub commits: u32,
    /// Maximum number of inodes on a volume.
    pub inodes: u32,
    /// Size of the replayed log in bytes.
    pub log_bytes: u64,
}

impl Scale {
    /// The sizes of a measurement, or of a smoke test of the harness.
    pub fn new(
        folder: PathBuf,
        (rounds, inodes): (u32, u32),
        threads: &[u32],
        alone: bool,
        smoke: bool,
    ) -> Self {
        let (files, commits, log_bytes) =
            if smoke { (2_000, 2_000, 16 << 20) } else { (200_000, 1_000_000, 64 << 20) };
        let (rounds, inodes) = if smoke { (1, 20_000) } else { (rounds, inodes) };
        Self { folder, rounds, alone, threads: threads.to_vec(), files, commits, inodes, log_bytes }
    }
}

/// Runs the parts whose names contain `only`.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    let parts: [(&str, Experiment<Scale>); 12] = [
        ("namespace", namespace::run),
        ("stat", paths::stat),
        ("open", paths::open),
        ("locks", paths::locks),
        ("list", trees::list),
        ("walks", trees::walks),
        ("tmpfiles", tmpfiles::run),
        ("collisions", collisions::run),
        ("commits", commits::run),
        ("recovery", recovery::run),
        ("instructions", instructions::run),
        ("finobt", finobt::run),
    ];
    table.run(scale, &parts, only)
}
