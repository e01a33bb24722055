//! What a caller chooses, what it is told meanwhile, and what it gets at the end.

use std::fmt;
use std::time::Duration;

use block::{Device, DeviceError};
use format::superblock::SuperblockError;

use crate::finding::Counts;

/// How to check.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Worker threads; at least 1.
    pub threads: usize,
    /// Bytes that lists of owned blocks may take in memory before they go to a temporary file.
    pub memory_budget: usize,
    /// Findings handed over per kind (severity, structure and field); the rest is counted.
    pub findings_per_kind: usize,
    /// The log's device, where the log is external. Without it, LSNs are not compared with the log.
    pub external_log: Option<&'a dyn Device>,
    /// A dirty log was replayed onto this device. The superblock's free counters are not logged, so they may then lag
    /// behind: the next mount recomputes them.
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

/// The parts of a check, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Superblocks and the log's head.
    Volume,
    /// Headers and trees of each allocation group.
    Ags,
    /// Inodes, their forks and attributes.
    Inodes,
    /// Directories.
    Names,
    /// Who owns each block: free space, reverse mappings, reference counts.
    Space,
    /// Link counts, parents, unlinked lists, counters.
    Links,
}

impl Phase {
    /// Every phase in order.
    pub const ALL: [Self; 6] = [Self::Volume, Self::Ags, Self::Inodes, Self::Names, Self::Space, Self::Links];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "superblocks",
            Self::Ags => "allocation groups",
            Self::Inodes => "inodes",
            Self::Names => "directories",
            Self::Space => "space",
            Self::Links => "links",
        })
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Units of work that are done.
    pub done: u64,
    /// Units of work in all.
    pub total: u64,
}

/// What a check went through, and how long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings by severity, the suppressed ones included.
    pub findings: Counts,
    /// Allocation groups.
    pub ags: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Directory entries, without `.` and `..`.
    pub entries: u64,
    /// Extents of all forks.
    pub extents: u64,
    /// Bytes of lists that went to a temporary file.
    pub spilled_bytes: u64,
    /// How long each phase took.
    pub phases: Vec<(Phase, Duration)>,
}

impl Summary {
    /// Nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.findings.errors == 0
    }
}

/// Why a check could not be made at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The volume is not one that can be checked.
    Refused(SuperblockError),
    /// The device failed at a place without which nothing can be checked.
    Device(DeviceError),
    /// The temporary file for lists over the memory budget failed.
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
                "the temporary file of the check failed: {error} (make room in TMPDIR, or raise the memory budget)"
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
