//! What opening an image found in its log, and what a caller may want to print meanwhile.

use std::collections::BTreeSet;
use std::fmt;

use base::Ino;
use block::LockHolder;
use journal::recovery::Intent;
use journal::{Dirty, RecoveryReport};

use crate::image::ImageError;

/// The state of the log when the image was opened.
#[derive(Debug)]
pub enum LogStatus {
    /// The volume was cleanly unmounted.
    Clean,
    /// It was dirty, and was replayed in memory.
    Replayed(Box<LogReplay>),
    /// It is dirty, and was not replayed, as the options asked.
    Ignored(Dirty),
    /// It, or the superblock, cannot be read.
    Unreadable(ImageError),
    /// It was not examined: opening the volume for changes replays it.
    NotExamined,
}

/// The replay of a dirty log in memory.
#[derive(Debug)]
pub struct LogReplay {
    /// The active part of the log.
    pub dirty: Dirty,
    /// What was replayed.
    pub report: RecoveryReport,
    /// Number of unfinished operations that were finished after the replay.
    pub finished: usize,
    /// Unfinished operations that were not.
    pub left: Vec<Intent>,
    /// Why they could not be finished.
    pub failure: Option<String>,
}

impl LogStatus {
    /// The files whose contents or attributes unfinished operations could still change.
    pub fn files_unfinished(&self) -> BTreeSet<Ino> {
        match self {
            Self::Replayed(replay) => replay.left.iter().flat_map(Intent::files_changed).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether a part of the log could not be replayed or finished, so that the newest changes may be missing.
    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Replayed(replay) if replay.report.problems_total > 0 || !replay.left.is_empty())
    }
}

/// What a caller may want to print while an image is being opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ImageNotice<'h> {
    /// Another program has the image open for writing, and this one reads it.
    InUse(&'h LockHolder),
    /// The image was unmounted and its server is still writing: opening waits for the server.
    Waiting(&'h LockHolder),
}

impl fmt::Display for ImageNotice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(holder) => write!(f, "{holder}: what is shown may be out of date or inconsistent"),
            Self::Waiting(holder) => write!(f, "{holder}: waiting for that"),
        }
    }
}
