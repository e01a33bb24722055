//! The largest directories of a volume, for a treemap.
//!
//! # Invariants
//! Directories smaller than a part of what is in use ([`PARTS`]) are not kept, so that there are at most so many at
//! each of the kept levels.

use std::cmp::Reverse;
use std::collections::HashSet;

use base::Ino;
use base::pipeline::{self, PipelineItem, PipelineSink};
use read::Volume;
use serde::Serialize;
use xebec::{Counts, Progress as _};

use crate::commands::usage::walk::{FileUsage, SizeEvent, SizeTask, SizeWalk, SizedFile};
use crate::json::JsonName;
use crate::output::Messages;
use crate::progress::TransferProgress;

/// A directory is kept if it has at least this part of what is in use: more would not be visible.
const PARTS: u64 = 2048;
/// Levels that are kept below the root.
const LEVELS_MAX: usize = 6;

/// A directory with everything in it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pub name: Vec<u8>,
    /// With its subdirectories.
    pub usage: FileUsage,
    /// The largest subdirectories, the largest first.
    pub contents: Vec<Directory>,
}

impl Directory {
    /// What is not in the kept subdirectories: files in this directory, and small subdirectories.
    pub fn rest(&self) -> u64 {
        let kept = self.contents.iter().map(|directory| directory.usage.allocated).sum();
        self.usage.allocated.saturating_sub(kept)
    }

    /// For JSON.
    pub fn json(&self) -> DirectoryJson<'_> {
        DirectoryJson {
            name: JsonName("name", &self.name),
            allocated: self.usage.allocated,
            files: self.usage.inodes,
            contents: self.contents.iter().map(Self::json).collect(),
        }
    }
}

/// A directory in JSON.
#[derive(Serialize)]
pub struct DirectoryJson<'d> {
    #[serde(flatten)]
    name: JsonName<'d>,
    allocated: u64,
    files: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contents: Vec<DirectoryJson<'d>>,
}

/// Walks the tree of a volume in which `used` bytes are in use.
pub fn of_volume(
    volume: &Volume,
    used: u64,
    messages: &Messages,
    progress: &TransferProgress<'_>,
    threads: usize,
) -> Directory {
    let (walk, tasks) = SizeWalk::new(volume, vec![(b"/".to_vec(), volume.root())], false, None);
    let mut tree = DirectoryTree {
        smallest: used / PARTS,
        levels: Vec::new(),
        counted: HashSet::new(),
        root: Directory::default(),
        files: 0,
        messages,
        progress,
    };
    let Ok(()) = pipeline::run(&walk, tasks, &mut tree, threads);
    tree.root
}

/// Collects directories.
struct DirectoryTree<'d> {
    /// Smallest size of a directory that is kept.
    smallest: u64,
    levels: Vec<Directory>,
    /// Files with several names.
    counted: HashSet<Ino>,
    root: Directory,
    files: u64,
    messages: &'d Messages,
    progress: &'d TransferProgress<'d>,
}

impl DirectoryTree<'_> {
    fn file(&mut self, file: &SizedFile) {
        if file.ino.is_some_and(|ino| !self.counted.insert(ino)) {
            return;
        }
        self.files += file.usage.inodes;
        if let Some(level) = self.levels.last_mut() {
            level.usage += file.usage;
        }
    }

    fn leave(&mut self) {
        let Some(mut directory) = self.levels.pop() else { return };
        directory.contents.sort_by_key(|inner| Reverse(inner.usage.allocated));
        let depth = self.levels.len();
        match self.levels.last_mut() {
            Some(above) => {
                above.usage += directory.usage;
                if depth <= LEVELS_MAX && directory.usage.allocated >= self.smallest.max(1) {
                    above.contents.push(directory);
                }
            }
            None => self.root = directory,
        }
    }
}

impl PipelineSink<SizeWalk<'_>> for DirectoryTree<'_> {
    type Error = std::convert::Infallible;

    fn take(
        &mut self,
        event: SizeEvent,
        _: &mut Vec<PipelineItem<SizeTask, SizeEvent>>,
    ) -> Result<(), Self::Error> {
        match event {
            SizeEvent::Enter { path, usage, .. } => {
                let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
                let name = name.unwrap_or(b"/").to_vec();
                self.levels.push(Directory { name, usage, contents: Vec::new() });
            }
            SizeEvent::Files(files) => files.iter().for_each(|file| self.file(file)),
            SizeEvent::Leave => {
                self.leave();
                self.progress.advance(Counts { files: self.files, bytes: 0 });
            }
            // The scan of inodes reports damaged ones; names without an inode are found here only.
            SizeEvent::Failed(failure) => self.messages.fail(failure),
        }
        Ok(())
    }
}
