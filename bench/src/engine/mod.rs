//! Rates of metadata changes, compared with the kernel's XFS on a loop mount.
//!
//! | part | subject |
//! |---|---|
//! | [`namespace`] | creating and removing files, by one thread and by several |
//! | [`commits`] | commits that change one inode |
//! | [`paths`] | `stat` and `open` of names in memory |
//! | [`list`] | listing with metadata |
//! | [`collisions`] | many names with one hash in a directory |
//! | [`finobt`] | allocating inodes on a volume with many inodes |
//! | [`recovery`] | replaying a full log |
//! | [`instructions`] | instructions of an operation |
//! | [`threads`] | work on several threads |
//!
//! Both sides use images of the same `mkfs` with the same options, in the page cache. The kernel needs a system call
//! for each change; the work on log and btrees is the same.

pub mod collisions;
pub mod commits;
pub mod finobt;
pub mod instructions;
pub mod list;
pub mod namespace;
pub mod paths;
pub mod recovery;
pub mod threads;

use std::path::PathBuf;

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

impl From<&crate::scale::Scale> for Scale {
    fn from(scale: &crate::scale::Scale) -> Self {
        Self {
            folder: scale.folder.clone(),
            rounds: scale.rounds,
            alone: scale.is_without_kernel(),
            threads: scale.threads.clone(),
            files: scale.pick(200_000, 50_000, 2_000),
            commits: scale.pick(1_000_000, 200_000, 2_000),
            inodes: scale.inodes,
            log_bytes: scale.pick(64 << 20, 64 << 20, 16 << 20),
        }
    }
}
