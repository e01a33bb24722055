//! How much is measured, and by whom.

use std::path::PathBuf;
use std::time::Duration;

use crate::subject::Subject;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A measurement.
    Full,
    /// All experiments in about ten minutes.
    Quick,
    /// Whether the harness runs; the numbers mean nothing.
    Smoke,
}

/// Settings of all experiments.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// The program `xebec`, for commands and mounts: this one.
    pub xebec: PathBuf,
    /// How much is measured.
    pub size: Size,
    /// Measured runs of each subject.
    pub rounds: u32,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Whether peers are left out.
    pub alone: bool,
    /// Whether the kernel can mount XFS, or why not.
    pub kernel: Result<(), String>,
    /// Results of `xebec-sharing --json`, if the user named a file.
    pub sharing: Option<PathBuf>,
    /// Maximum number of inodes on a volume.
    pub inodes: u32,
    /// Who is measured, where an experiment compares file systems.
    pub subjects: Vec<Subject>,
}

impl Scale {
    /// The value for the size.
    pub fn pick<T>(&self, full: T, quick: T, smoke: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Quick => quick,
            Size::Smoke => smoke,
        }
    }

    /// Whether peers that need a mount by the kernel are left out.
    pub fn is_without_kernel(&self) -> bool {
        self.alone || self.kernel.is_err()
    }

    /// How long one run of a task that repeats a call lasts.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.pick(2000, 250, 20))
    }
}
