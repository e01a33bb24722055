//! The engine beside the kernel's XFS on a loop mount: rates of changes, in one run, by ratio.
//!
//! | part | subject |
//! |---|---|
//! | [`namespace`] | creating and removing files, on one thread and on two |
//! | [`commits`] | commits that touch one inode |
//! | [`collisions`] | many names with one hash in a directory |
//! | [`finobt`] | allocating inodes among many that are in use |
//! | [`recovery`] | replaying a full log |
//! | [`instructions`] | whether a create costs the same among few files and many |
//!
//! Both sides work on images made by the same `mkfs` with the same options, on files in the page cache of one folder.
//! The kernel's side pays a system call for each change, which is the point; its log and trees are the same work.

mod collisions;
mod commits;
mod finobt;
mod instructions;
mod namespace;
mod recovery;

use std::path::PathBuf;

use anyhow::Context;

use crate::table::{Part, Table};

pub use instructions::serve;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Where the images are made.
    pub folder: PathBuf,
    /// Measured turns of each side.
    pub rounds: u32,
    /// Whether the kernel's side is left out.
    pub alone: bool,
    /// Files that are created, a turn.
    pub files: u32,
    /// Commits, a turn.
    pub commits: u32,
    /// Inodes of the experiment with the free inode tree.
    pub inodes: u32,
    /// Bytes of the log that is replayed.
    pub log_bytes: u64,
}

impl Scale {
    /// A real measurement, or one that only shows that the harness works.
    pub fn new(folder: PathBuf, rounds: u32, inodes: u32, alone: bool, smoke: bool) -> Self {
        let (files, commits, log_bytes) =
            if smoke { (2_000, 2_000, 16 << 20) } else { (200_000, 1_000_000, 64 << 20) };
        let (rounds, inodes) = if smoke { (1, 20_000) } else { (rounds, inodes) };
        Self { folder, rounds, alone, files, commits, inodes, log_bytes }
    }
}

/// Runs the parts that have `only` in their names.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    let parts: [(&str, Part<Scale>); 6] = [
        ("namespace", namespace::run),
        ("collisions", collisions::run),
        ("commits", commits::run),
        ("recovery", recovery::run),
        ("instructions", instructions::run),
        ("finobt", finobt::run),
    ];
    table.run(scale, &parts, only)
}
