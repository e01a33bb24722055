//! Options, phases, progress, summary and errors of a check.

use std::fmt;
use std::time::Duration;

use block::{Device, DeviceError};
use format::superblock::SuperblockError;

use crate::finding::Counts;

/// Options of a check.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Memory for lists of inodes and of owned blocks, in bytes. Longer lists go to temporary files.
    pub memory_budget: usize,
    /// Maximum number of findings to report per kind (severity, structure and field). The rest is counted.
    pub findings_per_kind: usize,
    /// The external log device. Without it, LSNs are not compared with an external log.
    pub external_log: Option<&'a dyn Device>,
    /// A dirty log was replayed onto this device. The superblock's counters are not logged, so they may be old: the
    /// next mount recomputes them.
    pub replayed: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_budget: 64 << 20,
            findings_per_kind: 100,
            external_log: None,
            replayed: false,
        }
    }
}

/// The phases of a check, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Superblocks and the head of the log.
    Superblocks,
    /// Headers and btrees of each allocation group.
    Ags,
    /// Inodes, their forks and attributes.
    Inodes,
    /// Directories, unlinked lists and parents of directories.
    Directories,
    /// Owners of blocks: free space, reverse mappings, reference counts.
    Space,
    /// Link counts, parent pointers and counters.
    Links,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblocks => "superblocks",
            Self::Ags => "allocation groups",
            Self::Inodes => "inodes",
            Self::Directories => "directories",
            Self::Space => "space",
            Self::Links => "links",
        })
    }
}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Finished units of work.
    pub done: u64,
    /// Units of work of the phase.
    pub total: u64,
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings by severity, including suppressed ones.
    pub findings: Counts,
    /// Allocation groups.
    pub ags: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Directory entries without `.` and `..`.
    pub entries: u64,
    /// Extents of all forks.
    pub extents: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
    /// Duration of each phase.
    pub phases: Vec<(Phase, Duration)>,
}

impl Summary {
    /// Whether no error was found. Warnings do not count.
    pub fn is_clean(&self) -> bool {
        self.findings.errors == 0
    }
}

/// The reason why a volume could not be checked.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// There is no usable superblock, or the volume is not supported.
    Refused(SuperblockError),
    /// The superblock could not be read.
    Device(DeviceError),
    /// Writing or reading the temporary file failed.
    TemporaryFile(std::io::Error),
    /// The observer asked to stop.
    Cancelled,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::TemporaryFile(error) => write!(
                f,
                "temporary file of the check: {error} (free space in TMPDIR, or raise the memory budget)"
            ),
            Self::Cancelled => f.write_str("the check was cancelled"),
        }
    }
}

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Device(error) => Some(error),
            Self::TemporaryFile(error) => Some(error),
            Self::Cancelled => None,
        }
    }
}

impl From<SuperblockError> for CheckError {
    fn from(refusal: SuperblockError) -> Self {
        Self::Refused(refusal)
    }
}
